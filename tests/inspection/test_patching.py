"""Patching: each number is what one forced pass with one value exchanged gives."""

from __future__ import annotations

import pytest
import torch
from tiny import END, PLAIN, SPEAKING, Pairs, Variant, tiny_model
from torch import Tensor
from torch.testing import assert_close

from heedful.inspection.attention_maps import inference_context
from heedful.inspection.patching import trace
from heedful.nn.hooks import hook_points, patch, record


def two(pairs: Pairs) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    source = pairs.source[:1]
    other = source.clone()
    other[0, 2] = 4 + (int(source[0, 2]) - 3) % 7  # another word
    target_in = pairs.target[:1]
    return (source, other), target_in, torch.cat((target_in[:, 1:], torch.tensor([[END]])), dim=1)


@pytest.mark.parametrize("variant", PLAIN, ids=str)
def test_every_change_is_what_patching_that_one_position_by_hand_gives(variant: Variant, pairs: Pairs) -> None:
    model = tiny_model(variant)
    (source, other), target_in, target_out = two(pairs)
    found = trace(model, (source, other), target_in, target_out)
    assert found.effects and not found.left_out

    def logs(read: Tensor) -> Tensor:
        hidden = model.step(target_in, model.start(read, None, room=0)).hidden
        return model.project(hidden)[0].log_softmax(-1).gather(-1, target_out[0][:, None])[:, 0]

    with inference_context(model):
        with record(model, "*") as first:
            assert_close(found.first, logs(source))
        with record(model, "*") as second:
            assert_close(found.second, logs(other))
        for place in found.effects:
            for at in {0, len(place.change) // 2, len(place.change) - 1}:
                mixed = second[place.name].clone()
                mixed[0, at] = first[place.name][0, at]
                with patch(model, {place.name: mixed}):
                    assert_close(place.change[at], logs(other) - found.second, atol=1e-5, rtol=1e-4)
    assert not any(tap.hooks for tap in hook_points(model).values())


@pytest.mark.parametrize("family", SPEAKING)
def test_every_family_has_a_place_for_each_source_token_and_nothing_flows_from_words_that_are_the_same(
    family: str, pairs: Pairs
) -> None:
    model = tiny_model(next(variant for variant in PLAIN if variant.family == family))
    (source, other), target_in, target_out = two(pairs)
    found = trace(model, (source, other), target_in, target_out)
    read = [place for place in found.effects if place.name.startswith("encoder") or place.name.endswith(".read")]
    assert read and all(len(place.change) >= source.shape[1] for place in read)
    heard = max(float(place.change.abs().max()) for place in read)
    assert heard == 0 if family == "sutskever" else heard > 1e-4  # whose decoder begins with the last state alone
    same = trace(model, (source, source), target_in, target_out)
    assert all(float(place.change.abs().max()) < 1e-5 for place in same.effects)


@pytest.mark.parametrize("family", SPEAKING)
def test_the_last_layer_decides_each_token_alone(family: str, pairs: Pairs) -> None:
    """So what changes there is the whole difference, at its own token and nowhere else."""
    found = trace(tiny_model(Variant(family, ())), *two(pairs))
    expected = torch.diag(found.first - found.second)
    assert expected.abs().max() > 1e-4
    assert_close(found.effects[-1].change, expected, atol=1e-5, rtol=1e-4)


def test_a_sentence_patched_into_itself_changes_nothing(pairs: Pairs) -> None:
    (source, _), target_in, target_out = two(pairs)
    found = trace(tiny_model(Variant("transformer", ())), (source, source), target_in, target_out)
    assert all(torch.allclose(place.change, torch.zeros(()), atol=1e-5) for place in found.effects)


def test_where_the_sources_differ_in_length_only_places_of_the_target_are_patched(pairs: Pairs) -> None:
    (source, other), target_in, target_out = two(pairs)
    found = trace(tiny_model(Variant("transformer", ())), (source, other[:, 1:]), target_in, target_out)
    assert [place.name for place in found.effects] == ["decoder.0.out", "decoder.1.out"]
    assert found.left_out == ["encoder.0.out", "encoder.1.out"]


def test_what_differs_passes_through_the_word_that_differs(pairs: Pairs) -> None:
    """In the first layer of an encoder without attention between words, all of it: here the largest part."""
    (source, other), target_in, target_out = two(pairs)
    with torch.inference_mode():
        found = trace(tiny_model(Variant("bytenet", ())), (source, other), target_in, target_out)
    first = found.effects[0].change.abs().sum(1)
    assert found.effects[0].name == "encoder.0.out" and int(first.argmax()) == 2
