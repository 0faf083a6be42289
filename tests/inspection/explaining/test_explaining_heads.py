"""A head computed again: every stage is the model's, whatever family and position scheme it has."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tiny import VARIANTS, Pairs, Variant, tiny_model
from torch import nn
from torch.testing import assert_close

from heedful.errors import ConfigError
from heedful.inspection.attention_maps import attention_maps, attentions, inference_context
from heedful.inspection.explaining.attention_stages import View, head_stages, scored_stages
from heedful.inspection.explaining.heads import HeadTrace, head_of, turn
from heedful.inspection.explaining.recording import RecordedAttention, TokenPair, record_attention
from heedful.inspection.explaining.recurrent import Scored, scored
from heedful.inspection.explaining.stages import Check
from heedful.nn.attention import SelfAttention
from heedful.nn.gates import add_gates
from heedful.nn.positions import PositionSize, Rotary
from heedful.nn.scores import SourceAttention

PLAIN = Variant("transformer", (("position", "sinusoidal"), ("norm", "pre")))
SOME = [one for one in VARIANTS if not {("norm", "post"), ("window", 0), ("scale_embeddings", False)} & set(one.changes)]


def looked(variant: Variant, pairs: Pairs, tap: str) -> list[HeadTrace | Scored]:
    model = tiny_model(variant)
    heard = record_attention(model, TokenPair(pairs.source[:1], pairs.target[:1]), tap)
    if isinstance(heard.owner, SourceAttention):
        return [scored(heard)]
    return [head_of(heard, head) for head in range(heard.weights.shape[1])]


def checks_of(one: HeadTrace | Scored) -> list[Check]:
    return [check for stage in one.checks.values() for check in stage]


@pytest.mark.parametrize("variant", SOME, ids=str)
def test_every_stage_equals_the_models(variant: Variant, pairs: Pairs) -> None:
    """Of every layer that looks at tokens, every head; a layer that looks at summaries refuses."""
    model, refused = tiny_model(variant), "reach" in dict(variant.changes) and dict(variant.changes)["reach"] != "full"
    for tap in attentions(model):
        if refused:
            with pytest.raises(ConfigError, match="expected a layer with reach 'full'"):
                looked(variant, pairs, tap)
            continue
        for one in looked(variant, pairs, tap):
            found = checks_of(one)
            assert len(found) >= 2
            assert [check for check in found if not check.holds] == []
            assert max(check.size for check in found) > 1e-3  # of something, not of nothing


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_weights_are_those_of_the_map(kind: str, pairs: Pairs) -> None:
    model = tiny_model(PLAIN)
    for one in attention_maps(model, pairs.source[:1], pairs.target[:1], kind):
        again = [head.weights.float() for head in looked(PLAIN, pairs, one.name)]
        assert_close(torch.stack(again), one.weights.detach(), atol=1e-6, rtol=0)


def with_doubled_scores(heard: RecordedAttention) -> RecordedAttention:
    query, *rest = heard.looking[-1][0]
    return heard._replace(looking=[((query * 2, *rest), None)])


def with_other_weights(heard: RecordedAttention) -> RecordedAttention:
    return heard._replace(weights=heard.weights.flip(-1))


def with_other_findings(heard: RecordedAttention) -> RecordedAttention:
    return heard._replace(found=heard.found + 1e-4)


@pytest.mark.parametrize("spoil", [with_doubled_scores, with_other_weights, with_other_findings])
def test_a_model_that_computes_something_else_is_found_out(
    spoil: Callable[[RecordedAttention], RecordedAttention], pairs: Pairs
) -> None:
    heard = record_attention(
        tiny_model(PLAIN), TokenPair(pairs.source[:1], pairs.target[:1]), "decoder.0.cross_attention.weights"
    )
    assert all(check.holds for check in checks_of(head_of(heard, 1)))
    assert not all(check.holds for check in checks_of(head_of(spoil(heard), 1)))


def test_listening_leaves_nothing_behind_and_changes_nothing(pairs: Pairs) -> None:
    model, source, target = tiny_model(PLAIN), pairs.source[:1], pairs.target[:1]
    with inference_context(model):
        before = model.step(target, model.start(source, None, room=0)).hidden
        record_attention(model, TokenPair(source, target), "decoder.1.self_attention.weights")
        assert torch.equal(before, model.step(target, model.start(source, None, room=0)).hidden)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_share_is_what_is_missing_when_the_head_is_silent(pairs: Pairs) -> None:
    """Zeroing what one head found takes exactly its share from the layer's output."""
    heard = record_attention(
        tiny_model(PLAIN), TokenPair(pairs.source[:1], pairs.target[:1]), "encoder.0.self_attention.weights"
    )
    head = head_of(heard, 1)
    assert head.shares is not None and isinstance(heard.owner, SelfAttention)
    found = heard.found.clone()
    with torch.no_grad():
        whole = heard.owner.out(found.transpose(1, 2).flatten(-2))
        found[:, 1] = 0
        without = heard.owner.out(found.transpose(1, 2).flatten(-2))
    assert_close(head.shares[1].float(), (whole - without)[0], atol=1e-5, rtol=0)


def test_gates_are_part_of_what_the_layer_makes_of_it(pairs: Pairs) -> None:
    model = tiny_model.__wrapped__(PLAIN)  # one of its own, which may be changed
    add_gates(model)
    for name, parameter in model.named_parameters():
        if name.endswith("log_a"):
            nn.init.constant_(parameter, -0.5)
    heard = record_attention(model, TokenPair(pairs.source[:1], pairs.target[:1]), "decoder.0.cross_attention.weights")
    assert all(check.holds for check in checks_of(head_of(heard, 0)))


def test_turning_by_complex_numbers_is_the_rotary_scheme() -> None:
    scheme = Rotary(PositionSize(dim=16, heads=2, head_dim=8, limit=0, clip=0, reads_ahead=False))
    x = torch.randn(5, 8)
    assert_close(turn(x.double(), first=3).float(), scheme.rotate(x[None, None], torch.arange(3, 8)[None])[0, 0])


def test_stages_show_the_rows_of_the_chosen_query(pairs: Pairs) -> None:
    (head, *_) = looked(PLAIN, pairs, "decoder.0.self_attention.weights")
    assert isinstance(head, HeadTrace)
    words = [f"w{i}" for i in range(7)]
    stages = {one.title: one for one in head_stages(head, View(words, words, at=2), number=0)}
    assert list(stages) == [
        "What comes in",
        "Query, keys and values",
        "Scores",
        "Scale",
        "Mask",
        "Softmax",
        "Weighted sum",
        "What the layer makes of it",
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


def test_a_look_by_another_score_has_its_own_formula(pairs: Pairs) -> None:
    seen = set()
    for score in ("dot", "general", "concat"):
        variant = Variant("luong", (("score", score), ("scope", "local-p"), ("radius", 2)))
        (tap,) = attentions(tiny_model(variant))
        (one,) = looked(variant, pairs, tap)
        assert isinstance(one, Scored) and one.center is not None
        stages = scored_stages(one, View([f"t{i}" for i in range(7)], [f"s{i}" for i in range(6)], at=1))
        assert [stage.title for stage in stages][1:3] == ["Scores", "Scope"]
        seen.add(stages[1].formula)
    assert len(seen) == 3
