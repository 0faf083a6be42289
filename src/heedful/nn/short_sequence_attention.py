# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found"
"""Attention of short sequences, for training on a GPU: scores of up to 128 x 128 fit into one program, so there are no blocks,
only the inputs are saved for the backward pass, and every gradient is written once.

    P = softmax(s Q K^T, masked)     O = P V                              s = 1 / sqrt(size)
    dV = P^T dO     dP = dO V^T     dS = s P * (dP - rowsum(P * dP))     dQ = dS K     dK = dS^T Q

torch's kernels for any length use tiles of 64 or 128, mostly empty for sentences of 20 tokens, and read a mask expanded over
all heads. `reference` and `reference_backward` are the same computation in plain torch.
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
except ImportError:  # CPU builds of torch do not include it
    triton = None

MAX_LENGTH = 128  # queries or keys
SIZES = (16, 32, 64, 128)
MAX_ELEMENTS = 128 * 64  # of each tensor in a program: the larger the heads, the shorter the sequences
HALF = (torch.bfloat16, torch.float16)


def fits_short_sequences(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel supports these tensors: short, in half precision, on a GPU, with contiguous vectors."""
    return (
        triton is not None
        and query.device.type == "cuda"
        and query.dtype in HALF
        and query.dtype == key.dtype == value.dtype
        and query.shape[-1] in SIZES
        and 1 < query.shape[2] <= MAX_LENGTH
        and key.shape[2] <= MAX_LENGTH
        and padded_size(max(query.shape[2], key.shape[2])) * query.shape[-1] <= MAX_ELEMENTS
        and query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    )


