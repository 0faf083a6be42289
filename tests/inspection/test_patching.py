"""Activation patching: each value equals a teacher-forced pass with one activation replaced."""

from __future__ import annotations

import pytest
import torch
from tiny import END, FAMILIES, PLAIN, Pairs, Variant, by_family, forward_of, tiny_model
from torch import Tensor
from torch.testing import assert_close

from heedful.inspection.measures.patching import Pass, PatchingResult, patch_passes
from heedful.nn.hooks import hook_points, patch, record
from heedful.nn.model import SequenceModel, inference_context


def two(pairs: Pairs) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    source = pairs.source[:1]
    other = source.clone()
    other[0, 2] = 4 + (int(source[0, 2]) - 3) % 7  # replace one token
    target_in = pairs.target[:1]
    return (source, other), target_in, torch.cat((target_in[:, 1:], torch.tensor([[END]])), dim=1)


def trace(model: SequenceModel, sources: tuple[Tensor, Tensor], target_in: Tensor, target_out: Tensor) -> PatchingResult:
    """Patch from one source into another. sources: A and B, each (1, source time); target_in, target_out (1, target time)."""

    def log_probabilities(hidden: Tensor) -> Tensor:
        logs = model.project(hidden).log_softmax(-1)
        return logs.gather(-1, target_out.expand(len(logs), -1)[..., None])[..., 0]  # (rows, target time)

    first, second = (Pass(forward_of(source, target_in), log_probabilities) for source in sources)
    return patch_passes(model, first, second)


@pytest.mark.parametrize("variant", by_family(PLAIN), ids=str)
def test_every_change_equals_patching_that_position_by_hand(variant: Variant, pairs: Pairs) -> None:
    model = tiny_model(variant)
    (source, other), target_in, target_out = two(pairs)
    result = trace(model, (source, other), target_in, target_out)
    assert result.effects and not result.left_out

    def logs(source: Tensor) -> Tensor:
        return model.forced_logits(source, None, target_in)[0].log_softmax(-1).gather(-1, target_out[0][:, None])[:, 0]

    with inference_context(model):
        with record(model, "*") as first:
            assert_close(result.first, logs(source))
        with record(model, "*") as second:
            assert_close(result.second, logs(other))
        for effect in result.effects:
            for at in {0, len(effect.change) // 2, len(effect.change) - 1}:
                mixed = second[effect.output.name].clone()
                mixed[0, at] = first[effect.output.name][0, at]
                with patch(model, {effect.output.name: mixed}):
                    assert_close(effect.change[at], logs(other) - result.second, atol=1e-5, rtol=1e-4)
    assert not any(point.hooks for point in hook_points(model).values())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_patched_at_each_source_token_and_equal_sources_have_no_effect(family: str, pairs: Pairs) -> None:
    model = tiny_model(next(variant for variant in PLAIN if variant.family == family))
    (source, other), target_in, target_out = two(pairs)
    result = trace(model, (source, other), target_in, target_out)
    source_effects = [effect for effect in result.effects if effect.output.side == "source"]
    assert source_effects and all(len(effect.change) >= source.shape[1] for effect in source_effects)
    largest = max(float(effect.change.abs().max()) for effect in source_effects)
    assert largest == 0 if family == "sutskever" else largest > 1e-4  # its decoder uses only the last encoder state
    same = trace(model, (source, source), target_in, target_out)
    assert all(float(effect.change.abs().max()) < 1e-5 for effect in same.effects)


@pytest.mark.parametrize("family", FAMILIES)
def test_patching_the_last_layer_affects_only_its_own_token(family: str, pairs: Pairs) -> None:
    """Patching it gives the full difference at its own token and none elsewhere."""
    result = trace(tiny_model(Variant(family, ())), *two(pairs))
    expected = torch.diag(result.first - result.second)
    assert expected.abs().max() > 1e-4
    assert_close(result.effects[-1].change, expected, atol=1e-5, rtol=1e-4)


def test_a_sentence_patched_into_itself_changes_nothing(pairs: Pairs) -> None:
    (source, _), target_in, target_out = two(pairs)
    result = trace(tiny_model(Variant("transformer", ())), (source, source), target_in, target_out)
    assert all(torch.allclose(effect.change, torch.zeros(()), atol=1e-5) for effect in result.effects)


def test_with_sources_of_different_length_only_target_positions_are_patched(pairs: Pairs) -> None:
    (source, other), target_in, target_out = two(pairs)
    result = trace(tiny_model(Variant("transformer", ())), (source, other[:, 1:]), target_in, target_out)
    assert [effect.output.name for effect in result.effects] == ["decoder.0.out", "decoder.1.out"]
    assert [output.name for output in result.left_out] == ["encoder.0.out", "encoder.1.out"]


def test_the_largest_effect_is_at_the_word_that_differs(pairs: Pairs) -> None:
    """In the first layer of a convolutional encoder, the largest part."""
    (source, other), target_in, target_out = two(pairs)
    with torch.inference_mode():
        result = trace(tiny_model(Variant("bytenet", ())), (source, other), target_in, target_out)
    first = result.effects[0].change.abs().sum(1)
    assert result.effects[0].output.name == "encoder.0.out" and int(first.argmax()) == 2
