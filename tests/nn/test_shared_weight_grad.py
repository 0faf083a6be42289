"""A map that is repeated along a walk gives what it would give by itself, and all its gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.shared_weight_grad import shared_weight

TOKENS, ROWS, INPUTS, OUTPUTS = 4, 3, 5, 6


def walked(weight: Tensor, bias: Tensor, x: Tensor, *, plainly: bool) -> Tensor:
    """A walk that depends on all that came before it: (tokens, rows, outputs)."""
    multiply, state, said = shared_weight(weight), torch.zeros(ROWS, OUTPUTS, dtype=x.dtype), []
    for token in x:
        added = bias + state
        state = (token @ weight.t() + added if plainly else multiply(token, added)).tanh()
        said.append(state)
    return torch.stack(said)


@pytest.fixture
def leaves() -> tuple[Tensor, Tensor, Tensor]:
    shapes = (OUTPUTS, INPUTS), (OUTPUTS,), (TOKENS, ROWS, INPUTS)
    weight, bias, x = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    return weight, bias, x


def test_values_and_gradients_are_those_of_the_plain_product(leaves: tuple[Tensor, Tensor, Tensor]) -> None:
    ours, plain = (walked(*leaves, plainly=plainly) for plainly in (False, True))
    assert_close(ours, plain)
    pull = torch.randn_like(plain)
    assert_close(torch.autograd.grad(ours, leaves, pull), torch.autograd.grad(plain, leaves, pull))


def test_passes_over_one_graph_do_not_mix(leaves: tuple[Tensor, Tensor, Tensor]) -> None:
    """First without the weight, then of the second token alone, then of all."""
    weight, _, x = leaves
    ours, plain = (walked(*leaves, plainly=plainly) for plainly in (False, True))
    for of, by in (((x,), slice(None)), ((weight, x), slice(1, 2)), ((weight,), slice(None))):
        found, expected = (torch.autograd.grad(said[by].sum(), of, retain_graph=True) for said in (ours, plain))
        assert_close(found, expected)


def test_a_bias_alone_may_be_added(leaves: tuple[Tensor, Tensor, Tensor]) -> None:
    weight, bias, x = leaves
    multiply = shared_weight(weight)
    ours = torch.stack([multiply(token, bias) for token in x]).square().sum()
    plain = (x @ weight.t() + bias).square().sum()
    assert_close(torch.autograd.grad(ours, leaves), torch.autograd.grad(plain, leaves))


def test_what_nobody_used_has_no_gradient(leaves: tuple[Tensor, Tensor, Tensor]) -> None:
    weight, bias, x = leaves
    shared_weight(weight)
    assert torch.autograd.grad((x.sum() + bias.sum()), leaves, allow_unused=True)[0] is None


def test_under_autocast_the_weight_is_cast_once_and_keeps_a_gradient_of_its_own_type() -> None:
    weight = torch.randn(OUTPUTS, INPUTS, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        multiply = shared_weight(weight)
        said = [multiply(torch.randn(ROWS, INPUTS), torch.zeros(OUTPUTS)) for _ in range(TOKENS)]
    assert all(one.dtype is torch.bfloat16 for one in said)
    torch.stack(said).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None and weight.grad.dtype is torch.float32
    with torch.no_grad():
        assert shared_weight(weight)(torch.zeros(ROWS, INPUTS), torch.zeros(OUTPUTS)).requires_grad is False
