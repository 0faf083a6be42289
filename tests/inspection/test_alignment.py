"""Soft alignment: weights of one teacher-forced pass, for single pairs and batches, merged from pieces into words."""

from __future__ import annotations

import pytest
import torch
from tiny import SPEAKING, Pairs, Speaker, Variant, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.inspection.measures.attention_maps import attentions
from heedful.inspection.measures.merge_words import (
    mean_cross_attention,
    merge_into_words,
    merge_pieces,
)
from heedful.nn.hooks import record


@pytest.fixture
def model() -> Speaker:
    return tiny_model(Variant(SPEAKING[0], ()))


def test_maps_are_the_recorded_weights_of_each_layer(model: Speaker, pairs: Pairs) -> None:
    source, target = pairs.source[:1], pairs.target[:1]
    maps = source_maps(model, source, target)
    with record(model, "*.cross_attention.weights") as recorded:
        model.step(target, model.start(source, None, room=0))
    assert [tuple(weights.shape) for weights in maps] == [(2, 7, 6), (2, 7, 6)]
    for weights, expected in zip(maps, recorded.values(), strict=True):
        assert_close(weights, expected[0])
        assert_close(weights.sum(-1), torch.ones(2, 7))


def test_with_source_and_target_in_one_sequence_cross_maps_are_the_source_columns(pairs: Pairs) -> None:
    model = tiny_model(Variant("gpt", (("position", "rotary"), ("norm", "pre"), ("reach", "full"))))
    source, target = pairs.source[:1], pairs.target[:1]
    maps = source_maps(model, source, target)
    joined = torch.cat((source, target), dim=1)
    with torch.inference_mode(), record(model, "layers.*.self_attention.weights") as recorded:
        model.step(joined, model.start(joined[:, :0], None, room=0))
    assert len(maps) == 2
    for weights, expected in zip(maps, recorded.values(), strict=True):
        assert_close(weights, expected[0, :, 6:, :6])


def test_mean_cross_attention_averages_heads_and_layers(model: Speaker, pairs: Pairs) -> None:
    pair = pairs.source[:1], pairs.target[:1]
    first, second = source_maps(model, *pair)
    assert_close(mean_cross_attention(model, pair, layer=1), second.mean(0))
    assert_close(mean_cross_attention(model, pair), torch.cat((first, second)).mean(0))


@pytest.mark.parametrize("training", [True, False])
def test_recording_leaves_the_model_unchanged(training: bool, pairs: Pairs) -> None:
    model = tiny_model(Variant(SPEAKING[0], (("norm", "pre"),))).train(training)
    first, again = (source_maps(model, pairs.source[:1], pairs.target[:1]) for _ in range(2))
    assert model.training is training
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))  # without dropout


def test_pieces_are_merged_into_words() -> None:
    """Sum over the pieces of a source word, mean over those of a target word."""
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.1, 0.4]])
    merged = merge_into_words(weights, [0, 0, 1], [0, 1, 1])
    assert_close(merged, torch.tensor([[0.3, 0.7], [0.6, 0.4]]))
    assert_close(merged.sum(-1), torch.ones(2))


def test_batched_weights_equal_those_of_single_pairs(plain: Speaker, pairs: Pairs) -> None:
    try:
        batched = source_weights(plain, pairs.source, pairs.mask, pairs.target)
    except ConfigError:
        assert not any(kind.name in ("cross", "within") for kind in attentions(plain).values())
        return
    assert batched
    for row, length in enumerate(pairs.mask.sum(-1).tolist()):
        alone = source_maps(plain, pairs.source[row : row + 1, :length], pairs.target[row : row + 1])
        for weights, expected in zip(batched.values(), alone, strict=True):
            assert_close(weights[row, ..., :length], expected, atol=1e-5, rtol=1e-4)
            assert not weights[row, ..., length:].any()


def test_batched_merging_equals_merging_each_row() -> None:
    weights = torch.rand(2, 3, 4, 5)
    source, target = [[0, 0, 1, 2, -1], [0, 1, 1, -1, -1]], [[0, 1, 1, -1], [-1, 0, 0, 1]]
    merged = merge_pieces(weights, torch.tensor(source), torch.tensor(target))
    assert merged.shape == (2, 3, 2, 3)
    assert_close(merged[0, 1], merge_into_words(weights[0, 1, :3, :4], source[0][:4], target[0][:3]))
    assert_close(merged[1, 2, :, :2], merge_into_words(weights[1, 2, 1:, :3], source[1][:3], target[1][1:]))
    assert not merged[1, :, :, 2].any()  # beyond the words of the row


def test_a_model_without_attention_to_the_source_raises_an_error() -> None:
    class NoAttention(nn.Module):
        def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> None: ...

        def step(self, tokens: Tensor, state: None, mask: Tensor | None = None) -> None: ...

    with pytest.raises(ConfigError, match="does not attend to its source"):
        source_maps(NoAttention(), torch.zeros(1, 1), torch.zeros(1, 1))  # type: ignore[arg-type]
