# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found"
"""Linear layers of few rows on a GPU: normalization, product, activation and residual sum in one kernel.

    y = activation(norm(x) W^T + b) + residual

A step of decoding has few rows, so that a product takes little longer than reading its weights; launching separate kernels for
the operations around it takes as long again. The plain operations are the reference, and are used everywhere else.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.kernels import Jit, usable

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch do not include it
    triton = None

MAX_ROWS = 64
SHARED_MEMORY = 160 * 1024  # bytes for parts of inputs and weights that are loaded ahead
LARGE = 2**13  # outputs of a layer that reads more weights than its inputs
ACTIVATIONS = ("none", "relu", "gelu_tanh")


def fits_few_rows(x: Tensor, *weights: Tensor) -> bool:
    """Whether the kernel supports the product of these inputs (…, size) with each of the weights."""
    if not usable(x, *weights) or x.numel() // x.shape[-1] > MAX_ROWS:
        return False
    return all(weight.dtype == x.dtype and weight.is_contiguous() and weight.shape[1] % 32 == 0 for weight in weights)


def few_rows_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    norm: nn.LayerNorm | None = None,
    activation: str = "none",
    residual: Tensor | None = None,
) -> Tensor:
    """x (…, inputs), weight (outputs, inputs), residual (…, outputs) -> (…, outputs); the inputs must fit."""
    outputs, inputs = weight.shape
    rows = x.numel() // inputs
    out = x.new_empty(*x.shape[:-1], outputs)
    gain, shift, epsilon = (weight, weight, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    tile = max(16, triton.next_power_of_2(rows))
    columns, depth, stages = tile_sizes(tile, inputs, outputs, x.element_size())
    _few_rows[(triton.cdiv(outputs, columns),)](
        x.contiguous(), weight, weight if bias is None else bias, gain, shift,
        out if residual is None else residual.contiguous(), out, rows, inputs, outputs, epsilon,
        HAS_NORM=norm is not None, ACTIVATION=ACTIVATIONS.index(activation), HAS_RESIDUAL=residual is not None,
        HAS_BIAS=bias is not None, ROWS=tile, COLUMNS=columns, DEPTH=depth, num_warps=4, num_stages=stages,
    )  # fmt: skip
    return out


def tile_sizes(tile: int, inputs: int, outputs: int, size: int) -> tuple[int, int, int]:
    """Columns, depth and stages of the kernel, the fastest of those tried on an H200 (docs/log.md)."""
    if outputs > LARGE:
        columns, stages = 64, 2
    else:
        columns, stages = (16 if outputs <= inputs or tile > 32 else 32), (4 if tile > 32 or inputs > outputs else 3)
    bytes_of_column = stages * (tile + columns) * size
    depth = next(depth for depth in (256, 128, 64, 32) if inputs % depth == 0 and depth * bytes_of_column <= SHARED_MEMORY)
    return columns, depth, stages


def reference(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    norm: nn.LayerNorm | None = None,
    activation: str = "none",
    residual: Tensor | None = None,
) -> Tensor:
    """What `few_rows_linear` computes, in plain operations."""
    y = functional.linear(x if norm is None else norm(x), weight, bias)
    if activation == "relu":
        y = torch.relu(y)
    if activation == "gelu_tanh":
        y = functional.gelu(y, approximate="tanh")
    return y if residual is None else y + residual


@Jit
def _few_rows(
    x, weight, bias, gain, shift, residual, out, rows, inputs, outputs, epsilon,
    HAS_NORM: tl.constexpr, ACTIVATION: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """One program for some columns of the output, all rows. With mean m and deviation s of x,

    norm(x) W^T = ((x * gain) W^T - m gain W^T) / s + shift W^T,

    so that the inputs are read once: reading them before for m and s takes as long as the product."""
    row = tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    real_row, real_column = row < rows, column < outputs
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    sum_x, sum_squares = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    sum_gain, sum_shift = tl.zeros((COLUMNS,), tl.float32), tl.zeros((COLUMNS,), tl.float32)
    for begin in range(0, inputs, DEPTH):
        part = tl.load(x + row[:, None] * inputs + begin + depth[None, :], mask=real_row[:, None], other=0.0)
        w = tl.load(weight + column[:, None] * inputs + begin + depth[None, :], mask=real_column[:, None], other=0.0)
        if HAS_NORM:
            wide, wide_w = part.to(tl.float32), w.to(tl.float32)
            g = tl.load(gain + begin + depth).to(tl.float32)
            sum_x += tl.sum(wide, 1)
            sum_squares += tl.sum(wide * wide, 1)
            sum_gain += tl.sum(wide_w * g[None, :], 1)
            sum_shift += tl.sum(wide_w * tl.load(shift + begin + depth).to(tl.float32)[None, :], 1)
            part = (wide * g[None, :]).to(part.dtype)
        total += tl.dot(part, tl.trans(w), input_precision="ieee")
    if HAS_NORM:
        mean = sum_x / inputs
        scale = tl.rsqrt(sum_squares / inputs - mean * mean + epsilon)
        total = (total - mean[:, None] * sum_gain[None, :]) * scale[:, None] + sum_shift[None, :]
    if HAS_BIAS:
        total += tl.load(bias + column, mask=real_column, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == 1:
        total = tl.maximum(total, 0.0)
    if ACTIVATION == 2:
        inner = 0.7978845608028654 * (total + 0.044715 * total * total * total)
        total = total * tl.sigmoid(2.0 * inner)  # x (1 + tanh(inner)) / 2
    place = row[:, None] * outputs + column[None, :]
    real = real_row[:, None] & real_column[None, :]
    if HAS_RESIDUAL:
        total += tl.load(residual + place, mask=real, other=0.0).to(tl.float32)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=real)
