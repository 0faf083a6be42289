"""Kernels equal their plain versions; without a GPU only the plain versions run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.nn.attention import AttentionBias, attention_weights
from heedful.nn.kernels import (
    add_norm,
    blockwise_logsumexp,
    fits_short_attention,
    reduce_logsumexp,
    short_attention,
    write_both,
)

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def random(device: str, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(device, dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("block", "vocab"), [(128, 1000), (128, 128), (16, 33), (128, 5)])
def test_blockwise_logsumexp_gives_maxima_and_total(device: str, dtype: torch.dtype, block: int, vocab: int) -> None:
    logits = 3 * random(device, dtype, 7, vocab)
    logits[2, 1:] = -float("inf")
    largest, parts = blockwise_logsumexp(logits, block)
    total = reduce_logsumexp(largest, parts)
    assert largest.dtype == total.dtype == torch.float32
    assert_close(total, logits.double().logsumexp(-1).float(), atol=1e-5, rtol=1e-5)
    for number in range(largest.shape[1]):
        part = logits[:, number * block : (number + 1) * block]
        assert_close(largest[:, number], part.float().amax(-1), atol=0, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_add_norm_equals_layer_norm_of_the_sum(device: str, dtype: torch.dtype) -> None:
    x, y = random(device, dtype, 3, 5, 96), random(device, dtype, 3, 5, 96).flip(0)
    weight, bias = random(device, dtype, 96), random(device, dtype, 96).flip(0)
    expected = functional.layer_norm(x.double() + y.double(), (96,), weight.double(), bias.double())
    assert_close(add_norm(x, y, weight, bias, 1e-5).double(), expected, atol=2 * TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="requires a GPU")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("queries", "keys", "size"), [(1, 65, 64), (4, 260, 64), (16, 7, 32), (5, 128, 128)])
def test_short_attention_equals_attention(dtype: torch.dtype, masked: bool, queries: int, keys: int, size: int) -> None:
    query = random("cuda", dtype, 3, 2, queries, size)
    key, value = (random("cuda", dtype, 3, keys + extra, 2, size)[:, :keys].transpose(1, 2) for extra in (0, 9))  # strided
    mask = torch.rand(3, 1, queries, keys, device="cuda") < 0.5 if masked else None
    if mask is not None:
        mask[1, 0, 0] = False  # a query with all keys masked gets zeros
    assert fits_short_attention(query, key, value)
    expected = attention_weights(query.double(), key.double(), AttentionBias(mask)) @ value.double()
    assert_close(short_attention(query, key, value, mask).double(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_keys_and_values_are_written_to_their_slots(device: str, dtype: torch.dtype) -> None:
    keys, values = (torch.zeros(3, 9, 2, 16, device=device, dtype=dtype) for _ in range(2))
    both = random(device, dtype, 3, 4, 2, 2, 16)  # as chunks of one projection
    slots = torch.tensor([7, 8, 0, 1], device=device)
    write_both(keys, values, slots, both[:, :, 0], both[:, :, 1])
    assert torch.equal(keys[:, slots], both[:, :, 0]) and torch.equal(values[:, slots], both[:, :, 1])
    assert not keys[:, 2:7].any() and not values[:, 2:7].any()


def test_short_attention_requires_a_gpu() -> None:
    assert not fits_short_attention(*(random("cpu", torch.float32, 1, 1, 1, 64) for _ in range(3)))
