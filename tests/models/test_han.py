"""Hierarchical attention: both levels sum to one, padding has no influence, and it equals the formulas of the paper."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from tiny import PAD, VOCAB, WORDS, config_problems, perturb
from torch import Tensor
from torch.testing import assert_close

from heedful.models.han import Han, HanConfig
from heedful.nn.hooks import record

LEVELS = [("words", "sentences"), ("characters", "words", "sentences")]


def make(levels: tuple[str, ...] = LEVELS[0]) -> Han:
    config = HanConfig.model_validate({"dim": 8, "embedding": 6, "context": 5, "dropout": 0.0, "levels": levels})
    return perturb(Han(config, VOCAB)).eval()


def documents(levels: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Two documents, of three and one sentences, with words of up to two characters if there is such a level."""
    shape = (2, 3, 4, 2)[: len(levels) + 1]
    draws = torch.Generator().manual_seed(5)
    mask = torch.rand(shape, generator=draws) < 0.7
    mask[:, 0], mask[1, 1:] = True, False  # a first sentence without padding; the second document has only that one
    tokens = torch.randint(WORDS.start, WORDS.stop, shape, generator=draws)
    return tokens.masked_fill(~mask, PAD), mask


@pytest.mark.parametrize("levels", LEVELS, ids=len)
@torch.inference_mode()
def test_padding_and_other_documents_change_nothing(levels: tuple[str, ...]) -> None:
    model, (tokens, mask) = make(levels), documents(levels)
    batched = model.encode(tokens, mask)
    assert batched.shape == (2, 1, 8)
    assert_close(model.encode(tokens[1:, :1], mask[1:, :1]), batched[1:], atol=1e-6, rtol=0)
    assert_close(model.encode(tokens.masked_fill(~mask, WORDS[0]), mask), batched, atol=0, rtol=0)


@pytest.mark.parametrize("levels", LEVELS, ids=len)
def test_the_weights_of_every_level_sum_to_one_and_every_parameter_has_a_finite_gradient(levels: tuple[str, ...]) -> None:
    model, (tokens, mask) = make(levels), documents(levels)
    poolings = model.poolings()
    assert [one.level for one in poolings] == list(levels)
    with record(model, *(one.weights for one in poolings)) as recorded:
        loss = (model.encode(tokens, mask) @ torch.randn(8)).sum()
    real = mask
    for one in poolings:
        totals = recorded[one.weights].sum(-1)
        assert_close(totals, real.flatten(0, -2).any(-1).float())
        real = real.any(-1)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    assert all(bool(gradient.isfinite().all()) and bool(gradient.any()) for gradient in gradients)


@torch.inference_mode()
def test_a_document_vector_equals_the_formulas_of_the_paper() -> None:
    """u = tanh(W h + b), a = softmax(u . v), s = sum a h on both levels, with torch's own bidirectional layers."""
    model, (tokens, _) = make(), documents(LEVELS[0])
    vectors = []
    for sentence in tokens[0]:
        x = model.embedding(sentence)[None]  # (1, words, embedding)
        vectors.append(pooled(model, 0, x))
    expected = pooled(model, 1, torch.stack(vectors, 1))
    assert_close(model.encode(tokens[:1], None)[:, 0], expected, atol=1e-6, rtol=0)


def pooled(model: Han, index: int, x: Tensor) -> Tensor:
    """x (1, time, inputs) -> (1, dim)."""
    level = list(model.levels)[index]
    inputs, recurrent = level.map(x), cast(Any, level.recurrent)
    ahead = recurrent.forwards(inputs, None)[0]
    back = recurrent.backwards(inputs.flip(1), None)[0].flip(1)
    h = torch.cat((ahead, back), -1)[0]  # (time, dim)
    u = torch.tanh(h @ level.pooling.map.weight.T + level.pooling.map.bias)
    a = torch.softmax(u @ level.pooling.query, 0)
    return (a[:, None] * h).sum(0, keepdim=True)


def test_levels_are_words_and_sentences_with_or_without_characters() -> None:
    assert "expected" in config_problems(HanConfig, levels=("sentences", "words"))["levels"]
    assert "no level is 'characters'" in config_problems(HanConfig, max_characters=5)["max_characters"]
