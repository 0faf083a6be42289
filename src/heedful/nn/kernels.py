# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found"
"""GPU kernels for decoding one token at a time, where memory reads and kernel launches dominate.

    short_attention        few queries against many keys, with a boolean mask that is read without conversion
    write_both             write keys and values into their slots
    add_norm               layer_norm(x + y) in one pass
    blockwise_logsumexp    maximum and sum of exponentials of every block of logits, in one pass

Each has an equivalent in plain torch, which is used on other devices, for gradients, and in tests.
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
except ImportError:  # CPU builds of torch do not include it
    triton = None

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MAX_QUERIES = 16
MAX_ONE_QUERY = 2**13  # keys, whose mask is read at once
ONE_QUERY = ((128, 64, 8), (512, 32, 4), (math.inf, 16, 2))  # (maximum programs, keys at a time, warps); see docs/log.md
STAGES = 3  # blocks of keys that are loaded ahead
CACHED = 2**19  # elements that stay in the CPU's cache
LOWEST = torch.finfo(torch.float32).min
Jit: Any = triton.jit if triton is not None else (lambda function: function)


def usable(*tensors: Tensor) -> bool:
    """Whether Triton kernels can run: tensors on a GPU, no gradients, no tracing."""
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
    """One program per row and head: online softmax over blocks of keys."""
    row, head = tl.program_id(0), tl.program_id(1)
    q_at, d_at = tl.arange(0, QUERIES)[:, None], tl.arange(0, SIZE)[None, :]
    real = q_at < queries  # (QUERIES, 1)
    query += row * query_row + head * query_head
    key += row * key_row + head * key_head
    value += row * value_row + head * value_head
    out += row * out_row + head * out_head
    mask += row * mask_row
    q = tl.load(query + q_at * query_time + d_at, mask=real, other=0.0)
    largest = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    context = tl.zeros((QUERIES, SIZE), tl.float32)
    for begin in range(0, keys, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        in_range = at < keys
        allowed = in_range[None, :] & real
        if HAS_MASK:
            allowed = allowed & (tl.load(mask + q_at * mask_time + at[None, :] * mask_key, mask=allowed, other=0) != 0)
        if tl.max(tl.max(allowed.to(tl.int32), 1), 0) > 0:  # a block that is masked for all queries is not read
            k = tl.load(key + at[:, None] * key_time + d_at, mask=in_range[:, None], other=0.0)
            v = tl.load(value + at[:, None] * value_time + d_at, mask=in_range[:, None], other=0.0)
            scores = tl.where(allowed, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
            new_largest = tl.maximum(largest, tl.max(scores, 1))
            safe = tl.where(new_largest == float("-inf"), 0.0, new_largest)
            weight = tl.exp(scores - safe[:, None])
            rescale = tl.exp(largest - safe)
            total = total * rescale + tl.sum(weight, 1)
            context = context * rescale[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
            largest = new_largest
    context = context / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out + q_at * out_time + d_at, context.to(out.dtype.element_ty), mask=real)


@Jit
def _one_query(
    query, key, value, mask, out,
    query_row, query_head, key_row, key_head, key_time, value_row, value_head, value_time, mask_row, mask_key,
    out_row, out_head, keys, scale,
    SIZE: tl.constexpr, ALL: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """`_short_attention` for one query: products with a vector need no tensor cores. Blocks after the last allowed key are not
    read; the others are, whatever the mask, so that no read waits for another. Every place of a block has a softmax of its own,
    over the keys that it has seen; they are joined at the end, so that threads wait for each other only once."""
    head, row = tl.program_id(0), tl.program_id(1)  # all heads of a row at about the same time: their keys are neighbors
    d_at, within, all_at = tl.arange(0, SIZE), tl.arange(0, BLOCK), tl.arange(0, ALL)
    mask += row * mask_row
    last = tl.max(tl.where(tl.load(mask + all_at * mask_key, mask=all_at < keys, other=0) != 0, all_at + 1, 0), 0)
    q = tl.load(query + row * query_row + head * query_head + d_at).to(tl.float32) * scale
    key += row * key_row + head * key_head
    value += row * value_row + head * value_head
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    context = tl.zeros((BLOCK, SIZE), tl.float32)
    for begin in tl.range(0, last, BLOCK, num_stages=AHEAD):
        at = begin + within
        real = at < last
        allowed = tl.load(mask + at * mask_key, mask=real, other=0) != 0
        k = tl.load(key + at[:, None] * key_time + d_at[None, :], mask=real[:, None], other=0.0).to(tl.float32)
        v = tl.load(value + at[:, None] * value_time + d_at[None, :], mask=real[:, None], other=0.0).to(tl.float32)
        scores = tl.where(allowed, tl.sum(k * q[None, :], 1), float("-inf"))
        new_largest = tl.maximum(largest, scores)
        safe = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        weight = tl.exp(scores - safe)
        rescale = tl.exp(largest - safe)
        total = total * rescale + weight
        context = context * rescale[:, None] + weight[:, None] * v
        largest = new_largest
    best = tl.max(largest, 0)
    share = tl.exp(largest - tl.where(best == float("-inf"), 0.0, best))
    whole = tl.sum(total * share, 0)
    joined = tl.sum(context * share[:, None], 0) / tl.where(whole == 0.0, 1.0, whole)
    tl.store(out + row * out_row + head * out_head + d_at, joined.to(out.dtype.element_ty))


def one_query_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """query (rows, heads, 1, size), key and value (rows, heads, keys, size), mask (rows, 1, 1, keys) -> as query."""
    rows, heads, _, size = query.shape
    out = query.new_empty(rows, 1, heads, size).transpose(1, 2)
    _, block, warps = next(size for size in ONE_QUERY if rows * heads <= size[0])
    _one_query[(heads, rows)](
        query, key, value, mask.view(torch.uint8), out,
        query.stride(0), query.stride(1), *key.stride()[:3], *value.stride()[:3], mask.stride(0), mask.stride(3),
        out.stride(0), out.stride(1), key.shape[2], 1 / math.sqrt(size),
        SIZE=size, ALL=triton.next_power_of_2(key.shape[2]), BLOCK=block, AHEAD=STAGES, num_warps=warps,
    )  # fmt: skip
    return out


def short_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """query (rows, heads, queries, size), key and value (rows, heads, keys, size), mask (rows, 1, queries or 1, keys)
    -> as query."""
    rows, heads, queries, size = query.shape
    if queries == 1 and mask is not None and key.shape[2] <= MAX_ONE_QUERY:
        return one_query_attention(query, key, value, mask)
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
    if not usable(query, key, value):  # checked first: an export must not specialize on a size
        return False
    packed = query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    return query.shape[2] <= MAX_QUERIES and query.shape[-1] in (16, 32, 64, 128) and packed


@Jit
def _write_both(keys, values, slots, key, value, buffer_row, buffer_slot, new_row, new_time, size, BLOCK: tl.constexpr):
    """One program per row and new slot."""
    row, time = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    in_range = at < size
    place = row * buffer_row + tl.load(slots + time) * buffer_slot + at
    source = row * new_row + time * new_time + at
    tl.store(keys + place, tl.load(key + source, mask=in_range).to(keys.dtype.element_ty), mask=in_range)
    tl.store(values + place, tl.load(value + source, mask=in_range).to(values.dtype.element_ty), mask=in_range)


def write_both(keys: Tensor, values: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> None:
    """keys[:, slots], values[:, slots] = key, value: buffers (rows, slots, heads, size), new (rows, new, heads, size)."""
    size = key.shape[-2] * key.shape[-1]
    packed = all(tensor.stride(-1) == 1 and tensor.stride(-2) == tensor.shape[-1] for tensor in (keys, values, key, value))
    if not (packed and usable(keys, key) and keys.stride() == values.stride() and key.stride() == value.stride()):
        keys.index_copy_(1, slots, key.to(keys.dtype))
        values.index_copy_(1, slots, value.to(values.dtype))
        return
    strides = keys.stride(0), keys.stride(1), key.stride(0), key.stride(1)
    block = triton.next_power_of_2(size)
    _write_both[key.shape[:2]](keys, values, slots, key, value, *strides, size, BLOCK=block, num_warps=2)


@Jit
def _add_norm(x, y, weight, bias, out, size, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    in_range = at < size
    total = tl.load(x + row * size + at, mask=in_range, other=0.0).to(tl.float32)
    total += tl.load(y + row * size + at, mask=in_range, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / size
    centered = tl.where(in_range, total - mean, 0.0)
    normal = centered * tl.rsqrt(tl.sum(centered * centered, 0) / size + epsilon)
    gain = tl.load(weight + at, mask=in_range, other=0.0).to(tl.float32)
    shift = tl.load(bias + at, mask=in_range, other=0.0).to(tl.float32)
    tl.store(out + row * size + at, (normal * gain + shift).to(out.dtype.element_ty), mask=in_range)


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
    """logits (rows, vocab) -> the maximum of each block and the sum of exp(x - maximum), both (rows, blocks) in float32."""
    rows, vocab = logits.shape
    blocks = -(-vocab // block)
    if usable(logits) and logits.is_contiguous():
        largest, total = (torch.empty(rows, blocks, device=logits.device) for _ in range(2))
        _blockwise[(rows, -(-blocks // 32))](logits, largest, total, vocab, blocks, BLOCK=block, GROUP=32, num_warps=8)
        return largest, total
    largest, total = (logits.new_empty(rows, blocks, dtype=torch.float32) for _ in range(2))
    whole = vocab // block
    chunk_rows = max(1, CACHED // vocab)
    for chunk in (slice(first, first + chunk_rows) for first in range(0, rows, chunk_rows)):
        part = logits[chunk, : whole * block].float()
        summarize(part.reshape(len(part), whole, block), largest[chunk, :whole], total[chunk, :whole])
        if whole < blocks:
            summarize(logits[chunk, None, whole * block :].float(), largest[chunk, whole:], total[chunk, whole:])
    return largest, total


def summarize(x: Tensor, largest: Tensor, total: Tensor) -> None:
    """Write the maximum of each block of x (rows, blocks, block) and the sum of exp(x - maximum), both (rows, blocks)."""
    torch.amax(x, -1, out=largest)
    torch.sum((x - largest[..., None].clamp(min=LOWEST)).exp_(), -1, out=total)


def reduce_logsumexp(largest: Tensor, total: Tensor) -> Tensor:
    """Output of `blockwise_logsumexp` -> logsumexp over all blocks, (rows,)."""
    best = largest.amax(-1, keepdim=True).clamp(min=LOWEST)
    return best.squeeze(-1) + (total * (largest - best).exp()).sum(-1).log()
