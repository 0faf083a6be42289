"""Rollout: the product of layers with residual connections."""

from __future__ import annotations

import pytest
import torch
from tiny import VARIANTS, Pairs, Variant, by_family, forward_of, tiny_model
from torch.testing import assert_close

from heedful.inspection.measures.attention_maps import attention_maps
from heedful.inspection.measures.rollout import above_attention, rollout
from heedful.nn.hooks import record

THREE = Variant("transformer", (("layers", 3), ("decoder_layers", 3)))


@pytest.mark.parametrize("variant", by_family(VARIANTS), ids=str)
def test_rows_sum_to_one_in_every_family(variant: Variant, pairs: Pairs) -> None:
    maps = attention_maps(tiny_model(variant), forward_of(pairs.source[:1], pairs.target[:1]))
    result = rollout(maps)
    kinds = {one.kind.name for one in maps} & {"encoder", "decoder", "within"}
    if dict(variant.changes).get("reach", "full") == "full":
        assert {one.kind.name for one in result} >= kinds
    for one in result:
        assert one.weights.shape == (1, *next(same for same in maps if same.name == one.name).weights.shape[1:])
        assert_close(one.weights.sum(-1), torch.ones_like(one.weights[..., 0]))


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_rollout_of_three_layers_is_their_product(kind: str, pairs: Pairs) -> None:
    maps = attention_maps(tiny_model(THREE), forward_of(pairs.source[:1], pairs.target[:1]))
    first, second, third = (one.weights for one in maps if one.kind.name == kind)
    time = first.shape[-1]
    flow = torch.eye(time)
    for weights in (first, second, third):
        flow = (0.5 * weights.mean(0) + 0.5 * torch.eye(time)) @ flow
    top = [one for one in rollout(maps) if one.kind.name == kind][-1]
    assert top.layer == 2
    assert_close(top.weights[0], flow)


def test_source_and_target_in_one_sequence_are_rolled_out_together(pairs: Pairs) -> None:
    model = tiny_model(Variant("gpt", (("position", "rotary"), ("norm", "pre"), ("reach", "full"))))
    source, target = pairs.source[:1], pairs.target[:1]
    joined = torch.cat((source, target), dim=1)
    with torch.inference_mode(), record(model, "layers.*.self_attention.weights") as recorded:
        model.step(joined, model.start(joined[:, :0], None, room=0))
    flow = torch.eye(13)
    for weights in recorded.values():
        flow = (0.5 * weights[0].mean(0) + 0.5 * torch.eye(13)) @ flow
    result = {(one.kind.name, one.layer): one.weights[0] for one in rollout(attention_maps(model, forward_of(source, target)))}
    assert_close(result["within", 1], flow[6:])
    assert_close(result["reading", 1], flow[:6, :6])


def test_there_is_no_rollout_through_a_layer_without_attention(pairs: Pairs) -> None:
    layers = ("self-attention", "lstm", "self-attention")
    model = tiny_model(Variant("mixed", (("encoder", layers), ("decoder", layers[:1]))))
    maps = attention_maps(model, forward_of(pairs.source[:1], pairs.target[:1]))
    assert [(one.kind.name, one.layer) for one in maps if one.kind.name == "encoder"] == [("encoder", 0), ("encoder", 2)]
    result = rollout(above_attention(model, maps))
    assert [(one.kind.name, one.layer) for one in result] == [("encoder", 0), ("decoder", 0)]


def test_cross_attention_has_no_rollout(pairs: Pairs) -> None:
    maps = attention_maps(tiny_model(THREE), forward_of(pairs.source[:1], pairs.target[:1]), "cross")
    assert len(maps) == 3 and rollout(maps) == []
