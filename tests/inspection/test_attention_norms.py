"""Attention norms: weighted value vectors sum to the context vectors, and projected ones to the output of the layer."""

from __future__ import annotations

import math

import pytest
import torch
from tiny import VARIANTS, Pairs, Variant, by_family, forward_of, tiny_model
from torch import Tensor
from torch.testing import assert_close

from heedful.inspection.measures.attention_maps import attention_maps
from heedful.inspection.measures.attention_norms import AttentionNorms, attention_norms, capture_inputs, entropy
from heedful.nn.hooks import hook_points, record
from heedful.nn.model import inference_context


def norms_of(variant: Variant, pairs: Pairs) -> list[AttentionNorms]:
    if not tiny_model(variant).attentions():
        pytest.skip("the model has no attention")
    return attention_norms(tiny_model(variant), forward_of(pairs.source[:1], pairs.target[:1]))


@pytest.mark.parametrize("variant", by_family(VARIANTS), ids=str)
def test_weights_times_value_vectors_are_the_context_vectors(variant: Variant, pairs: Pairs) -> None:
    results = norms_of(variant, pairs)
    plain = attention_maps(tiny_model(variant), forward_of(pairs.source[:1], pairs.target[:1]))
    assert [one.map.name for one in results] == [one.name for one in plain] and results
    for one, same in zip(results, plain, strict=True):
        assert torch.equal(one.map.weights, same.weights)
        assert_close((one.map.weights[..., None] * one.vectors).sum(2), one.context, atol=1e-5, rtol=0)


@pytest.mark.parametrize("variant", by_family(VARIANTS), ids=str)
def test_weighted_norms_equal_the_projection_of_one_head_and_token_alone(variant: Variant, pairs: Pairs) -> None:
    """Reference: the output projection of one head and token with zeros elsewhere, minus its bias."""
    model = tiny_model(variant)
    for attention, one in zip(model.attentions(), norms_of(variant, pairs), strict=True):
        heads, queries, keys = one.map.weights.shape
        out = attention.out
        scale = math.sqrt(6) if variant.family == "convs2s" else 1.0  # of the source's six tokens
        query, key, head = queries - 1, keys // 2, heads - 1
        share = one.map.weights[head, query, key] * one.vectors[head, min(query, one.vectors.shape[1] - 1), key] * scale
        if out is not None:
            alone = torch.zeros(heads * len(share))
            alone[head * len(share) : (head + 1) * len(share)] = share
            with inference_context(model):
                share = out(alone) - out(torch.zeros_like(alone))
        assert_close(one.weighted.weights[head, query, key], share.norm(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", by_family([one for one in VARIANTS if one.family in ("transformer", "convs2s")]), ids=str)
def test_projected_vectors_sum_to_the_output_of_the_layer(variant: Variant, pairs: Pairs) -> None:
    """Reference: the weight matrix split into heads."""
    model = tiny_model(variant)
    attentions = model.attentions()
    with inference_context(model), capture_inputs(attentions) as (_, projected), record(model, "*.context") as recorded:
        model.forced(pairs.source[:1], None, pairs.target[:1])
    for attention, one in zip(attentions, norms_of(variant, pairs), strict=True):
        assert attention.out is not None
        matrix: Tensor = attention.out.weight  # type: ignore[assignment]  # (dim, heads x size)
        inputs = projected[attention.name]  # (1, query, heads x size)
        size = one.vectors.shape[-1]
        by_head = matrix.detach().view(len(matrix), -1, size)  # (dim, heads, size)
        scale = inputs.norm() / recorded[attention.context].norm()
        shares = one.map.weights[..., None] * torch.einsum("hqks,dhs->hqkd", one.vectors * scale, by_head)
        assert_close(shares.sum((0, 2)), inputs[0] @ matrix.detach().T, atol=1e-4, rtol=1e-4)
        assert_close(one.weighted.weights, shares.norm(dim=-1).expand_as(one.weighted.weights), atol=1e-5, rtol=1e-4)


def test_without_output_projection_norms_are_those_of_the_values(pairs: Pairs) -> None:
    model = tiny_model(Variant("bahdanau", ()))
    (one,) = norms_of(Variant("bahdanau", ()), pairs)
    with inference_context(model):
        values = model.start(pairs.source[:1], None, room=0).memory["values"][0]
    assert_close(one.weighted.weights, one.map.weights * values.norm(dim=-1))


def test_kinds_can_be_selected_and_no_hook_remains(pairs: Pairs) -> None:
    model = tiny_model(Variant("transformer", ()))
    results = attention_norms(model, forward_of(pairs.source[:1], pairs.target[:1]), "cross")
    assert [(one.map.kind.name, one.map.layer) for one in results] == [("cross", 0), ("cross", 1)]
    assert attention_norms(model, forward_of(pairs.source[:1], pairs.target[:1]), "within") == []
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not any(point.has_hooks for point in hook_points(model).values())


def test_entropy_is_zero_for_one_token_and_log2_n_for_uniform_weights() -> None:
    weights = torch.tensor([[1.0, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0, 0], [0, 0, 0, 0]])
    assert_close(entropy(weights), torch.tensor([0.0, 2.0, 1.0, 0.0]))
