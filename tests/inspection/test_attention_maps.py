"""Attention maps of every family, equal to the weights that the model computes."""

from __future__ import annotations

import math

import pytest
import torch
from tiny import FAMILIES, VARIANTS, Pairs, Variant, by_family, forward_of, logits_of, tiny_model
from torch.testing import assert_close

from heedful.inspection.measures.attention_maps import attention_maps
from heedful.nn.attention import split_heads
from heedful.nn.model import inference_context


@pytest.mark.parametrize("variant", by_family(VARIANTS), ids=str)
def test_every_attention_of_a_model_has_a_map_of_queries_by_keys(variant: Variant, pairs: Pairs) -> None:
    model = tiny_model(variant)
    maps = attention_maps(model, forward_of(pairs.source[:1], pairs.target[:1]))
    assert [(one.name, one.kind, one.layer) for one in maps] == [
        (attention.weights, attention.kind, attention.layer) for attention in model.attentions()
    ]
    sizes = {"source": 6, "target": 7, "both": 13}
    if dict(variant.changes).get("reach", "full") == "full":  # local attention has blocks, compressed attention summaries
        assert all(one.weights.shape[1:] == (sizes[one.kind.queries], sizes[one.kind.keys]) for one in maps)


@pytest.mark.parametrize("family", FAMILIES)
def test_recording_weights_does_not_change_logits(family: str, pairs: Pairs) -> None:
    model = tiny_model(Variant(family, ()))
    with inference_context(model):
        before = logits_of(model, pairs)
        attention_maps(model, forward_of(pairs.source[:1], pairs.target[:1]))
        assert torch.equal(before, logits_of(model, pairs))


def test_weights_of_the_first_layer_equal_the_formula(pairs: Pairs) -> None:
    """softmax(q k^T / sqrt(head_dim)), computed by hand from the embeddings and the projection."""
    model = tiny_model(Variant("transformer", (("position", "none"), ("norm", "post"))))
    source = pairs.source[:1]
    (first, *_) = attention_maps(model, forward_of(source, pairs.target[:1]), "encoder")
    with inference_context(model):
        x = model.embedding.target(source) * math.sqrt(16)
        query, key, _ = model.get_submodule("encoder.0.self_attention.project")(x).chunk(3, dim=-1)
        scores = split_heads(query, 2) @ split_heads(key, 2).transpose(-2, -1) / math.sqrt(8)
    assert_close(first.weights, scores.softmax(-1)[0])


def test_kinds_can_be_selected(pairs: Pairs) -> None:
    model = tiny_model(Variant("transformer", ()))
    layers = {
        kind: [one.layer for one in attention_maps(model, forward_of(pairs.source[:1], pairs.target[:1]), kind)]
        for kind in ("encoder", "decoder", "cross", "within")
    }
    assert layers == {"encoder": [0, 1], "decoder": [0, 1], "cross": [0, 1], "within": []}
