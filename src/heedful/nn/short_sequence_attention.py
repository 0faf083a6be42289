# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found"
"""Attention of whole short sequences, for training on a GPU: scores of up to 128 x 128 fit into one program, so nothing is
done in blocks, nothing but the inputs is kept for the backward pass, and every gradient is written once.

    P = softmax(s Q K^T, masked)     O = P V                              s = 1 / sqrt(size)
    dV = P^T dO     dP = dO V^T     dS = s P * (dP - rowsum(P * dP))     dQ = dS K     dK = dS^T Q

What torch calls for any length works on tiles of 64 or 128, mostly empty for sentences of 20 tokens, and reads a mask spread
over all heads. `plain` and `plain_backward` say what the kernels compute, in torch's own operations.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from heedful.nn.kernels import Jit

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for a CPU comes without it
    triton = None

MOST = 128  # queries or keys
SIZES = (16, 32, 64, 128)
LARGEST = 128 * 64  # numbers in one of the tensors that a program holds: longer vectors, shorter sequences
HALF = (torch.bfloat16, torch.float16)


def fits_short_sequences(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether there is a kernel for these: few in half precision on a GPU, each vector in one piece."""
    return (
        triton is not None
        and query.device.type == "cuda"
        and query.dtype in HALF
        and query.dtype == key.dtype == value.dtype
        and query.shape[-1] in SIZES
        and 1 < query.shape[2] <= MOST
        and key.shape[2] <= MOST
        and power(max(query.shape[2], key.shape[2])) * query.shape[-1] <= LARGEST
        and query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    )


