"""Attention maps of every family, equal to the weights that the model computes."""

from __future__ import annotations

import math

import pytest
import torch
from tiny import SPEAKING, VARIANTS, Pairs, Variant, logits_of, tiny_model
from torch import nn
from torch.testing import assert_close

from heedful.inspection.measures.attention_maps import (
    attention_maps,
    attentions,
    copy_with_shared_weights,
    inference_context,
    kind_of,
    layer_of,
)
from heedful.nn.attention import split_heads
from heedful.nn.hooks import hook, hook_points


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_hook_point_of_weights_has_a_known_kind_and_weights_of_shape_queries_by_keys(
    variant: Variant, pairs: Pairs
) -> None:
    model, source, target = tiny_model(variant), pairs.source[:1], pairs.target[:1]
    points = [name for name in hook_points(model) if name.endswith(".weights")]
    assert points == list(attentions(model))
    maps = attention_maps(model, source, target)
    assert [one.name for one in maps] == points
    sizes = {"source": 6, "target": 7, "both": 13}
    if (
        dict(variant.changes).get("reach", "full") == "full"
    ):  # local attention has blocks, compressed attention summaries as keys
        assert all(one.weights.shape[1:] == (sizes[one.kind.queries], sizes[one.kind.keys]) for one in maps)


@pytest.mark.parametrize("family", SPEAKING)
def test_recording_weights_does_not_change_logits(family: str, pairs: Pairs) -> None:
    model = tiny_model(Variant(family, ()))
    with inference_context(model):
        before = logits_of(model, pairs)
        attention_maps(model, pairs.source[:1], pairs.target[:1])
        assert torch.equal(before, logits_of(model, pairs))


def test_every_module_keeps_its_training_mode() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Dropout().eval(), nn.Dropout()).eval()
    model[2].train()
    with inference_context(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model] == [False, False, True] and not model.training


@pytest.mark.parametrize("family", SPEAKING)
def test_a_copy_with_shared_weights_returns_the_same_logits_and_calls_the_same_hooks(family: str, pairs: Pairs) -> None:
    model = tiny_model(Variant(family, ()))
    assert isinstance(model, nn.Module)
    with inference_context(model):
        before = logits_of(model, pairs)
        assert torch.equal(logits_of(copy_with_shared_weights(model), pairs), before)
        with hook(model, "*", lambda name, x: 2 * x):
            changed = logits_of(model, pairs)
            assert torch.equal(logits_of(copy_with_shared_weights(model), pairs), changed)
    assert not torch.equal(changed, before)
    copied = copy_with_shared_weights(model)
    assert all(shared is original for shared, original in zip(copied.parameters(), model.parameters(), strict=True))


def test_weights_of_the_first_layer_equal_the_formula(pairs: Pairs) -> None:
    """softmax(q k^T / sqrt(head_dim)), computed by hand from the embeddings and the projection."""
    model = tiny_model(Variant("transformer", (("position", "none"), ("norm", "post"))))
    source = pairs.source[:1]
    (first, *_) = attention_maps(model, source, pairs.target[:1], "encoder")
    with inference_context(model):
        x = model.embedding.target(source) * math.sqrt(16)
        query, key, _ = model.get_submodule("encoder.0.self_attention.project")(x).chunk(3, dim=-1)
        scores = split_heads(query, 2) @ split_heads(key, 2).transpose(-2, -1) / math.sqrt(8)
    assert_close(first.weights, scores.softmax(-1)[0])


def test_kinds_can_be_selected(pairs: Pairs) -> None:
    model = tiny_model(Variant("transformer", ()))
    layers = {
        kind: [one.layer for one in attention_maps(model, pairs.source[:1], pairs.target[:1], kind)]
        for kind in ("encoder", "decoder", "cross", "within")
    }
    assert layers == {"encoder": [0, 1], "decoder": [0, 1], "cross": [0, 1], "within": []}


def test_layer_and_kind_are_parsed_from_the_name() -> None:
    assert [layer_of(name) for name in ("decoder.12.cross_attention.weights", "decoder.bottom.cross_attention.weights")] == [
        12,
        0,
    ]
    assert kind_of("decoder.0.out") is None
