"""Contrastive training, retrieval metrics, and the vectors of an `Embedder`."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from workshop import heed

import heedful
from heedful.errors import ConfigError
from heedful.models.encoder import Encoder, EncoderConfig
from heedful.tasks.embedding import evaluate
from heedful.tasks.embedding.data import SimilarRow, allowed_candidates, encode_texts
from heedful.tasks.embedding.model import EmbeddingModel, contrastive_losses

TEXTS = ["cat sees", "the dog runs and eats the cow", "cow", "dog eats"]


def test_the_loss_is_the_softmax_over_the_allowed_candidates() -> None:
    torch.manual_seed(1)
    anchors = functional.normalize(torch.randn(3, 5), dim=-1)
    candidates = functional.normalize(torch.randn(3, 2, 5), dim=-1)
    allowed = torch.rand(3, 3, 2) < 0.6
    allowed[:, :, 0] |= torch.eye(3, dtype=torch.bool)
    losses = contrastive_losses(anchors, candidates, allowed, torch.arange(3), 0.1)
    for row in range(3):
        scores = {
            (other, at): math.exp(float(anchors[row] @ candidates[other, at]) / 0.1)
            for other in range(3)
            for at in range(2)
            if allowed[row, other, at]
        }
        assert len(scores) < 6
        assert float(losses[row]) == pytest.approx(-math.log(scores[row, 0] / sum(scores.values())), abs=1e-6)


def test_equal_texts_are_no_negatives() -> None:
    """Rows: (anchor, positive, hard negative) as numbers of texts; 0 is no text."""
    texts = torch.tensor([[1, 2, 9], [1, 3, 0], [4, 2, 1], [5, 6, 2]])
    allowed = allowed_candidates(texts, (texts > 0).long())
    # candidates of each row: (positive, negative) of rows 1 to 4
    assert allowed.int().tolist() == [
        [[1, 1], [0, 0], [0, 0], [1, 0]],  # 3 is a positive of the same anchor; 2 is its own positive, 1 its anchor
        [[0, 1], [1, 0], [1, 0], [1, 1]],  # 2 belongs to the same anchor only in row 1
        [[0, 1], [1, 0], [1, 1], [1, 0]],
        [[1, 1], [1, 0], [1, 1], [1, 1]],
    ]


def test_metrics_equal_a_sorted_list_of_similarities(tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = heedful.Embedder.load(tiny_runs["embedding"])
    rows = [
        ("cat sees", "sees cat", "cat"),
        ("cat sees", "cow", ""),
        ("dog runs", "sees dog", "sees cat"),
        ("cow eats", "dog", ""),
    ]
    ids = {text: encode_texts([text], embedder.system.target_tokenizer, 99)[0] for row in rows for text in row if text}
    encoded = [SimilarRow(ids[a], ids[b], (ids[c],) if c else ()) for a, b, c in rows]
    monkeypatch.setattr(evaluate, "BLOCK", 12)  # two rows at a time
    figures = evaluate.evaluate(embedder.embedder, embedder.system, encoded, 0.1)
    ranks, losses = [], []
    candidates = {text for row in rows for text in row[1:] if text}
    for anchor, positive, _ in rows:
        others = candidates - {anchor} - {b for a, b, _ in rows if a == anchor and b != positive}
        scores = {text: float(embedder.similarity([anchor], [text])) for text in others}
        ranks.append(1 + sorted(scores, key=lambda text: -scores[text]).index(positive))
        losses.append(math.log(sum(math.exp(one / 0.1) for one in scores.values())) - scores[positive] / 0.1)
    assert len(set(ranks)) > 1
    assert figures["accuracy"] == pytest.approx(sum(rank == 1 for rank in ranks) / 4)
    assert figures["mrr"] == pytest.approx(sum(1 / rank for rank in ranks) / 4)
    assert figures["recall_10"] == 1.0
    assert figures["loss"] == pytest.approx(sum(losses) / 4, abs=1e-4)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_vector_is_the_pooled_state_whatever_is_encoded_with_it(tiny_runs: dict[str, Path], pooling: str) -> None:
    embedder = heedful.Embedder.load(tiny_runs["embedding"])
    together = embedder.encode(TEXTS, pooling)  # type: ignore[arg-type]
    assert together.shape == (len(TEXTS), 16)
    for text, vector in zip(TEXTS, together, strict=True):
        tokens = torch.tensor(encode_texts([text], embedder.system.target_tokenizer, 99))
        with torch.inference_mode():
            hidden = embedder.embedder.body.encode(tokens)[0]  # (time, dim)
        state = hidden.mean(0) if pooling == "mean" else hidden[0]
        torch.testing.assert_close(vector, state / state.norm(), atol=1e-5, rtol=1e-4)
    assert embedder.encode([]).shape == (0, 16)


def test_runs_of_other_tasks_with_an_encoder_embed_texts(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for task in ("masked", "tagging"):
        predictor = heedful.load(tiny_runs[task])
        embedder = heedful.Embedder.of(predictor)
        tokens = torch.tensor(encode_texts(["the dog"], predictor.system.target_tokenizer, 99))
        with torch.inference_mode():
            state = predictor.model.base_model.encode(tokens)[0].mean(0)  # type: ignore[operator]
        torch.testing.assert_close(embedder.encode(["the dog"])[0], state / state.norm(), atol=1e-5, rtol=1e-4)
        with pytest.raises(ConfigError, match="has no pairs of similar texts"):
            embedder.validate()
    (tmp_path / "texts.txt").write_text("the dog\na cat\n")
    capsys.readouterr()
    assert heed("embed", tiny_runs["masked"], tmp_path / "texts.txt") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [len(line.split(" ")) for line in lines] == [16, 16]


def test_wrong_arguments_are_errors(tiny_runs: dict[str, Path]) -> None:
    embedder = heedful.Embedder.load(tiny_runs["embedding"])
    with pytest.raises(ConfigError, match="expected a list of texts"):
        embedder.encode("cat")
    with pytest.raises(ConfigError, match="unknown pooling 'max'"):
        embedder.encode(["cat"], "max")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has one option: pooling"):
        embedder.predict("cat", top=3)


def test_attention_pooling_of_a_bag_of_words_depends_neither_on_padding_nor_on_order() -> None:
    torch.manual_seed(1)
    model = EmbeddingModel(Encoder(EncoderConfig(dim=8, layers=(), norm="post"), 20), "attention").eval()
    tokens = torch.tensor([[3, 5, 7, 5]])
    with torch.inference_mode():
        (vector,) = model(tokens)
        (padded,) = model(torch.tensor([[3, 5, 7, 5, 0, 0]]), torch.tensor([[True] * 4 + [False] * 2]))
        (shuffled,) = model(tokens.flip(1))
        assert not torch.allclose(vector, model(tokens, pooling="mean")[0], atol=1e-3)
    torch.testing.assert_close(padded, vector)
    torch.testing.assert_close(shuffled, vector)
    assert [pooling.weights for pooling in model.poolings()] == ["attention_pooling.weights"]
