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
VECTOR_ROWS = 4  # rows up to which a product is computed row by row, as products with a vector
VECTOR_ELEMENTS = 2**13  # weights that one program holds at a time
SHARED_MEMORY = 160 * 1024  # bytes for parts of inputs and weights that are loaded ahead
LARGE = 2**13  # outputs of a layer that reads more weights than its inputs
ACTIVATIONS = ("none", "relu", "gelu_tanh")


def fits_few_rows(x: Tensor, *weights: Tensor) -> bool:
    """Whether the kernels support the product of these inputs (…, size) with each of the weights."""
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
    if rows > VECTOR_ROWS and norm is not None:  # with many rows, every program would compute all the norms again
        x, norm = row_norm(x, norm), None
    out = x.new_empty(*x.shape[:-1], outputs)
    gain, shift, epsilon = (weight, weight, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    tensors = (
        x.contiguous(), weight, weight if bias is None else bias, gain, shift,
        out if residual is None else residual.contiguous(), out,
    )  # fmt: skip
    epilogue = {
        "ACTIVATION": ACTIVATIONS.index(activation),
        "HAS_RESIDUAL": residual is not None,
        "HAS_BIAS": bias is not None,
    }
    if rows <= VECTOR_ROWS:
        depth = triton.next_power_of_2(inputs)
        columns = max(1, min(16, VECTOR_ELEMENTS // depth))
        _vector_product[(triton.cdiv(outputs, columns),)](
            *tensors, rows, inputs, outputs, epsilon,
            HAS_NORM=norm is not None, **epilogue, COLUMNS=columns, DEPTH=depth, num_warps=4,
        )  # fmt: skip
        return out
    tile = max(16, triton.next_power_of_2(rows))
    columns, depth, stages = tile_sizes(tile, inputs, outputs, x.element_size())
    _matrix_product[(triton.cdiv(outputs, columns),)](
        *tensors, rows, inputs, outputs, **epilogue,
        ROWS=tile, COLUMNS=columns, DEPTH=depth, num_warps=4, num_stages=stages,
    )  # fmt: skip
    return out


def tile_sizes(tile: int, inputs: int, outputs: int, size: int) -> tuple[int, int, int]:
    """Columns, depth and stages of `_matrix_product`, the fastest of those tried on an H200 (docs/log.md)."""
    if outputs > LARGE:
        columns, stages = 64, 2
    else:
        columns, stages = (16 if outputs <= inputs else 32), 4
    bytes_of_column = stages * (tile + columns) * size
    depth = next(depth for depth in (256, 128, 64, 32) if inputs % depth == 0 and depth * bytes_of_column <= SHARED_MEMORY)
    return columns, depth, stages


def row_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Layer normalization, one program for each row."""
    size, out = x.shape[-1], torch.empty_like(x)
    _row_norm[(x.numel() // size,)](
        x, norm.weight, norm.bias, out, size, norm.eps, BLOCK=triton.next_power_of_2(size), num_warps=4
    )
    return out


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
def _activate(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == 1:
        x = tl.maximum(x, 0.0)
    if ACTIVATION == 2:
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))  # x (1 + tanh(…)) / 2
    return x


@Jit
def _vector_product(
    x, weight, bias, gain, shift, residual, out, rows, inputs, outputs, epsilon,
    HAS_NORM: tl.constexpr, ACTIVATION: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_BIAS: tl.constexpr,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """One program for some columns of the output: all their weights are loaded at once, while the norm is computed."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    real_column, real_depth = column < outputs, depth < inputs
    w = tl.load(
        weight + column.to(tl.int64)[:, None] * inputs + depth[None, :],
        mask=real_column[:, None] & real_depth[None, :],
        other=0.0,
    )
    for row in range(rows):
        part = tl.load(x + row * inputs + depth, mask=real_depth, other=0.0).to(tl.float32)
        if HAS_NORM:
            mean = tl.sum(part, 0) / inputs
            centered = tl.where(real_depth, part - mean, 0.0)
            scale = tl.rsqrt(tl.sum(centered * centered, 0) / inputs + epsilon)
            part = centered * scale * tl.load(gain + depth, mask=real_depth, other=0.0).to(tl.float32)
            part += tl.load(shift + depth, mask=real_depth, other=0.0).to(tl.float32)
        total = tl.sum(w.to(tl.float32) * part[None, :], 1)
        if HAS_BIAS:
            total += tl.load(bias + column, mask=real_column, other=0.0).to(tl.float32)
        total = _activate(total, ACTIVATION)
        place = row * outputs + column
        if HAS_RESIDUAL:
            total += tl.load(residual + place, mask=real_column, other=0.0).to(tl.float32)
        tl.store(out + place, total.to(out.dtype.element_ty), mask=real_column)


@Jit
def _matrix_product(
    x, weight, bias, gain, shift, residual, out, rows, inputs, outputs,
    ACTIVATION: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """One program for some columns of the output and all rows."""
    row = tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    real_row, real_column = row < rows, column < outputs
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(0, inputs, DEPTH):
        part = tl.load(x + row[:, None] * inputs + begin + depth[None, :], mask=real_row[:, None], other=0.0)
        w = tl.load(
            weight + column.to(tl.int64)[:, None] * inputs + begin + depth[None, :], mask=real_column[:, None], other=0.0
        )
        total += tl.dot(part, tl.trans(w), input_precision="ieee")
    if HAS_BIAS:
        total += tl.load(bias + column, mask=real_column, other=0.0).to(tl.float32)[None, :]
    total = _activate(total, ACTIVATION)
    place = row[:, None] * outputs + column[None, :]
    real = real_row[:, None] & real_column[None, :]
    if HAS_RESIDUAL:
        total += tl.load(residual + place, mask=real, other=0.0).to(tl.float32)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=real)


@Jit
def _row_norm(x, gain, shift, out, size, epsilon, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    real = at < size
    part = tl.load(x + row * size + at, mask=real, other=0.0).to(tl.float32)
    mean = tl.sum(part, 0) / size
    centered = tl.where(real, part - mean, 0.0)
    normal = centered * tl.rsqrt(tl.sum(centered * centered, 0) / size + epsilon)
    normal = normal * tl.load(gain + at, mask=real, other=0.0).to(tl.float32)
    normal += tl.load(shift + at, mask=real, other=0.0).to(tl.float32)
    tl.store(out + row * size + at, normal.to(out.dtype.element_ty), mask=real)
