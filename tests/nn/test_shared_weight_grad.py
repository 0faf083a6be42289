"""A linear layer with shared weight gradient equals the plain product in values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.shared_weight_grad import shared_weight

TOKENS, ROWS, INPUTS, OUTPUTS = 4, 3, 5, 6


def recurrence(weight: Tensor, bias: Tensor, x: Tensor, *, plain_product: bool) -> Tensor:
    """A recurrence in which each step depends on the previous one: (tokens, rows, outputs)."""
    multiply, state, outputs = shared_weight(weight), torch.zeros(ROWS, OUTPUTS, dtype=x.dtype), []
    for token in x:
        step_bias = bias + state
        state = (token @ weight.t() + step_bias if plain_product else multiply(token, step_bias)).tanh()
        outputs.append(state)
    return torch.stack(outputs)


@pytest.fixture
def leaves() -> tuple[Tensor, Tensor, Tensor]:
    shapes = (OUTPUTS, INPUTS), (OUTPUTS,), (TOKENS, ROWS, INPUTS)
    weight, bias, x = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    return weight, bias, x


def test_values_and_gradients_are_those_of_the_plain_product(leaves: tuple[Tensor, Tensor, Tensor]) -> None:
    ours, plain = (recurrence(*leaves, plain_product=plain_product) for plain_product in (False, True))
    assert_close(ours, plain)
    direction = torch.randn_like(plain)
    assert_close(torch.autograd.grad(ours, leaves, direction), torch.autograd.grad(plain, leaves, direction))


def test_backward_passes_over_one_graph_are_independent(leaves: tuple[Tensor, Tensor, Tensor]) -> None:
    """First without the weight, then from the second step alone, then from all."""
    weight, _, x = leaves
    ours, plain = (recurrence(*leaves, plain_product=plain_product) for plain_product in (False, True))
    for variables, steps in (((x,), slice(None)), ((weight, x), slice(1, 2)), ((weight,), slice(None))):
        result, expected = (torch.autograd.grad(out[steps].sum(), variables, retain_graph=True) for out in (ours, plain))
        assert_close(result, expected)


def test_the_bias_may_be_one_vector(leaves: tuple[Tensor, Tensor, Tensor]) -> None:
    weight, bias, x = leaves
    multiply = shared_weight(weight)
    ours = torch.stack([multiply(token, bias) for token in x]).square().sum()
    plain = (x @ weight.t() + bias).square().sum()
    assert_close(torch.autograd.grad(ours, leaves), torch.autograd.grad(plain, leaves))


def test_an_unused_weight_has_no_gradient(leaves: tuple[Tensor, Tensor, Tensor]) -> None:
    weight, bias, x = leaves
    shared_weight(weight)
    assert torch.autograd.grad((x.sum() + bias.sum()), leaves, allow_unused=True)[0] is None


def test_under_autocast_the_weight_is_cast_once_and_its_gradient_is_float32() -> None:
    weight = torch.randn(OUTPUTS, INPUTS, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        multiply = shared_weight(weight)
        outputs = [multiply(torch.randn(ROWS, INPUTS), torch.zeros(OUTPUTS)) for _ in range(TOKENS)]
    assert all(out.dtype is torch.bfloat16 for out in outputs)
    torch.stack(outputs).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None and weight.grad.dtype is torch.float32
    with torch.no_grad():
        assert shared_weight(weight)(torch.zeros(ROWS, INPUTS), torch.zeros(OUTPUTS)).requires_grad is False
