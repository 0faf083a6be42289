"""Dropout keeps elements with the right probability and is the identity in eval mode."""

from __future__ import annotations

import math

import pytest
import torch

from heedful.nn.dropout import Dropout, keep_mask

RATES = [0.1, 0.3, 0.5, 0.75, 0.9]


@pytest.mark.parametrize("rate", RATES)
def test_each_element_is_dropped_with_the_given_probability(rate: float) -> None:
    count = 400_001
    kept = float((keep_mask(torch.ones(count), rate) != 0).float().mean())
    assert abs(kept - (1 - rate)) < 4 * math.sqrt(rate * (1 - rate) / count)


@pytest.mark.parametrize("rate", RATES)
def test_kept_elements_are_scaled_to_keep_the_expectation(rate: float) -> None:
    mask = keep_mask(torch.ones(10_000), rate)
    assert sorted(set(mask.tolist())) == pytest.approx([0.0, 1 / (1 - rate)])


def test_neighboring_elements_are_independent() -> None:
    """Four elements share a draw: each of the 16 patterns is equally frequent."""
    groups = (keep_mask(torch.ones(100_000, 4), 0.5) != 0).long() @ torch.tensor([1, 2, 4, 8])  # (100_000,)
    counts = torch.bincount(groups, minlength=16)
    expected = 100_000 / 16
    assert ((counts - expected).abs() < 5 * math.sqrt(expected)).all()


@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (5, 7), (2, 3, 5), (4, 4)])
def test_any_shape_is_supported(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    out = Dropout(0.5)(x)
    assert out.shape == x.shape
    assert ((out == 0) | torch.isclose(out, 2 * x)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_dtype_is_kept(dtype: torch.dtype) -> None:
    assert Dropout(0.5)(torch.ones(9, dtype=dtype)).dtype == dtype


def test_equal_seeds_give_equal_masks() -> None:
    def sample(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return Dropout(0.5)(torch.ones(100))

    assert torch.equal(sample(3), sample(3))
    assert not torch.equal(sample(3), sample(4))


def test_two_passes_differ() -> None:
    dropout = Dropout(0.5)
    assert not torch.equal(dropout(torch.ones(100)), dropout(torch.ones(100)))


def test_the_gradient_uses_the_same_mask() -> None:
    x = torch.ones(100, requires_grad=True)
    out = Dropout(0.5)(x)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient, out.detach())


@pytest.mark.parametrize("dropout", [Dropout(0.5).eval(), Dropout(0.0)], ids=["eval", "rate 0"])
def test_eval_mode_and_rate_zero_are_the_identity(dropout: Dropout) -> None:
    x = torch.randn(5)
    assert dropout(x) is x
