"""Relevance is conserved from layer to layer, and a head with zero context vectors has none."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
import torch
from tiny import VARIANTS, VOCAB, Pairs, Variant, by_family, logits_of, tiny_config, tiny_model
from torch import Tensor
from torch.testing import assert_close

from heedful.inspection.measures.relevance import NoRule, RelevanceRules, head_shares, relevances
from heedful.models import MODELS
from heedful.nn.hooks import hook, hook_points
from heedful.nn.model import SequenceModel

CHANGES: list[dict[str, Any]] = [
    {"norm": "pre"},
    {"norm": "post"},
    {"norm": "pre", "activation": "gelu"},
    {"norm": "post", "activation": "swiglu", "tie": "none"},
    {"position": "rotary"},
    {"position": "alibi", "norm": "pre"},
    {"window": 3},
    {"heads": (2, 1), "decoder_heads": (1, 2), "cross_heads": (4, 2)},
]


class Propagated(NamedTuple):
    logit: float  # of the predicted token
    hook_points: dict[str, float]  # relevance at each hook point
    biases: dict[str, float]  # relevance of each bias


def propagate(model: SequenceModel, pairs: Pairs, row: int, time: int) -> Propagated:
    recorded: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> Tensor:
        recorded[name] = x if x.requires_grad else x.detach().requires_grad_()
        return recorded[name]

    with ExitStack() as stack:
        for name in hook_points(model):
            if not name.endswith("weights"):
                stack.enter_context(hook(model, name, keep))
        stack.enter_context(RelevanceRules())
        best = logits_of(model, pairs)[row, time].amax()
    biases = {name: parameter for name, parameter in model.named_parameters() if name.endswith("bias")}
    inputs = recorded | biases
    gradients = torch.autograd.grad(best, list(inputs.values()), materialize_grads=True)
    shared = {name: float((x * s).detach().sum()) for (name, x), s in zip(inputs.items(), gradients, strict=True)}
    return Propagated(float(best.detach()), {n: shared[n] for n in recorded}, {n: shared[n] for n in biases})


def made(family: str, changes: dict[str, Any]) -> SequenceModel:
    """Return a model in double precision with biases far from zero."""
    model: SequenceModel = MODELS[family](tiny_config(family, changes), VOCAB, VOCAB).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_relevance_is_conserved_in_every_layer(changes: dict[str, Any], pairs: Pairs) -> None:
    """The relevance of a layer's output is that of its input, its biases, and the cross-attention to the source."""
    model = made("transformer", changes)
    for row, time in ((0, 0), (0, 6), (1, 3), (2, 5)):
        logit, at, biases = propagate(model, pairs, row, time)
        biases_of = {
            stack: sum(
                share for name, share in biases.items() if name.startswith(stack) and ".cross_attention.memory." not in name
            )
            for stack in ("decoder_last", "decoder.1", "encoder.1", "encoder_last")
        }
        cross = [at[f"decoder.{layer}.cross_attention.context"] for layer in range(2)]
        memory_bias = sum(share for name, share in biases.items() if ".cross_attention.memory." in name)
        assert logit == pytest.approx(at["decoder.1.out"] + biases_of["decoder_last"], rel=1e-4, abs=1e-5)
        assert at["decoder.1.out"] == pytest.approx(at["decoder.0.out"] + cross[1] + biases_of["decoder.1"], rel=1e-4, abs=1e-5)
        assert sum(cross) == pytest.approx(at["encoder.1.out"] + memory_bias + biases_of["encoder_last"], rel=1e-4, abs=1e-5)
        assert at["encoder.1.out"] == pytest.approx(at["encoder.0.out"] + biases_of["encoder.1"], rel=1e-4, abs=1e-5)


def test_relevance_is_conserved_in_a_language_model(pairs: Pairs) -> None:
    model = made("gpt", {"position": "rotary", "norm": "pre"})
    logit, at, biases = propagate(model, pairs._replace(source=pairs.source[:, :0], mask=pairs.mask[:, :0]), 1, 4)
    biases_of = {
        stack: sum(share for name, share in biases.items() if name.startswith(stack)) for stack in ("last", "layers.1")
    }
    assert logit == pytest.approx(at["layers.1.out"] + biases_of["last"], rel=1e-4, abs=1e-5)
    assert at["layers.1.out"] == pytest.approx(at["layers.0.out"] + biases_of["layers.1"], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("variant", by_family([one for one in VARIANTS if one.family in ("transformer", "gpt")]), ids=str)
def test_rules_do_not_change_logits_and_every_prediction_counts_once(variant: Variant, pairs: Pairs) -> None:
    model = tiny_model(variant)
    plain = logits_of(model, pairs)
    with RelevanceRules():
        assert_close(logits_of(model, pairs), plain)
    real = torch.arange(7) < torch.tensor([7, 2, 4])[:, None]
    result = relevances(model, lambda: logits_of(model, pairs), real)
    selected = [one for name, one in result.items() if ".reading." not in name]  # the last layer does not use all of the source
    assert selected and all(float(one.sum()) == pytest.approx(13.0, rel=1e-4) for one in selected)


def test_a_head_with_zero_values_has_no_relevance(pairs: Pairs) -> None:
    model = made("transformer", {"norm": "pre"})
    with torch.no_grad():
        linear = model.get_submodule("decoder.0.self_attention.project")
        for parameter in linear.parameters():
            parameter[40:48] = 0.0  # the values of head 1: queries, keys and values are 16 rows each, a head is 8
    result = relevances(model, lambda: logits_of(model, pairs), torch.ones_like(pairs.target, dtype=torch.bool))
    assert result["decoder.0.self_attention.weights"].tolist() == pytest.approx([21.0, 0.0])  # all relevance passes head 0


def test_blocks_of_a_row_are_summed() -> None:
    relevance = torch.tensor([1.0, -3.0, 2.0, 2.0, 1.0, 1.0, 0.0, 0.0]).view(4, 2, 1, 1)  # two rows of two blocks, two heads
    assert_close(head_shares(relevance, 2), torch.tensor([[0.75, 0.25], [0.5, 0.5]]))


@pytest.mark.parametrize("family", ["bahdanau", "luong", "gnmt", "convs2s"])
def test_other_families_have_no_rule(family: str, pairs: Pairs) -> None:
    model = tiny_model(Variant(family, ()))
    with pytest.raises(NoRule, match="no rule for"):
        relevances(model, lambda: logits_of(model, pairs), torch.ones_like(pairs.target, dtype=torch.bool))
