# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found"
"""Kernels for a GPU that says one token at a time, where reading memory and starting kernels is all the work.

    short_attention   few queries against many keys, under a mask that is read as it is
    write_both        keys and values into their slots
    add_norm          norm(x + y) in one pass
    blockwise         of every block of logits the largest and the total of the exponentials, in one pass

Each has a plain counterpart which says what it computes; that one is used on other devices, for gradients, and in tests.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for a CPU comes without it
    triton = None

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MOST_QUERIES = 16
CACHED = 2**19  # numbers
LOWEST = torch.finfo(torch.float32).min
Jit: Any = triton.jit if triton is not None else (lambda function: function)


def usable(*tensors: Tensor) -> bool:
    """Whether these tensors are on a GPU, need no gradient, and kernels can be made there."""
    if triton is None or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return all(tensor.device.type == "cuda" and tensor.dtype in DTYPES for tensor in tensors)


@Jit
def _short_attention(
    query, key, value, mask, out,
    query_row, query_head, query_time, key_row, key_head, key_time, value_row, value_head, value_time,
    mask_row, mask_time, mask_key, out_row, out_head, out_time,
    queries, keys, scale,
    HAS_MASK: tl.constexpr, QUERIES: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program for each row and head: running softmax over blocks of keys."""
    row, head = tl.program_id(0), tl.program_id(1)
    q_at, d_at = tl.arange(0, QUERIES)[:, None], tl.arange(0, SIZE)[None, :]
    real = q_at < queries  # (QUERIES, 1)
    query += row * query_row + head * query_head
    key += row * key_row + head * key_head
    value += row * value_row + head * value_head
    out += row * out_row + head * out_head
    mask += row * mask_row
    q = tl.load(query + q_at * query_time + d_at, mask=real, other=0.0)
    best = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    found = tl.zeros((QUERIES, SIZE), tl.float32)
    for begin in range(0, keys, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        there = at < keys
        seen = there[None, :] & real
        if HAS_MASK:
            seen = seen & (tl.load(mask + q_at * mask_time + at[None, :] * mask_key, mask=seen, other=0) != 0)
        if tl.max(tl.max(seen.to(tl.int32), 1), 0) > 0:  # what nobody sees is not even read
            k = tl.load(key + at[:, None] * key_time + d_at, mask=there[:, None], other=0.0)
            v = tl.load(value + at[:, None] * value_time + d_at, mask=there[:, None], other=0.0)
            scores = tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
            now = tl.maximum(best, tl.max(scores, 1))
            safe = tl.where(now == float("-inf"), 0.0, now)
            weight = tl.exp(scores - safe[:, None])
            shrink = tl.exp(best - safe)
            total = total * shrink + tl.sum(weight, 1)
            found = found * shrink[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
            best = now
    found = found / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out + q_at * out_time + d_at, found.to(out.dtype.element_ty), mask=real)


def short_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """query (rows, heads, few, size), key and value (rows, heads, keys, size), mask (rows, 1, few or 1, keys) -> as query."""
    rows, heads, queries, size = query.shape
    out = query.new_empty(rows, queries, heads, size).transpose(1, 2)
    strides = (0, 0, 0) if mask is None else (mask.stride(0), mask.stride(2) if mask.shape[2] > 1 else 0, mask.stride(3))
    view = None if mask is None else mask.view(torch.uint8)
    _short_attention[(rows, heads)](
        query, key, value, query if view is None else view, out,
        *query.stride()[:3], *key.stride()[:3], *value.stride()[:3], *strides, *out.stride()[:3],
        queries, key.shape[2], 1 / math.sqrt(size),
        HAS_MASK=mask is not None, QUERIES=16, SIZE=size, BLOCK=64 if size <= 64 else 32, num_warps=4,
    )  # fmt: skip
    return out


def fits_short_attention(query: Tensor, key: Tensor, value: Tensor) -> bool:
    if not usable(query, key, value):  # asked first: whoever exports must not be bound to a size
        return False
    packed = query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    return query.shape[2] <= MOST_QUERIES and query.shape[-1] in (16, 32, 64, 128) and packed


@Jit
def _write_both(first, second, slots, one, other, buffer_row, buffer_slot, one_row, one_time, size, BLOCK: tl.constexpr):
    """One program for each row and new slot."""
    row, time = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    there = at < size
    place = row * buffer_row + tl.load(slots + time) * buffer_slot + at
    source = row * one_row + time * one_time + at
    tl.store(first + place, tl.load(one + source, mask=there).to(first.dtype.element_ty), mask=there)
    tl.store(second + place, tl.load(other + source, mask=there).to(second.dtype.element_ty), mask=there)


def write_both(first: Tensor, second: Tensor, slots: Tensor, one: Tensor, other: Tensor) -> None:
    """first[:, slots], second[:, slots] = one, other: buffers (rows, slots, heads, size), new ones (rows, new, heads, size)."""
    size = one.shape[-2] * one.shape[-1]
    packed = all(tensor.stride(-1) == 1 and tensor.stride(-2) == tensor.shape[-1] for tensor in (first, second, one, other))
    if not (packed and usable(first, one) and first.stride() == second.stride() and one.stride() == other.stride()):
        first.index_copy_(1, slots, one.to(first.dtype))
        second.index_copy_(1, slots, other.to(second.dtype))
        return
    strides = first.stride(0), first.stride(1), one.stride(0), one.stride(1)
    block = triton.next_power_of_2(size)
    _write_both[one.shape[:2]](first, second, slots, one, other, *strides, size, BLOCK=block, num_warps=2)


@Jit
def _add_norm(x, y, weight, bias, out, size, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    there = at < size
    total = tl.load(x + row * size + at, mask=there, other=0.0).to(tl.float32)
    total += tl.load(y + row * size + at, mask=there, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / size
    away = tl.where(there, total - mean, 0.0)
    normal = away * tl.rsqrt(tl.sum(away * away, 0) / size + epsilon)
    gain = tl.load(weight + at, mask=there, other=0.0).to(tl.float32)
    shift = tl.load(bias + at, mask=there, other=0.0).to(tl.float32)
    tl.store(out + row * size + at, (normal * gain + shift).to(out.dtype.element_ty), mask=there)


def add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """layer_norm(x + y), all (…, size)."""
    size = x.shape[-1]
    if not usable(x, y, weight) or x.dtype != y.dtype or not (x.is_contiguous() and y.is_contiguous()):
        return functional.layer_norm(x + y, (size,), weight, bias, epsilon)
    out = torch.empty_like(x)
    _add_norm[(x.numel() // size,)](x, y, weight, bias, out, size, epsilon, BLOCK=triton.next_power_of_2(size), num_warps=4)
    return out


@Jit
def _blockwise(logits, largest, total, vocab, blocks, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    row, group = tl.program_id(0), tl.program_id(1)
    block = group * GROUP + tl.arange(0, GROUP)
    at = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(logits + row.to(tl.int64) * vocab + at, mask=at < vocab, other=float("-inf")).to(tl.float32)
    best = tl.max(x, 1)
    safe = tl.where(best == float("-inf"), 0.0, best)
    tl.store(largest + row * blocks + block, best, mask=block < blocks)
    tl.store(total + row * blocks + block, tl.sum(tl.exp(x - safe[:, None]), 1), mask=block < blocks)


def blockwise_logsumexp(logits: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """logits (rows, vocab) -> of each block the largest, and the total of exp(x - largest), both (rows, blocks) in float."""
    rows, vocab = logits.shape
    blocks = -(-vocab // block)
    if usable(logits) and logits.is_contiguous():
        largest, total = (torch.empty(rows, blocks, device=logits.device) for _ in range(2))
        _blockwise[(rows, -(-blocks // 32))](logits, largest, total, vocab, blocks, BLOCK=block, GROUP=32, num_warps=8)
        return largest, total
    largest, total = (logits.new_empty(rows, blocks, dtype=torch.float32) for _ in range(2))
    whole = vocab // block
    few = max(1, CACHED // vocab)  # rows, so that they stay in the cache
    for chunk in (slice(first, first + few) for first in range(0, rows, few)):
        part = logits[chunk, : whole * block].float()
        summarize(part.reshape(len(part), whole, block), largest[chunk, :whole], total[chunk, :whole])
        if whole < blocks:
            summarize(logits[chunk, None, whole * block :].float(), largest[chunk, whole:], total[chunk, whole:])
    return largest, total


def summarize(x: Tensor, largest: Tensor, total: Tensor) -> None:
    """x (rows, blocks, block) -> the largest of each block, and the total of exp(x - largest), both (rows, blocks)."""
    torch.amax(x, -1, out=largest)
    torch.sum((x - largest[..., None].clamp(min=LOWEST)).exp_(), -1, out=total)


def log_total(largest: Tensor, total: Tensor) -> Tensor:
    """What `blockwise` gave -> the logarithm of the total of the exponentials, (rows,)."""
    best = largest.amax(-1, keepdim=True).clamp(min=LOWEST)
    return best.squeeze(-1) + (total * (largest - best).exp()).sum(-1).log()
