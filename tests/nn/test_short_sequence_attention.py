"""Attention of whole short sequences: the formulas are those of softmax, and kernels compute what the formulas say."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from heedful.nn import short_sequence_attention as module
from heedful.nn.attention import AttentionBias, attention_weights
from heedful.nn.short_sequence_attention import (
    fits_short_sequences,
    plain,
    plain_backward,
    short_sequence_attention,
    short_sequence_attention_backward,
)

KINDS = ("everything", "causal", "keys", "pairs")


class Case(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    causal: bool
    slope: Tensor  # of what comes out

    def to(self, device: str, dtype: torch.dtype) -> Case:
        query, key, value, slope = (part.to(device, dtype) for part in (self.query, self.key, self.value, self.slope))
        return Case(query, key, value, None if self.mask is None else self.mask.to(device), self.causal, slope)


def make(kind: str, queries: int, keys: int, size: int = 16, rows: int = 3, heads: int = 2) -> Case:
    """Queries, keys and values as cut from one projection."""
    draw = torch.Generator().manual_seed(queries + 100 * keys)
    keys = queries if kind == "causal" else keys
    query = torch.randn(rows, queries, 3, heads, size, generator=draw)[:, :, 0].transpose(1, 2)
    key, value = torch.randn(rows, keys, 2, heads, size, generator=draw).permute(2, 0, 3, 1, 4)
    mask = None
    if kind in ("keys", "pairs"):
        mask = torch.rand(rows, 1, queries if kind == "pairs" else 1, keys, generator=draw) < 0.6
        mask[0] = False  # a row of padding
    return Case(
        query, key, value, mask, kind == "causal", torch.randn(rows, queries, heads, size, generator=draw).transpose(1, 2)
    )


def expected(case: Case) -> tuple[Tensor, ...]:
    """What comes out, and the gradients, by torch."""
    given = [part.double().detach().requires_grad_() for part in case[:3]]
    out = attention_weights(given[0], given[1], AttentionBias(case.mask, case.causal)) @ given[2]
    return out.detach(), *torch.autograd.grad(out, given, case.slope.double())


@given(st.sampled_from(KINDS), st.integers(1, 9), st.integers(1, 9))
def test_the_formulas_are_those_of_softmax(kind: str, queries: int, keys: int) -> None:
    case = make(kind, queries, keys)
    found = plain(*case[:5]), *plain_backward(case.slope, *case[:5])
    for one, other in zip(found, expected(case), strict=True):
        assert_close(one.double(), other, atol=1e-5, rtol=1e-5)
        assert one.transpose(1, 2).is_contiguous()  # so that heads join without a copy


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_whoever_made_the_inputs(kind: str) -> None:
    case = make(kind, 7, 5)
    given = [part.clone().requires_grad_() for part in case[:3]]
    out = short_sequence_attention(given[0], given[1], given[2], case.mask, case.causal)
    found = out, *torch.autograd.grad(out, given, case.slope)
    for one, other in zip(found, expected(case), strict=True):
        assert_close(one.double(), other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_compiler_can_be_told_of_it(kind: str) -> None:
    case = make(kind, 6, 6)
    given = [part.clone().requires_grad_() for part in case[:3]]
    torch.library.opcheck(short_sequence_attention, (*given, case.mask, case.causal))
    torch.library.opcheck(short_sequence_attention_backward, (case.slope, *case[:5]))


def test_only_a_gpu_has_the_kernel() -> None:
    assert not fits_short_sequences(*make("everything", 4, 4)[:3])


@pytest.mark.parametrize(("count", "tile"), [(1, 16), (16, 16), (17, 32), (33, 64), (64, 64), (65, 128), (128, 128)])
def test_tiles_are_powers_of_two_that_a_product_takes(count: int, tile: int) -> None:
    assert module.power(count) == tile


def check_kernels(device: str, dtype: torch.dtype, slack: float) -> None:
    for kind in KINDS:
        for queries, keys in ((2, 2), (20, 20), (33, 7), (5, 40), (64, 64), (65, 100), (module.MOST, module.MOST)):
            case = make(kind, queries, keys, size=32).to(device, dtype)
            out = module.by_time(case.query)
            module.launch(module._attend, case[:3], case.mask, (out,), case.causal)
            gradients = module.by_time(case.query), module.by_time(case.key), module.by_time(case.value)
            module.launch(module._attend_backward, (case.slope, *case[:3]), case.mask, gradients, case.causal)
            for one, other in zip((out, *gradients), expected(case), strict=True):
                assert_close(one.double(), other.to(one.device), atol=slack, rtol=slack)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kernels_on_a_gpu() -> None:
    assert fits_short_sequences(*make("everything", 20, 20, size=32).to("cuda", torch.bfloat16)[:3])
    check_kernels("cuda", torch.bfloat16, 5e-2)


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton, which torch for a CPU comes without")
def test_kernels_interpreted() -> None:
    """By Triton's interpreter, which must be asked for before anything imports triton."""
    code = "import torch, test_whole_attention as t; t.check_kernels('cpu', torch.float32, 1e-5)"
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
