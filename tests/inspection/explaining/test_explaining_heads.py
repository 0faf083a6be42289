"""Recomputed heads: every stage matches the model, for all families and positional encodings."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tiny import VARIANTS, Pairs, Variant, by_family, forward_of, tiny_model
from torch import nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.inspection.explaining.attention_stages import QueryView, head_stages, source_attention_stages
from heedful.inspection.explaining.heads import HeadTrace, rotate, trace_head
from heedful.inspection.explaining.recording import RecordedAttention, record_attention
from heedful.inspection.explaining.source_attention import SourceAttentionTrace, trace_source_attention
from heedful.inspection.explaining.stages import Check
from heedful.inspection.measures.attention_maps import attention_maps
from heedful.nn.attention import SelfAttention
from heedful.nn.gates import add_gates
from heedful.nn.model import inference_context
from heedful.nn.positions import PositionSize, Rotary
from heedful.nn.scores import SourceAttention

PLAIN = Variant("transformer", (("position", "sinusoidal"), ("norm", "pre")))
SOME = [one for one in VARIANTS if not {("norm", "post"), ("window", 0), ("scale_embeddings", False)} & set(one.changes)]


def trace(variant: Variant, pairs: Pairs, hook_point: str) -> list[HeadTrace | SourceAttentionTrace]:
    model = tiny_model(variant)
    recorded = record_attention(model, forward_of(pairs.source[:1], pairs.target[:1]), hook_point)
    if isinstance(recorded.owner, SourceAttention):
        return [trace_source_attention(recorded)]
    return [trace_head(recorded, head) for head in range(recorded.weights.shape[1])]


def checks_of(one: HeadTrace | SourceAttentionTrace) -> list[Check]:
    return [check for stage in one.checks.values() for check in stage]


@pytest.mark.parametrize("variant", by_family(SOME), ids=str)
def test_every_stage_matches_the_model(variant: Variant, pairs: Pairs) -> None:
    """For every head of every layer that attends to tokens; a layer that attends to summaries raises an error."""
    model, unsupported = tiny_model(variant), dict(variant.changes).get("reach", "full") != "full"
    for hook_point in [attention.weights for attention in model.attentions()]:
        if unsupported:
            with pytest.raises(ConfigError, match="expected a layer with reach 'full'"):
                trace(variant, pairs, hook_point)
            continue
        if variant.family == "hran":
            with pytest.raises(ConfigError, match="depends on the states of other utterances"):
                trace(variant, pairs, hook_point)
            continue
        for one in trace(variant, pairs, hook_point):
            checks = checks_of(one)
            assert len(checks) >= 2
            assert [check for check in checks if not check.holds] == []
            assert max(check.size for check in checks) > 1e-3  # not all zeros


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_weights_equal_the_recorded_attention_map(kind: str, pairs: Pairs) -> None:
    model = tiny_model(PLAIN)
    for one in attention_maps(model, forward_of(pairs.source[:1], pairs.target[:1]), kind):
        recomputed = [head.weights.float() for head in trace(PLAIN, pairs, one.name)]
        assert_close(torch.stack(recomputed), one.weights.detach(), atol=1e-6, rtol=0)


def with_doubled_scores(recorded: RecordedAttention) -> RecordedAttention:
    query, *rest = recorded.core_calls[-1][0]
    return recorded._replace(core_calls=[((query * 2, *rest), None)])


def with_other_weights(recorded: RecordedAttention) -> RecordedAttention:
    return recorded._replace(weights=recorded.weights.flip(-1))


def with_other_context(recorded: RecordedAttention) -> RecordedAttention:
    return recorded._replace(context=recorded.context + 1e-4)


@pytest.mark.parametrize("alter", [with_doubled_scores, with_other_weights, with_other_context])
def test_checks_fail_when_recorded_values_are_altered(
    alter: Callable[[RecordedAttention], RecordedAttention], pairs: Pairs
) -> None:
    recorded = record_attention(
        tiny_model(PLAIN), forward_of(pairs.source[:1], pairs.target[:1]), "decoder.0.cross_attention.weights"
    )
    assert all(check.holds for check in checks_of(trace_head(recorded, 1)))
    assert not all(check.holds for check in checks_of(trace_head(alter(recorded), 1)))


def test_recording_removes_its_hooks_and_changes_no_output(pairs: Pairs) -> None:
    model, source, target = tiny_model(PLAIN), pairs.source[:1], pairs.target[:1]
    with inference_context(model):
        before = model.step(target, model.start(source, None, room=0)).hidden
        record_attention(model, forward_of(source, target), "decoder.1.self_attention.weights")
        assert torch.equal(before, model.step(target, model.start(source, None, room=0)).hidden)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_heads_contribution_equals_the_change_when_it_is_ablated(pairs: Pairs) -> None:
    """Zeroing a head's context removes exactly its contribution from the layer's output."""
    recorded = record_attention(
        tiny_model(PLAIN), forward_of(pairs.source[:1], pairs.target[:1]), "encoder.0.self_attention.weights"
    )
    head = trace_head(recorded, 1)
    assert head.contributions is not None and isinstance(recorded.owner, SelfAttention)
    context = recorded.context.clone()
    with torch.no_grad():
        complete = recorded.owner.out(context.transpose(1, 2).flatten(-2))
        context[:, 1] = 0
        without = recorded.owner.out(context.transpose(1, 2).flatten(-2))
    assert_close(head.contributions[1].float(), (complete - without)[0], atol=1e-5, rtol=0)


def test_head_gates_are_part_of_the_output_projection(pairs: Pairs) -> None:
    model = tiny_model.__wrapped__(PLAIN)  # not cached: it is modified
    add_gates(model)
    for name, parameter in model.named_parameters():
        if name.endswith("log_a"):
            nn.init.constant_(parameter, -0.5)
    recorded = record_attention(model, forward_of(pairs.source[:1], pairs.target[:1]), "decoder.0.cross_attention.weights")
    assert all(check.holds for check in checks_of(trace_head(recorded, 0)))


def test_rotation_by_complex_numbers_equals_rotary_positions() -> None:
    scheme = Rotary(PositionSize(dim=16, heads=2, head_dim=8, limit=0, clip=0, reads_ahead=False))
    x = torch.randn(5, 8)
    assert_close(rotate(x.double(), first=3).float(), scheme.rotate(x[None, None], torch.arange(3, 8)[None])[0, 0])


def test_stages_show_the_rows_of_the_chosen_query(pairs: Pairs) -> None:
    (head, *_) = trace(PLAIN, pairs, "decoder.0.self_attention.weights")
    assert isinstance(head, HeadTrace)
    words = [f"w{i}" for i in range(7)]
    stages = {one.title: one for one in head_stages(head, QueryView(words, words, query_index=2), number=0)}
    assert list(stages) == [
        "Input",
        "Query, keys and values",
        "Scores",
        "Scale",
        "Mask",
        "Softmax",
        "Weighted sum",
        "Output projection",
    ]
    shown = torch.tensor(stages["Softmax"].matrices[0].cells, dtype=torch.float64)[0]
    assert torch.equal(shown, head.weights[2]) and shown[3:].eq(0).all() and float(shown.sum()) == pytest.approx(1)
    masked = stages["Mask"].matrices[0].cells[0]
    assert list(masked[3:]) == [-math.inf] * 4
    (late,) = (one for one in stages["Softmax"].mistakes if "masking after" in one.what)
    row = late.matrices[0].cells[0]
    scaled = head.query[2] @ head.key.T / math.sqrt(8)
    assert float(row[-1] or 0) == pytest.approx(float(scaled.softmax(-1)[:3].sum()))
    norms = torch.tensor(stages["Weighted sum"].matrices[0].cells)
    assert_close(norms[:, 2], norms[:, 0] * norms[:, 1])


def test_each_score_function_has_its_own_formula(pairs: Pairs) -> None:
    formulas = set()
    for score in ("dot", "general", "concat"):
        variant = Variant("luong", (("score", score), ("scope", "local-p"), ("radius", 2)))
        (attention,) = tiny_model(variant).attentions()
        (one,) = trace(variant, pairs, attention.weights)
        assert isinstance(one, SourceAttentionTrace) and one.center is not None
        stages = source_attention_stages(
            one, QueryView([f"t{i}" for i in range(7)], [f"s{i}" for i in range(6)], query_index=1)
        )
        assert [stage.title for stage in stages][1:3] == ["Scores", "Local window"]
        formulas.add(stages[1].formula)
    assert len(formulas) == 3
