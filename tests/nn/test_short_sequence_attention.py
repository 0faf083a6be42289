"""Attention of short sequences: the plain formulas equal autograd's softmax, and the kernels equal the formulas."""

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
    reference,
    reference_backward,
    short_sequence_attention,
    short_sequence_attention_backward,
)

KINDS = ("none", "causal", "keys", "pairs")  # of masks


class Case(NamedTuple):
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    causal: bool
    grad: Tensor  # of the output

    def to(self, device: str, dtype: torch.dtype) -> Case:
        query, key, value, grad = (part.to(device, dtype) for part in (self.query, self.key, self.value, self.grad))
        return Case(query, key, value, None if self.mask is None else self.mask.to(device), self.causal, grad)


def make(kind: str, queries: int, keys: int, size: int = 16, rows: int = 3, heads: int = 2) -> Case:
    """Queries, keys and values with the strides of chunks of one projection."""
    generator = torch.Generator().manual_seed(queries + 100 * keys)
    keys = queries if kind == "causal" else keys
    query = torch.randn(rows, queries, 3, heads, size, generator=generator)[:, :, 0].transpose(1, 2)
    key, value = torch.randn(rows, keys, 2, heads, size, generator=generator).permute(2, 0, 3, 1, 4)
    mask = None
    if kind in ("keys", "pairs"):
        mask = torch.rand(rows, 1, queries if kind == "pairs" else 1, keys, generator=generator) < 0.6
        mask[0] = False  # a row of padding
    grad = torch.randn(rows, queries, heads, size, generator=generator).transpose(1, 2)
    return Case(query, key, value, mask, kind == "causal", grad)


def expected(case: Case) -> tuple[Tensor, ...]:
    """The output and the gradients by autograd, in double precision."""
    inputs = [part.double().detach().requires_grad_() for part in case[:3]]
    out = attention_weights(inputs[0], inputs[1], AttentionBias(case.mask, case.causal)) @ inputs[2]
    return out.detach(), *torch.autograd.grad(out, inputs, case.grad.double())


@given(st.sampled_from(KINDS), st.integers(1, 9), st.integers(1, 9))
def test_the_formulas_equal_autograd(kind: str, queries: int, keys: int) -> None:
    case = make(kind, queries, keys)
    results = reference(*case[:5]), *reference_backward(case.grad, *case[:5])
    for result, correct in zip(results, expected(case), strict=True):
        assert_close(result.double(), correct, atol=1e-5, rtol=1e-5)
        assert result.transpose(1, 2).is_contiguous()  # so that heads can be joined without a copy


@pytest.mark.parametrize("kind", KINDS)
def test_the_operator_is_differentiable(kind: str) -> None:
    case = make(kind, 7, 5)
    inputs = [part.clone().requires_grad_() for part in case[:3]]
    out = short_sequence_attention(inputs[0], inputs[1], inputs[2], case.mask, case.causal)
    results = out, *torch.autograd.grad(out, inputs, case.grad)
    for result, correct in zip(results, expected(case), strict=True):
        assert_close(result.double(), correct, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["causal", "pairs"])  # without a mask, and with the largest one
def test_the_operator_supports_torch_compile(kind: str) -> None:
    case = make(kind, 6, 6)
    inputs = [part.clone().requires_grad_() for part in case[:3]]
    torch.library.opcheck(short_sequence_attention, (*inputs, case.mask, case.causal))
    torch.library.opcheck(short_sequence_attention_backward, (case.grad, *case[:5]))


def test_only_a_gpu_has_the_kernel() -> None:
    assert not fits_short_sequences(*make("none", 4, 4)[:3])


@pytest.mark.parametrize(("count", "tile"), [(1, 16), (16, 16), (17, 32), (33, 64), (64, 64), (65, 128), (128, 128)])
def test_tiles_are_powers_of_two_from_16_on(count: int, tile: int) -> None:
    assert module.padded_size(count) == tile


def check_kernels(device: str, dtype: torch.dtype, tolerance: float) -> None:
    for kind in KINDS:
        for queries, keys in ((2, 2), (20, 20), (33, 7), (5, 40), (64, 64), (65, 100), (module.MAX_LENGTH, module.MAX_LENGTH)):
            case = make(kind, queries, keys, size=32).to(device, dtype)
            out = module.empty_heads(case.query)
            module.launch(module._attend, case[:3], case.mask, (out,), case.causal)
            gradients = module.empty_heads(case.query), module.empty_heads(case.key), module.empty_heads(case.value)
            module.launch(module._attend_backward, (case.grad, *case[:3]), case.mask, gradients, case.causal)
            for result, correct in zip((out, *gradients), expected(case), strict=True):
                assert_close(result.double(), correct.to(result.device), atol=tolerance, rtol=tolerance)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kernels_on_a_gpu() -> None:
    assert fits_short_sequences(*make("none", 20, 20, size=32).to("cuda", torch.bfloat16)[:3])
    check_kernels("cuda", torch.bfloat16, 5e-2)


@pytest.mark.skipif(find_spec("triton") is None, reason="requires triton, which CPU builds of torch do not include")
def test_kernels_interpreted() -> None:
    """Triton's interpreter must be enabled before triton is imported."""
    code = "import torch, test_short_sequence_attention as t; t.check_kernels('cpu', torch.float32, 1e-5)"
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
