"""Alignment: maps from one forced pass, merged from pieces into words, and the word looked at most."""

from __future__ import annotations

import pytest
import torch
from tiny import SPEAKING, Pairs, Speaker, Variant, tiny_model
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.inspection.alignment import attention_between, between_words, cross_maps, links
from heedful.nn.taps import record


@pytest.fixture
def model() -> Speaker:
    return tiny_model(Variant(SPEAKING[0], ()))


def test_maps_are_the_recorded_weights_of_each_layer(model: Speaker, pairs: Pairs) -> None:
    source, target = pairs.source[:1], pairs.target[:1]
    maps = cross_maps(model, source, target)
    with record(model, "*.cross.*.weights") as seen:
        model.step(target, model.start(source, None, room=0))
    assert [tuple(weights.shape) for weights in maps] == [(2, 7, 6), (2, 7, 6)]
    for weights, recorded in zip(maps, seen.values(), strict=True):
        assert_close(weights, recorded[0])
        assert_close(weights.sum(-1), torch.ones(2, 7))


def test_where_source_and_target_are_one_sequence_a_look_at_the_source_is_a_part_of_each_map(pairs: Pairs) -> None:
    model = tiny_model(Variant("gpt", (("position", "rotary"), ("norm", "pre"), ("reach", "full"))))
    source, target = pairs.source[:1], pairs.target[:1]
    maps = cross_maps(model, source, target)
    whole = torch.cat((source, target), dim=1)
    with torch.inference_mode(), record(model, "layers.*.attention.look.weights") as seen:
        model.step(whole, model.start(whole[:, :0], None, room=0))
    assert len(maps) == 2
    for weights, recorded in zip(maps, seen.values(), strict=True):
        assert_close(weights, recorded[0, :, 6:, :6])


def test_a_look_is_the_mean_over_heads_and_layers(model: Speaker, pairs: Pairs) -> None:
    pair = pairs.source[:1], pairs.target[:1]
    first, second = cross_maps(model, *pair)
    assert_close(attention_between(model, pair, layer=1), second.mean(0))
    assert_close(attention_between(model, pair), torch.cat((first, second)).mean(0))


@pytest.mark.parametrize("training", [True, False])
def test_looking_leaves_the_model_as_it_was(training: bool, pairs: Pairs) -> None:
    model = tiny_model(Variant(SPEAKING[0], (("norm", "pre"),))).train(training)
    first, again = (cross_maps(model, pairs.source[:1], pairs.target[:1]) for _ in range(2))
    assert model.training is training
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))  # without dropout


def test_pieces_are_merged_into_words() -> None:
    """A word is looked at with the sum of its pieces' weights, and looks with their mean."""
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.1, 0.4]])
    merged = between_words(weights, [0, 0, 1], [0, 1, 1])
    assert_close(merged, torch.tensor([[0.3, 0.7], [0.6, 0.4]]))
    assert_close(merged.sum(-1), torch.ones(2))


def test_every_target_word_is_linked_to_what_it_looked_at_most() -> None:
    assert links(torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])) == {(1, 0), (0, 1), (1, 2)}


def test_a_model_that_reads_nothing_cannot_be_aligned() -> None:
    class Deaf(nn.Module):
        def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> None: ...

        def step(self, tokens: Tensor, state: None, mask: Tensor | None = None) -> None: ...

    with pytest.raises(ConfigError, match="does not attend to its source"):
        cross_maps(Deaf(), torch.zeros(1, 1), torch.zeros(1, 1))  # type: ignore[arg-type]
