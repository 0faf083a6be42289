"""Norms and feed-forward layers equal their formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.blocks import ACTIVATIONS, FEED_FORWARDS, NORMS, FeedForward, PostNorm, PreNorm, SwiGLU


def test_layer_norm_of_one_two_three_four() -> None:
    normed = PostNorm(4, dropout=0.0)(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.zeros_like)
    assert_close(normed, torch.tensor([[-1.3416, -0.4472, 0.4472, 1.3416]]), atol=1e-4, rtol=0)


def test_layer_norm_is_invariant_to_scale_and_offset() -> None:
    norm, x = PreNorm(16, dropout=0.0).norm, torch.randn(3, 16)
    assert_close(norm(7 * x + 3), norm(x), atol=1e-4, rtol=0)


def test_pre_norm_around_a_zero_function_is_the_identity() -> None:
    x = torch.randn(2, 3, 16)
    assert torch.equal(PreNorm(16, dropout=0.1)(x, torch.zeros_like), x)


def test_norm_orders_equal_their_formulas() -> None:
    x = torch.randn(2, 3, 16)
    post, pre = PostNorm(16, dropout=0.0), PreNorm(16, dropout=0.0)
    assert_close(post(x, torch.sin), post.norm(x + x.sin()))
    assert_close(pre(x, torch.sin), x + pre.norm(x).sin())


@pytest.mark.parametrize("name", NORMS)
def test_dropout_applies_to_the_branch_only(name: str) -> None:
    residual = NORMS[name](1000, dropout=0.5)
    added: list[Tensor] = []
    residual.dropout.register_forward_hook(lambda module, inputs, out: added.append(out))
    residual(torch.randn(1, 1000), torch.ones_like)
    assert sorted(set(added[0].flatten().tolist())) == [0.0, 2.0]


@pytest.mark.parametrize(("x", "expected"), [(1.0, 0.8413), (-1.0, -0.1587), (0.0, 0.0)])
def test_gelu_is_the_exact_one(x: float, expected: float) -> None:
    assert float(ACTIVATIONS["gelu"](torch.tensor(x))) == pytest.approx(expected, abs=5e-5)


def test_feed_forward_equals_its_formula() -> None:
    block, x = FeedForward(6, 10, "relu", dropout=0.0), torch.randn(2, 3, 6)
    hidden = (x @ block.rise.weight.T + block.rise.bias).clamp(min=0)
    assert_close(block(x), hidden @ block.fall.weight.T + block.fall.bias)


def test_swiglu_equals_its_formula() -> None:
    block, x = SwiGLU(6, 10, "swiglu", dropout=0.0), torch.randn(2, 3, 6)
    gate, value = (x @ weight.T for weight in block.rise.weight.chunk(2))
    assert_close(block(x), (gate * gate.sigmoid() * value) @ block.fall.weight.T)


@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_every_position_is_computed_independently(name: str) -> None:
    block, x = FEED_FORWARDS[name](6, 10, name, dropout=0.0), torch.randn(2, 3, 6)
    assert_close(block(x)[:, 1], block(x[:, 1]))
