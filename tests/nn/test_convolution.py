"""Convolutions equal torch's own, and chunks equal the whole sequence."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.nn.convolution import Convolution, with_weight_norm
from heedful.nn.linear import linear
from heedful.nn.pack_left import pack_left_order

WINDOWS = [(1, 1), (2, 1), (3, 1), (3, 2), (4, 3)]  # kernel, dilation
ROWS, TIME, INPUTS, OUTPUTS = 2, 9, 5, 4


def make(kernel: int, dilation: int) -> tuple[Convolution, Tensor, Tensor]:
    """A convolution, its weight in torch's layout (outputs, inputs, kernel), and an input."""
    convolution = Convolution(INPUTS, OUTPUTS, kernel, dilation)
    torch.nn.init.normal_(convolution.map.bias)
    weight = convolution.map.weight.detach().view(OUTPUTS, kernel, INPUTS).transpose(1, 2)
    return convolution, weight, torch.randn(ROWS, TIME, INPUTS)


def torchs(x: Tensor, weight: Tensor, convolution: Convolution, before: int) -> Tensor:
    padded = functional.pad(x.transpose(1, 2), (before, convolution.reach - before))
    return functional.conv1d(padded, weight, convolution.map.bias, dilation=convolution.dilation).transpose(1, 2)


@pytest.mark.parametrize(("kernel", "dilation"), WINDOWS)
def test_centered_and_causal_equal_torchs_convolution(kernel: int, dilation: int) -> None:
    convolution, weight, x = make(kernel, dilation)
    assert_close(convolution.centered(x), torchs(x, weight, convolution, convolution.reach // 2))
    assert_close(
        convolution.causal(x, convolution.initial_state(ROWS, x), None)[0], torchs(x, weight, convolution, convolution.reach)
    )


@pytest.mark.parametrize("chunk", [1, 2, 4])
@pytest.mark.parametrize(("kernel", "dilation"), WINDOWS)
def test_chunks_equal_the_whole_sequence(kernel: int, dilation: int, chunk: int) -> None:
    convolution, _, x = make(kernel, dilation)
    row_state, outputs = convolution.initial_state(ROWS, x), []
    for part in torch.split(x, chunk, dim=1):
        out, row_state = convolution.causal(part, row_state, None)
        outputs.append(out)
    assert row_state.shape == (ROWS, (kernel - 1) * dilation, INPUTS)
    assert_close(torch.cat(outputs, dim=1), convolution.causal(x, convolution.initial_state(ROWS, x), None)[0])


@pytest.mark.parametrize(("kernel", "dilation"), WINDOWS)
def test_padding_does_not_enter_the_state(kernel: int, dilation: int) -> None:
    convolution, _, x = make(kernel, dilation)
    count = torch.tensor([6, 2])
    _, row_state = convolution.causal(x, convolution.initial_state(ROWS, x), count)
    for row, real in enumerate(count.tolist()):
        _, alone = convolution.causal(x[row : row + 1, :real], convolution.initial_state(1, x), None)
        assert torch.equal(row_state[row], alone[0])


def test_real_tokens_are_moved_to_the_front_in_their_order_and_back() -> None:
    mask = torch.tensor([[0, 1, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
    tokens = torch.arange(15).view(3, 5)
    packed = pack_left_order(mask)
    moved = tokens.take_along_dim(packed.order, 1)
    assert moved[0, :3].tolist() == [1, 3, 4]
    assert moved[1].tolist() == [5, 6, 7, 8, 9]
    assert packed.real.tolist() == [3, 5, 0]
    assert torch.equal(moved.take_along_dim(packed.back, 1), tokens)


def test_weight_norm_has_the_given_initial_deviation_and_a_gain_per_output() -> None:
    layer = with_weight_norm(linear(400, 50), std=0.3)
    before = layer.weight.detach().clone()
    assert float(before.std()) == pytest.approx(0.3, rel=0.02)
    parts = dict(layer.named_parameters())
    with torch.no_grad():
        parts["parametrizations.weight.original1"].mul_(7.0)  # a direction, whose length does not matter
        parts["parametrizations.weight.original0"][3].mul_(2.0)  # a gain
    factors = torch.ones(50, 1)
    factors[3] = 2.0
    assert_close(layer.weight, before * factors)
