"""Logit lens: predictions of every layer; the last are those of the model."""

from __future__ import annotations

import pytest
import torch
from tiny import FAMILIES, PLAIN, Pairs, Variant, by_family, forward_of, logits_of, tiny_model
from torch import Tensor
from torch.testing import assert_close

from heedful.inspection.measures.lens import Lens, decoder_outputs, lens
from heedful.nn.hooks import hook_points, record
from heedful.nn.model import inference_context


def first(pairs: Pairs) -> Pairs:
    return Pairs(pairs.source[:1], pairs.mask[:1], pairs.target[:1])


@pytest.mark.parametrize("variant", by_family(PLAIN), ids=str)
def test_the_last_layer_has_exactly_the_logits_of_the_model(variant: Variant, pairs: Pairs) -> None:
    model, one = tiny_model(variant), first(pairs)
    result = lens(model, forward_of(one.source, one.target), model.project)
    with inference_context(model):
        state = model.start(one.source, None, room=0)
        own = model.project(model.step(one.target, state).hidden)[0]
    assert torch.equal(result.logits[-1], own)
    assert result.names[-1] == decoder_outputs(model)[-1]
    assert all(not point.hooks for point in hook_points(model).values())


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("family", ["transformer", "gpt"])
def test_the_lens_applies_the_final_norm_and_the_output_projection(family: str, norm: str, pairs: Pairs) -> None:
    """Reference: project(norm(hidden state after layer l))."""
    model, one = tiny_model(Variant(family, (("norm", norm),))), first(pairs)
    result = lens(model, forward_of(one.source, one.target), model.project)
    last = model.get_submodule("decoder_last" if family == "transformer" else "last")
    with inference_context(model), record(model, *result.names) as recorded:
        logits_of(model, one)
        expected = [model.project(last(recorded[name]))[0] for name in result.names]
    assert len(expected) == 2 and not torch.allclose(expected[0], expected[1])
    assert_close(result.logits, torch.stack(expected), atol=1e-5, rtol=0)


def test_layers_of_another_width_than_the_last_are_skipped(pairs: Pairs) -> None:
    changes = (("channels", (16, 24)), ("kernel", (4, 1)), ("out_dim", 8), ("dim", 12))
    model, one = tiny_model(Variant("convs2s", changes)), first(pairs)
    assert decoder_outputs(model) == ["decoder.0.out", "decoder.1.out"]
    assert lens(model, forward_of(one.source, one.target), model.project).names == ["decoder.1.out"]


def test_ranks_and_probabilities_are_those_of_sorted_logits() -> None:
    logits: Tensor = torch.tensor([[[0.0, 2.0, 1.0]], [[3.0, 2.0, 1.0]]])
    result, tokens = Lens(["a", "b"], logits), torch.tensor([1])
    assert result.ranks(tokens).tolist() == [[1], [2]]  # as in `heed explain --step`
    assert_close(result.probabilities(tokens), logits.softmax(-1)[..., 1])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_supports_the_lens(family: str, pairs: Pairs) -> None:
    model = tiny_model(Variant(family, ()))
    assert lens(model, forward_of(pairs.source[:1], pairs.target[:1]), model.project).logits.isfinite().all()
