"""Skip-thought vectors: neighbors within documents, the loss of both decoders, and vectors through `Embedder`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import heedful
from heedful.errors import ConfigError
from heedful.tasks.embedding.data import encode_texts
from heedful.tasks.skip_thought.data import NONE, SkipThoughtData, find_sentences
from heedful.tasks.skip_thought.model import neighbor_loss
from heedful.tasks.skip_thought.predictor import SkipThought

END = 9


@pytest.fixture
def predictor(tiny_runs: dict[str, Path]) -> SkipThought:
    return SkipThought.load(tiny_runs["skip_thought"])


def test_neighbors_are_lines_of_the_same_document_and_lonely_sentences_are_left_out() -> None:
    """Lines: 0 and 1, an empty one, 3 alone, an empty one, 5 to 7."""
    lines = [[1], [2, 3], [], [4], [], [5], [6, 7], [8]]
    ids = np.array([token for line in lines for token in (*line, END)])
    found = find_sentences(ids, END)
    assert [ids[begin:end].tolist() for begin, end in found.spans] == lines
    assert found.rows.tolist() == [[0, NONE, 1], [1, 0, NONE], [5, NONE, 6], [6, 5, 7], [7, 6, NONE]]
    assert len(find_sentences(np.array([1, 2]), END).rows) == 0


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
