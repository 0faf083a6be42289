"""Weighing: the vectors that were weighed add up to what was found, and their norms to what a layer was given."""

from __future__ import annotations

import math

import pytest
import torch
from tiny import VARIANTS, Pairs, Variant, tiny_model
from torch import Tensor
from torch.testing import assert_close

from heedful.inspection.attention_maps import attention_maps, attentions, forced
from heedful.inspection.attention_norms import AttentionNorms, arriving, attention_norms, entropy, projection
from heedful.nn.hooks import hook_points, record

LOOKING = [variant for variant in VARIANTS if attentions(tiny_model(variant))]


def look(variant: Variant, pairs: Pairs) -> list[AttentionNorms]:
    return attention_norms(tiny_model(variant), pairs.source[:1], pairs.target[:1])


@pytest.mark.parametrize("variant", LOOKING, ids=str)
def test_weights_times_vectors_are_what_was_found_and_the_maps_are_the_plain_ones(variant: Variant, pairs: Pairs) -> None:
    found = look(variant, pairs)
    plain = attention_maps(tiny_model(variant), pairs.source[:1], pairs.target[:1])
    assert [one.map.name for one in found] == [one.name for one in plain] and found
    for one, same in zip(found, plain, strict=True):
        assert torch.equal(one.map.weights, same.weights)
        assert_close((one.map.weights[..., None] * one.vectors).sum(2), one.found, atol=1e-5, rtol=0)


@pytest.mark.parametrize("variant", LOOKING, ids=str)
def test_norms_are_of_what_leaves_the_layer_when_all_other_heads_and_tokens_give_nothing(
    variant: Variant, pairs: Pairs
) -> None:
    """The reference asks the projection itself: one head's share of one token, zeros elsewhere, the bias taken off."""
    model = tiny_model(variant)
    for one in look(variant, pairs):
        heads, queries, keys = one.map.weights.shape
        place = one.map.name.removesuffix(".weights")
        path = projection(model, place)
        scale = math.sqrt(6) if variant.family == "convs2s" else 1.0  # of the source's six tokens
        query, key, head = queries - 1, keys // 2, heads - 1
        share = one.map.weights[head, query, key] * one.vectors[head, min(query, one.vectors.shape[1] - 1), key] * scale
        if path is not None:
            out = model.get_submodule(path)
            alone = torch.zeros(heads * len(share))
            alone[head * len(share) : (head + 1) * len(share)] = share
            with forced(model):
                share = out(alone) - out(torch.zeros_like(alone))
        assert_close(one.given.weights[head, query, key], share.norm(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", [one for one in LOOKING if one.family in ("transformer", "convs2s")], ids=str)
def test_all_shares_together_are_the_output_of_the_layer(variant: Variant, pairs: Pairs) -> None:
    """By the weight matrix, cut into heads by hand."""
    model = tiny_model(variant)
    places = [name.removesuffix(".weights") for name in attentions(model)]
    outs = [str(projection(model, place)) for place in places]
    with forced(model), arriving(model, places) as (_, onward), record(model, "*.found") as seen:
        model.step(pairs.target[:1], model.start(pairs.source[:1], None, room=0))
    for one, place, path in zip(look(variant, pairs), places, outs, strict=True):
        matrix: Tensor = model.get_submodule(path).weight  # type: ignore[assignment]  # (dim, heads x size)
        size = one.vectors.shape[-1]
        by_head = matrix.detach().view(len(matrix), -1, size)  # (dim, heads, size)
        scale = onward[place].norm() / seen[f"{place}.found"].norm()
        shares = one.map.weights[..., None] * torch.einsum("hqks,dhs->hqkd", one.vectors * scale, by_head)
        assert_close(shares.sum((0, 2)), onward[place][0] @ matrix.detach().T, atol=1e-4, rtol=1e-4)
        assert_close(one.given.weights, shares.norm(dim=-1).expand_as(one.given.weights), atol=1e-5, rtol=1e-4)


def test_a_family_without_a_projection_is_measured_by_the_vectors_themselves(pairs: Pairs) -> None:
    model = tiny_model(Variant("bahdanau", ()))
    (one,) = look(Variant("bahdanau", ()), pairs)
    with forced(model):
        values = model.start(pairs.source[:1], None, room=0).memory["values"][0]
    assert_close(one.given.weights, one.map.weights * values.norm(dim=-1))


def test_kinds_can_be_chosen_and_nothing_stays_behind(pairs: Pairs) -> None:
    model = tiny_model(Variant("transformer", ()))
    found = attention_norms(model, pairs.source[:1], pairs.target[:1], "cross")
    assert [(one.map.kind.name, one.map.layer) for one in found] == [("cross", 0), ("cross", 1)]
    assert attention_norms(model, pairs.source[:1], pairs.target[:1], "within") == []
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not any(tap.has_hooks for tap in hook_points(model).values())


def test_entropy_is_nothing_for_one_token_and_the_logarithm_of_how_many_alike() -> None:
    weights = torch.tensor([[1.0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [0, 0, 0, 0]])
    assert_close(entropy(weights), torch.tensor([0.0, 2.0, 1.0, 0.0]))