def seen_at(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    if not causal:
        return mask
    lower = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
    return lower if mask is None else mask & lower


def weights_of(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """(rows, heads, queries, keys) in float."""
    scores = query.float() @ key.float().transpose(-2, -1) / math.sqrt(query.shape[-1])
    seen = seen_at(query, key, mask, causal)
    if seen is None:
        return scores.softmax(-1)
    return scores.masked_fill(~seen, -math.inf).softmax(-1).masked_fill(~seen, 0.0)


def plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    out = weights_of(query, key, mask, causal) @ value.float()
    return by_time(query).copy_(out)


def plain_backward(
    slope: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """slope: of the output, like it -> the gradients of query, key and value."""
    weights, wide = weights_of(query, key, mask, causal), slope.float()
    to_weights = wide @ value.float().transpose(-2, -1)
    to_scores = weights * (to_weights - (weights * to_weights).sum(-1, keepdim=True)) / math.sqrt(query.shape[-1])
    to_query, to_key = by_time(query).copy_(to_scores @ key.float()), by_time(key).copy_(to_scores.mT @ query.float())
    return to_query, to_key, by_time(value).copy_(weights.mT @ wide)


def by_time(like: Tensor) -> Tensor:
    """(rows, heads, time, size) to be filled, laid out so that the heads of a token join without a copy."""
    rows, heads, time, size = like.shape
    return like.new_empty(rows, time, heads, size).transpose(1, 2)


@Jit
def _weights(q, k, mask, mask_time, mask_key, queries, keys, scale,
             HAS_MASK: tl.constexpr, CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):  # fmt: skip
    """softmax(q k^T scale), (QUERIES, KEYS), zero where nothing may be seen."""
    q_at, k_at = tl.arange(0, QUERIES)[:, None], tl.arange(0, KEYS)[None, :]
    seen = (q_at < queries) & (k_at < keys)
    if CAUSAL:
        seen = seen & (k_at <= q_at)
    if HAS_MASK:
        seen = seen & (tl.load(mask + q_at * mask_time + k_at * mask_key, mask=seen, other=0) != 0)
    scores = tl.where(seen, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    best = tl.max(scores, 1)
    weights = tl.exp(scores - tl.where(best == float("-inf"), 0.0, best)[:, None])
    total = tl.sum(weights, 1)
    return weights / tl.where(total == 0.0, 1.0, total)[:, None]


@Jit
def _take(tensor, row, head, by_row, by_head, by_time, count, TIME: tl.constexpr, SIZE: tl.constexpr):
    """Where the vectors of one row and head stand, (TIME, SIZE), and which of them are real, (TIME, 1)."""
    at, d_at = tl.arange(0, TIME)[:, None], tl.arange(0, SIZE)[None, :]
    return tensor + row.to(tl.int64) * by_row + head * by_head + at * by_time + d_at, at < count


@Jit
def _attend(
    query, key, value, mask, out,
    query_row, query_head, query_time, key_row, key_head, key_time, value_row, value_head, value_time,
    out_row, out_head, out_time, mask_row, mask_time, mask_key, queries, keys, scale,
    HAS_MASK: tl.constexpr, CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """One program for each row and head."""
    row, head = tl.program_id(0), tl.program_id(1)
    q_to, q_real = _take(query, row, head, query_row, query_head, query_time, queries, QUERIES, SIZE)
    k_to, k_real = _take(key, row, head, key_row, key_head, key_time, keys, KEYS, SIZE)
    v_to, v_real = _take(value, row, head, value_row, value_head, value_time, keys, KEYS, SIZE)
    o_to, o_real = _take(out, row, head, out_row, out_head, out_time, queries, QUERIES, SIZE)
    q, k = tl.load(q_to, mask=q_real, other=0.0), tl.load(k_to, mask=k_real, other=0.0)
    v = tl.load(v_to, mask=v_real, other=0.0)
    mask += row * mask_row
    weights = _weights(q, k, mask, mask_time, mask_key, queries, keys, scale, HAS_MASK, CAUSAL, QUERIES, KEYS)
    tl.store(o_to, tl.dot(weights.to(v.dtype), v).to(v.dtype), mask=o_real)


@Jit
def _attend_backward(
    slope, query, key, value, mask, to_query, to_key, to_value,
    slope_row, slope_head, slope_time, query_row, query_head, query_time, key_row, key_head, key_time,
    value_row, value_head, value_time, to_query_row, to_query_head, to_query_time, to_key_row, to_key_head, to_key_time,
    to_value_row, to_value_head, to_value_time, mask_row, mask_time, mask_key, queries, keys, scale,
    HAS_MASK: tl.constexpr, CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    s_to, s_real = _take(slope, row, head, slope_row, slope_head, slope_time, queries, QUERIES, SIZE)
    q_to, q_real = _take(query, row, head, query_row, query_head, query_time, queries, QUERIES, SIZE)
    k_to, k_real = _take(key, row, head, key_row, key_head, key_time, keys, KEYS, SIZE)
    v_to, v_real = _take(value, row, head, value_row, value_head, value_time, keys, KEYS, SIZE)
    q, k = tl.load(q_to, mask=q_real, other=0.0), tl.load(k_to, mask=k_real, other=0.0)
    v, s = tl.load(v_to, mask=v_real, other=0.0), tl.load(s_to, mask=s_real, other=0.0)
    mask += row * mask_row
    weights = _weights(q, k, mask, mask_time, mask_key, queries, keys, scale, HAS_MASK, CAUSAL, QUERIES, KEYS)
    out_to, out_real = _take(to_value, row, head, to_value_row, to_value_head, to_value_time, keys, KEYS, SIZE)
    tl.store(out_to, tl.dot(tl.trans(weights.to(s.dtype)), s).to(v.dtype), mask=out_real)
    to_weights = tl.dot(s, tl.trans(v))
    to_scores = weights * (to_weights - tl.sum(weights * to_weights, 1)[:, None]) * scale
    narrow = to_scores.to(q.dtype)
    out_to, out_real = _take(to_query, row, head, to_query_row, to_query_head, to_query_time, queries, QUERIES, SIZE)
    tl.store(out_to, tl.dot(narrow, k).to(q.dtype), mask=out_real)
    out_to, out_real = _take(to_key, row, head, to_key_row, to_key_head, to_key_time, keys, KEYS, SIZE)
    tl.store(out_to, tl.dot(tl.trans(narrow), q).to(k.dtype), mask=out_real)


def launch(kernel: Any, tensors: tuple[Tensor, ...], mask: Tensor | None, results: tuple[Tensor, ...], causal: bool) -> None:
    """tensors end with query, key and value; every tensor tells its strides in the order in which the kernel takes them."""
    query, key = tensors[-3:-1]
    rows, heads, queries, size = query.shape
    keys = key.shape[2]
    view = query if mask is None else mask.view(torch.uint8)
    strides = (0, 0, 0) if mask is None else tuple(mask.stride(at) if mask.shape[at] > 1 else 0 for at in (0, 2, 3))
    kernel[(rows, heads)](
        *tensors, view, *results, *(stride for tensor in (*tensors, *results) for stride in tensor.stride()[:3]), *strides,
        queries, keys, 1 / math.sqrt(size), HAS_MASK=mask is not None, CAUSAL=causal,
        QUERIES=power(queries), KEYS=power(keys), SIZE=size, num_warps=warps(max(queries, keys)),
    )  # fmt: skip


def warps(count: int) -> int:
    """That share one program, so that its scores stay in registers."""
    return 1 if count <= 32 else 4 if count <= 64 else 8


def power(count: int) -> int:
    """The power of two from 16 on that holds so many: what a product of tiles is made of."""
    return max(16, 1 << (count - 1).bit_length())


@torch.library.custom_op("heedful::short_sequence_attention", mutates_args=())
def short_sequence_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """query (rows, heads, queries, size), key and value (rows, heads, keys, size), mask (rows or 1, 1, queries or 1, keys),
    True where looking is allowed -> as query. A query that may look nowhere gets zeros."""
    if not fits_short_sequences(query, key, value):
        return plain(query, key, value, mask, causal)
    out = by_time(query)
    launch(_attend, (query, key, value), mask, (out,), causal)
    return out


@torch.library.custom_op("heedful::short_sequence_attention_backward", mutates_args=())
def short_sequence_attention_backward(
    slope: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    if not fits_short_sequences(query, key, value) or slope.stride(-1) != 1:
        return plain_backward(slope, query, key, value, mask, causal)
    found = by_time(query), by_time(key), by_time(value)
    launch(_attend_backward, (slope, query, key, value), mask, found, causal)
    return found


@short_sequence_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    return by_time(query)


@short_sequence_attention_backward.register_fake
def _(
    slope: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return by_time(query), by_time(key), by_time(value)


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, causal = inputs
    ctx.save_for_backward(*tensors)
    ctx.causal = causal


def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
    return *short_sequence_attention_backward(slope, *ctx.saved_tensors, ctx.causal), None, None


short_sequence_attention.register_autograd(backward, setup_context=keep)
