"""Skip-thought vectors: neighbors within documents, the loss of both decoders, and vectors through `Embedder`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_tasks import write_tiny_recipe

import heedful
from heedful.errors import ConfigError
from heedful.runs.build import make_model, make_task
from heedful.runs.config import read_run
from heedful.tasks.embedding.data import encode_texts
from heedful.tasks.skip_thought.data import NONE, SkipThoughtData, find_sentences
from heedful.tasks.skip_thought.model import neighbor_loss
from heedful.tasks.skip_thought.predictor import SkipThought
from heedful.tasks.skip_thought.task import SkipThoughtTask
from heedful.text.train import train_tokenizer

END = 9


@pytest.fixture
def predictor(tiny_runs: dict[str, Path]) -> SkipThought:
    return SkipThought.load(tiny_runs["skip_thought"])


def test_neighbors_are_lines_of_the_same_document_and_lonely_sentences_are_left_out() -> None:
    """Lines: 0 and 1, an empty one, 3 alone, an empty one, 5 to 7."""
    lines = [[1], [2, 3], [], [4], [], [5], [6, 7], [8]]
    ids = np.array([token for line in lines for token in (*line, END)])
    found = find_sentences([ids], END)
    assert [ids[begin:end].tolist() for begin, end in found.spans] == lines
    assert found.rows.tolist() == [[0, NONE, 1], [1, 0, NONE], [5, NONE, 6], [6, 5, 7], [7, 6, NONE]]
    assert len(find_sentences([np.array([1, 2])], END).rows) == 0


def test_the_loss_is_that_of_the_tokens_of_both_neighbors(predictor: SkipThought) -> None:
    data, sentences = SkipThoughtData(predictor.run), predictor.sentences("train")
    marks, model = predictor.system.target_tokenizer.specials, predictor.skip_thought
    rows = sentences.rows[[0, 1, 2]]
    assert rows[0, 1] == NONE
    batch = data.collate(sentences, rows, marks)
    with torch.inference_mode():
        loss = neighbor_loss(model, batch, marks.pad)
        total, count = 0.0, 0
        for row in rows:
            tokens = torch.tensor([data.text(sentences, row[0], marks)])
            vector = model(tokens)
            for decoder, line in ((model.previous, row[1]), (model.next, row[2])):
                if line == NONE:
                    continue
                text = torch.tensor([data.text(sentences, line, marks)])
                logits = model.readout(decoder(model.body.embedding(text[:, :-1]), vector))[0]
                total -= float(logits.log_softmax(-1).gather(1, text[0, 1:, None]).sum())
                count += text.shape[1] - 1
    assert int(loss.count) == count and float(loss.total) == pytest.approx(total, rel=1e-5)


def test_the_embedder_returns_the_vectors_of_the_trained_encoder(predictor: SkipThought) -> None:
    texts = ["the cat sees", "a dog"]
    embedder = heedful.Embedder.load(predictor.checkpoint.parent.parent)
    assert torch.equal(embedder.encode(texts), predictor.encode(texts))
    tokens = torch.tensor(encode_texts(texts[:1], predictor.system.target_tokenizer, 99))
    with torch.inference_mode():
        torch.testing.assert_close(embedder.encode(texts)[:1], predictor.skip_thought(tokens), atol=1e-5, rtol=1e-5)
    with pytest.raises(ConfigError, match="has no pairs of similar texts"):
        embedder.validate()
    with pytest.raises(ConfigError, match="'top', but task 'skip_thought' has no options"):
        predictor.predict("cat", top=2)


def test_sentences_of_mixed_corpora_are_drawn_by_weight_with_neighbors_of_their_own_text(tmp_path: Path) -> None:
    (tmp_path / "digits.txt").write_text("1 2 3\n4 5\n6 7 8\n\n" * 4)
    recipe = write_tiny_recipe("skip_thought", tmp_path)
    train = f"[{{file='{tmp_path}/book.txt', weight=0.5}}, {{file='{tmp_path}/digits.txt', weight=2}}]"
    config = read_run(recipe, [f"data.train={train}", "data.temperature=2"]).config
    with pytest.raises(ConfigError, match=r"data\.max_store_megabytes: given 1, but task 'skip_thought' needs the whole text"):
        read_run(recipe, ["data.max_store_megabytes=1"])
    data = SkipThoughtData(config)
    tokenizer = train_tokenizer(config.tokenizer, data.lines("target"), data.tags)
    model = make_model(config, len(tokenizer), len(tokenizer))
    task = make_task(config, model, (tokenizer, tokenizer), data.prepare((tokenizer, tokenizer), data.check()))
    assert isinstance(task, SkipThoughtTask)
    assert task.train.sizes == (40, 12)
    amounts = np.sqrt([0.5 * 40, 2 * 12])
    counts = np.round(amounts / amounts.sum() * 44).astype(int).tolist()
    assert f"; {counts[0]} + {counts[1]} sentences of the corpora in an epoch" in task.describe()
    digits, chosen = set(tokenizer.encode("1 2 3 4 5 6 7 8")), np.concatenate(task.plan(0))
    assert [int((chosen < 40).sum()), int((chosen >= 40).sum())] == counts
    for number, row in zip(chosen.tolist(), task.train.rows[chosen].tolist(), strict=True):
        for line in row:
            if line != NONE:
                text = data.text(task.train, line, task.marks)[1:-1]
                assert text and (number >= 40) == bool(digits & set(text))