def combine_masks(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    if not causal:
        return mask
    lower = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
    return lower if mask is None else mask & lower


def reference_weights(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Attention weights (rows, heads, queries, keys) in float32."""
    scores = query.float() @ key.float().transpose(-2, -1) / math.sqrt(query.shape[-1])
    allowed = combine_masks(query, key, mask, causal)
    if allowed is None:
        return scores.softmax(-1)
    return scores.masked_fill(~allowed, -math.inf).softmax(-1).masked_fill(~allowed, 0.0)


def reference(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    out = reference_weights(query, key, mask, causal) @ value.float()
    return empty_heads(query).copy_(out)


def reference_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """grad: gradient of the output -> the gradients of query, key and value."""
    weights, wide = reference_weights(query, key, mask, causal), grad.float()
    grad_weights = wide @ value.float().transpose(-2, -1)
    grad_scores = weights * (grad_weights - (weights * grad_weights).sum(-1, keepdim=True)) / math.sqrt(query.shape[-1])
    grad_query = empty_heads(query).copy_(grad_scores @ key.float())
    grad_key = empty_heads(key).copy_(grad_scores.mT @ query.float())
    return grad_query, grad_key, empty_heads(value).copy_(weights.mT @ wide)


def empty_heads(like: Tensor) -> Tensor:
    """An empty tensor (rows, heads, time, size), laid out so that the heads of a token can be joined without a copy."""
    rows, heads, time, size = like.shape
    return like.new_empty(rows, time, heads, size).transpose(1, 2)


@Jit
def _weights(q, k, mask, mask_time, mask_key, queries, keys, scale,
             HAS_MASK: tl.constexpr, CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):  # fmt: skip
    """softmax(q k^T scale), (QUERIES, KEYS), zero where masked."""
    q_at, k_at = tl.arange(0, QUERIES)[:, None], tl.arange(0, KEYS)[None, :]
    allowed = (q_at < queries) & (k_at < keys)
    if CAUSAL:
        allowed = allowed & (k_at <= q_at)
    if HAS_MASK:
        allowed = allowed & (tl.load(mask + q_at * mask_time + k_at * mask_key, mask=allowed, other=0) != 0)
    scores = tl.where(allowed, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    largest = tl.max(scores, 1)
    weights = tl.exp(scores - tl.where(largest == float("-inf"), 0.0, largest)[:, None])
    total = tl.sum(weights, 1)
    return weights / tl.where(total == 0.0, 1.0, total)[:, None]


@Jit
def _pointers(tensor, row, head, row_stride, head_stride, time_stride, count, TIME: tl.constexpr, SIZE: tl.constexpr):
    """Pointers to the vectors of one row and head, (TIME, SIZE), and which of them are in range, (TIME, 1)."""
    at, d_at = tl.arange(0, TIME)[:, None], tl.arange(0, SIZE)[None, :]
    return tensor + row.to(tl.int64) * row_stride + head * head_stride + at * time_stride + d_at, at < count


@Jit
def _attend(
    query, key, value, mask, out,
    query_row, query_head, query_time, key_row, key_head, key_time, value_row, value_head, value_time,
    out_row, out_head, out_time, mask_row, mask_time, mask_key, queries, keys, scale,
    HAS_MASK: tl.constexpr, CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """One program per row and head."""
    row, head = tl.program_id(0), tl.program_id(1)
    q_to, q_real = _pointers(query, row, head, query_row, query_head, query_time, queries, QUERIES, SIZE)
    k_to, k_real = _pointers(key, row, head, key_row, key_head, key_time, keys, KEYS, SIZE)
    v_to, v_real = _pointers(value, row, head, value_row, value_head, value_time, keys, KEYS, SIZE)
    o_to, o_real = _pointers(out, row, head, out_row, out_head, out_time, queries, QUERIES, SIZE)
    q, k = tl.load(q_to, mask=q_real, other=0.0), tl.load(k_to, mask=k_real, other=0.0)
    v = tl.load(v_to, mask=v_real, other=0.0)
    mask += row * mask_row
    weights = _weights(q, k, mask, mask_time, mask_key, queries, keys, scale, HAS_MASK, CAUSAL, QUERIES, KEYS)
    tl.store(o_to, tl.dot(weights.to(v.dtype), v).to(v.dtype), mask=o_real)


@Jit
def _attend_backward(
    grad, query, key, value, mask, grad_query, grad_key, grad_value,
    grad_row, grad_head, grad_time, query_row, query_head, query_time, key_row, key_head, key_time,
    value_row, value_head, value_time, grad_query_row, grad_query_head, grad_query_time,
    grad_key_row, grad_key_head, grad_key_time, grad_value_row, grad_value_head, grad_value_time,
    mask_row, mask_time, mask_key, queries, keys, scale,
    HAS_MASK: tl.constexpr, CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    g_to, g_real = _pointers(grad, row, head, grad_row, grad_head, grad_time, queries, QUERIES, SIZE)
    q_to, q_real = _pointers(query, row, head, query_row, query_head, query_time, queries, QUERIES, SIZE)
    k_to, k_real = _pointers(key, row, head, key_row, key_head, key_time, keys, KEYS, SIZE)
    v_to, v_real = _pointers(value, row, head, value_row, value_head, value_time, keys, KEYS, SIZE)
    q, k = tl.load(q_to, mask=q_real, other=0.0), tl.load(k_to, mask=k_real, other=0.0)
    v, g = tl.load(v_to, mask=v_real, other=0.0), tl.load(g_to, mask=g_real, other=0.0)
    mask += row * mask_row
    weights = _weights(q, k, mask, mask_time, mask_key, queries, keys, scale, HAS_MASK, CAUSAL, QUERIES, KEYS)
    out_to, out_real = _pointers(grad_value, row, head, grad_value_row, grad_value_head, grad_value_time, keys, KEYS, SIZE)
    tl.store(out_to, tl.dot(tl.trans(weights.to(g.dtype)), g).to(v.dtype), mask=out_real)
    grad_weights = tl.dot(g, tl.trans(v))
    grad_scores = weights * (grad_weights - tl.sum(weights * grad_weights, 1)[:, None]) * scale
    narrow = grad_scores.to(q.dtype)
    out_to, out_real = _pointers(
        grad_query, row, head, grad_query_row, grad_query_head, grad_query_time, queries, QUERIES, SIZE
    )
    tl.store(out_to, tl.dot(narrow, k).to(q.dtype), mask=out_real)
    out_to, out_real = _pointers(grad_key, row, head, grad_key_row, grad_key_head, grad_key_time, keys, KEYS, SIZE)
    tl.store(out_to, tl.dot(tl.trans(narrow), q).to(k.dtype), mask=out_real)


def launch(kernel: Any, tensors: tuple[Tensor, ...], mask: Tensor | None, results: tuple[Tensor, ...], causal: bool) -> None:
    """Launch a kernel; tensors end with query, key and value. Strides are passed in the order of the tensors."""
    query, key = tensors[-3:-1]
    rows, heads, queries, size = query.shape
    keys = key.shape[2]
    view = query if mask is None else mask.view(torch.uint8)
    strides = (0, 0, 0) if mask is None else tuple(mask.stride(at) if mask.shape[at] > 1 else 0 for at in (0, 2, 3))
    kernel[(rows, heads)](
        *tensors, view, *results, *(stride for tensor in (*tensors, *results) for stride in tensor.stride()[:3]), *strides,
        queries, keys, 1 / math.sqrt(size), HAS_MASK=mask is not None, CAUSAL=causal,
        QUERIES=padded_size(queries), KEYS=padded_size(keys), SIZE=size, num_warps=warps(max(queries, keys)),
    )  # fmt: skip


def warps(count: int) -> int:
    """Warps per program, so that its scores stay in registers."""
    return 1 if count <= 32 else 4 if count <= 64 else 8


def padded_size(count: int) -> int:
    """The next power of two, at least 16: the smallest tile of a matrix product."""
    return max(16, 1 << (count - 1).bit_length())


@torch.library.custom_op("heedful::short_sequence_attention", mutates_args=())
def short_sequence_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """query (rows, heads, queries, size), key and value (rows, heads, keys, size), mask (rows or 1, 1, queries or 1, keys),
    True where attention is allowed -> as query; zeros for queries whose keys are all masked."""
    if not fits_short_sequences(query, key, value):
        return reference(query, key, value, mask, causal)
    out = empty_heads(query)
    launch(_attend, (query, key, value), mask, (out,), causal)
    return out


@torch.library.custom_op("heedful::short_sequence_attention_backward", mutates_args=())
def short_sequence_attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    if not fits_short_sequences(query, key, value) or grad.stride(-1) != 1:
        return reference_backward(grad, query, key, value, mask, causal)
    grads = empty_heads(query), empty_heads(key), empty_heads(value)
    launch(_attend_backward, (grad, query, key, value), mask, grads, causal)
    return grads


@short_sequence_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    return empty_heads(query)


@short_sequence_attention_backward.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return empty_heads(query), empty_heads(key), empty_heads(value)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, causal = inputs
    ctx.save_for_backward(*tensors)
    ctx.causal = causal


def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *short_sequence_attention_backward(grad, *ctx.saved_tensors, ctx.causal), None, None


short_sequence_attention.register_autograd(backward, setup_context=setup_context)
