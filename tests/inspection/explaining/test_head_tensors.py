"""The tensors of a head in full: every stage follows from them, for all families and positional encodings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import VARIANTS, Pairs, Variant, by_family, forward_of, tiny_model
from torch import Tensor
from torch.testing import assert_close

from heedful.inspection.explaining.head_tensors import head_tensors, source_attention_tensors
from heedful.inspection.explaining.heads import rotate, trace_head
from heedful.inspection.explaining.recording import record_attention
from heedful.inspection.explaining.source_attention import trace_source_attention
from heedful.nn.scores import SourceAttention

PLAIN = {("norm", "post"), ("window", 0), ("scale_embeddings", False)}  # changes that do not concern a head
SOME = [
    one
    for one in VARIANTS
    if one.family != "hran" and not PLAIN & set(one.changes) and dict(one.changes).get("reach", "full") == "full"
]  # hran attends to words and to turns, not to tokens
QUERY = 2


def tensors_of(variant: Variant, pairs: Pairs, hook_point: str) -> tuple[dict[str, Any], Tensor, Tensor]:
    """The tensors of the last head and the recorded weights and context of its query."""
    recorded = record_attention(tiny_model(variant), forward_of(pairs.source[:1], pairs.target[:1]), hook_point)
    head = recorded.weights.shape[1] - 1
    own = recorded.weights[0, head, QUERY].double(), recorded.context[0, head, QUERY].double()
    if isinstance(recorded.owner, SourceAttention):
        return source_attention_tensors(recorded, trace_source_attention(recorded), QUERY), *own
    return head_tensors(recorded, trace_head(recorded, head), head, QUERY), *own


def read(values: Any) -> Tensor:
    def finite(value: Any) -> Any:
        return [finite(one) for one in value] if isinstance(value, list) else -torch.inf if value is None else value

    return torch.tensor(finite(values), dtype=torch.double)


@pytest.mark.parametrize("variant", by_family(SOME), ids=str)
def test_every_stage_follows_from_the_tensors(variant: Variant, pairs: Pairs) -> None:
    hook_points = [attention.weights for attention in tiny_model(variant).attentions()]
    for hook_point in hook_points:
        found, weights, context = tensors_of(variant, pairs, hook_point)
        q, k, v = read(found["q"]), read(found["k"]), read(found["v"])
        for name, linear in found["projections"].items():
            given, projected = (found["x"], [found["q"]]) if name == "query" else (found["memory"], found[name[0]])
            ours = (read(given) @ read(linear["weight"]) + read(linear["bias"])).reshape(-1, len(q))
            if found["frequencies"] is not None and name != "value":
                ours = rotate(ours, first=found["position"] if name == "query" else len(k) - len(ours))
            assert_close(ours, read(projected)[-len(ours) :], atol=1e-6, rtol=0)
        scores = score(found, q, k)
        assert_close(scores, read(found["scores"]), atol=1e-6, rtol=0)
        masked = read(found["masked_scores"])
        if found["divisor"] is not None:
            scaled = scores / found["divisor"] + (0 if found["bias"] is None else read(found["bias"]))
            seen = masked > -torch.inf
            assert_close(scaled[seen], masked[seen], atol=1e-6, rtol=0)
        ours = masked.softmax(-1).nan_to_num(0.0) * (1 if found["gaussian"] is None else read(found["gaussian"]))
        assert_close(ours, weights, atol=1e-5, rtol=0)
        extra = 0 if found["position_context"] is None else read(found["position_context"])
        assert_close(ours @ v + extra, context, atol=1e-5, rtol=1e-5)
        if found["output_weight"] is not None:
            assert_close(context @ read(found["output_weight"]), read(found["contribution"]), atol=1e-5, rtol=1e-5)


def test_the_families_with_attention_are_among_those_checked() -> None:
    attending = {variant.family for variant in SOME if tiny_model(variant).attentions()}
    assert {"transformer", "gpt", "bahdanau", "luong", "gnmt", "deep_att", "convs2s"} <= attending


def score(found: dict[str, Any], q: Tensor, k: Tensor) -> Tensor:
    if found["score"] == "dot":
        return k @ q
    projected = q @ read(found["score_weight"])
    if found["score"] == "additive":
        return (projected + k).tanh() @ read(found["score_value"])
    return torch.cat((projected, projected.new_full((len(k) - len(projected),), -torch.inf)))  # positions without a weight
