"""Importance of heads by gate gradients and by ablation. The sources are padded."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from tiny import START, VARIANTS, VOCAB, WORDS, Pairs, Variant, by_family, logits_of, tiny_config, tiny_model
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.inspection.measures.importance import ablations, gate_gradients, within_layer
from heedful.models import MODELS
from heedful.nn.hooks import hook, record
from heedful.nn.model import SequenceModel

TRANSFORMER = Variant("transformer", (("norm", "pre"),))


def loss_function_of(model: SequenceModel, pairs: Pairs) -> Callable[[], Tensor]:
    """-log p of each target."""

    def surprise() -> Tensor:
        logits = logits_of(model, pairs)[:, :-1]  # (rows, time - 1, vocab)
        return functional.cross_entropy(logits.transpose(1, 2), pairs.target[:, 1:], reduction="none").sum(-1)

    return surprise


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_gradient_is_that_of_a_gate_per_sentence(norm: str, pairs: Pairs) -> None:
    """Reference: finite differences per sentence and head, in double precision."""
    model = fresh(Variant("transformer", (("norm", norm),))).double()
    result = gate_gradients(model, loss_function_of(model, pairs))
    step, checked = 1e-5, 0
    for name, gradients in result.items():
        for head in range(len(gradients)):
            expected = 0.0
            for row in range(3):
                one = Pairs(*(tensor[row : row + 1] for tensor in pairs))
                up, down = (gated(model, one, name, head, 1 + change) for change in (step, -step))
                expected += abs(up - down) / (2 * step)
            assert float(gradients[head]) == pytest.approx(expected, rel=1e-5)
            checked += 1
    assert checked == 12


def gated(model: SequenceModel, pairs: Pairs, name: str, head: int, gate: float) -> float:
    """Return the loss with another value of one head's gate."""

    def scale_head(_: str, context: Tensor) -> Tensor:
        scale = torch.ones(context.shape[1], 1, 1, dtype=context.dtype)
        scale[head] = gate
        return context * scale

    with torch.no_grad(), hook(model, f"{name.removesuffix('weights')}context", scale_head):
        return float(loss_function_of(model, pairs)().sum())


def fresh(variant: Variant) -> SequenceModel:
    """Return a new model."""
    model: SequenceModel = MODELS[variant.family](tiny_config(variant.family, dict(variant.changes)), VOCAB, VOCAB).eval()
    return model


def test_the_gradient_is_context_times_its_gradient(pairs: Pairs) -> None:
    model = tiny_model(TRANSFORMER)
    name = "decoder.1.cross_attention.context"
    recorded: list[Tensor] = []

    def keep(_: str, context: Tensor) -> Tensor:
        recorded.append(context)
        return context

    with hook(model, name, keep):
        loss = loss_function_of(model, pairs)().sum()
    (gradient,) = torch.autograd.grad(loss, recorded)
    expected = (recorded[0] * gradient).sum((-2, -1)).abs().sum(0)  # (heads,)
    assert_close(gate_gradients(model, loss_function_of(model, pairs))["decoder.1.cross_attention.weights"], expected.detach())


def test_ablation_is_the_loss_without_the_head_less_the_loss_with_it(pairs: Pairs) -> None:
    model = tiny_model(TRANSFORMER)
    result = ablations(model, loss_function_of(model, pairs))
    before = float(loss_function_of(model, pairs)().sum().detach())
    for name, increases in result.items():
        expected = [gated(model, pairs, name, head, 0.0) - before for head in range(2)]
        assert_close(increases, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    assert list(result) == [attention.weights for attention in model.attentions()]


def test_a_head_with_zero_values_has_no_importance(pairs: Pairs) -> None:
    model = fresh(TRANSFORMER)
    with torch.no_grad():
        linear = model.get_submodule("encoder.0.self_attention.project")
        for parameter in linear.parameters():
            parameter[32:40] = 0.0  # the values of head 0: queries, keys and values are 16 rows each, a head is 8
    name = "encoder.0.self_attention.weights"
    for importance in (gate_gradients, ablations):
        result = importance(model, loss_function_of(model, pairs))[name]
        assert float(result[0].abs()) < 1e-5 < float(result[1].abs())


@pytest.mark.parametrize("variant", by_family(VARIANTS), ids=str)
def test_every_family_returns_all_heads_and_is_unchanged(variant: Variant, pairs: Pairs) -> None:
    model = tiny_model(variant)
    attentions = model.attentions()
    if not attentions:
        pytest.skip("the model has no attention")
    before = logits_of(model, pairs)
    with torch.no_grad(), record(model, *(attention.context for attention in attentions)) as recorded:
        logits_of(model, pairs)
    heads = {attention.weights: recorded[attention.context].shape[1] for attention in attentions}
    gradients = gate_gradients(model, loss_function_of(model, pairs))
    assert {name: len(one) for name, one in gradients.items()} == heads
    last = len(getattr(model, "layers", [])) - 1
    unused = f"layers.{last}.reading.weights"  # of the source only keys and values are used, not the output of the last layer
    assert all(bool((one > 0).all()) for name, one in gradients.items() if name != unused)
    assert torch.equal(before, logits_of(model, pairs)) and not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_within_a_layer_squares_sum_to_one() -> None:
    assert_close(within_layer(torch.tensor([3.0, 4.0])), torch.tensor([0.6, 0.8]))
    assert torch.equal(within_layer(torch.zeros(3)), torch.zeros(3))


def test_after_training_both_rank_heads_alike() -> None:
    """After training on copying, Spearman's correlation of the two is above 0.5."""
    model = fresh(Variant("transformer", (("norm", "pre"), ("heads", 4), ("layers", 1)))).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(200):
        source = torch.randint(WORDS.start, WORDS.stop, (16, 5))
        pairs = Pairs(source, torch.ones_like(source, dtype=torch.bool), functional.pad(source, (1, 0), value=START))
        loss = loss_function_of(model, pairs)().sum() / source.numel()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    assert float(loss.detach()) < 1.0 < math.log(len(WORDS))
    gradients, increases = (
        torch.cat(list(f(model, loss_function_of(model, pairs)).values())) for f in (gate_gradients, ablations)
    )
    ranks = torch.stack([one.argsort().argsort().float() for one in (gradients, increases)])
    assert ranks.shape == (2, 12)
    assert float(torch.corrcoef(ranks)[0, 1]) > 0.5
