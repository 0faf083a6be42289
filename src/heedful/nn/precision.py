"""Copies of models for inference, with faster linear layers in the given precision.

    fp32    as trained; on a CPU weights are packed for oneDNN
    bf16    weights and activations in bfloat16
    int8    on a CPU: weights and activations of linear layers in int8, sums in int32, everything else in fp32

In int8 each output has its own scale, and so has each row of activations, computed from its largest element:

    x = r a     W = s w     =>     x W^T + b = r (a w^T s) + b          a, w: int8; r: scale per row; s: scale per output

Kernels require unsigned activations, a + 128; the summand that this adds, 128 sum_k w, is precomputed.
Such a copy cannot be saved or moved to another device: make a new one from the trained model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError, lookup
from heedful.nn.linear import ONEDNN, Linear, Readout, onednn
from heedful.nn.torch_private import has_onednn_bf16, has_vnni, int8_linear, pack_int8_weight, pack_linear_weight

ROWS = 128  # rows for which weights are packed; measured to suit any other number, except when packed for one row
SMALLEST_SCALE = 1e-20  # avoids division by zero for rows of zeros
# Without VNNI, pairs of products are added in 16 bits, which weights of 7 bits cannot overflow.
LEVELS = 127 if has_vnni() else 63

Model = TypeVar("Model", bound=nn.Module)
MakeLinear = Callable[[Tensor, Tensor | None], nn.Module]  # weight (outputs, inputs), bias -> replacement of the layer


class PackedLinear(nn.Module):
    """A linear layer computed by oneDNN with a packed weight."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.packed = pack_linear_weight(weight.contiguous(), ROWS)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) -> (…, outputs)."""
        out = onednn(x.reshape(-1, x.shape[-1]), self.packed, self.bias)
        return out.view(*x.shape[:-1], self.out_features)

    if TYPE_CHECKING:
        __call__ = forward


class QuantizedLinear(nn.Module):
    """A linear layer in int8."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        scale = weight.abs().amax(1).clamp(min=SMALLEST_SCALE) / LEVELS  # (outputs,)
        levels = (weight / scale[:, None]).round().to(torch.int8)
        self.packed = pack_int8_weight(levels, ROWS)
        self.scale = scale
        self.offset = -128 * levels.sum(1) * scale
        self.zero = torch.zeros(self.out_features, dtype=torch.int32)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) -> (…, outputs)."""
        rows = x.reshape(-1, x.shape[-1])
        scale = rows.abs().amax(-1, keepdim=True).clamp_(min=SMALLEST_SCALE).div_(127)  # (rows, 1)
        signed = (rows / scale).round_().to(torch.int8)
        levels = signed.view(torch.uint8).bitwise_xor_(128)  # + 128; torch converts floats to int8 faster than to uint8
        out = int8_linear(levels, self.packed, self.scale, self.zero, self.offset)
        if self.bias is None:
            out.mul_(scale)
        else:
            torch.addcmul(self.bias, out, scale, out=out)
        return out.view(*x.shape[:-1], self.out_features)

    if TYPE_CHECKING:
        __call__ = forward


def to_fp32(model: Model, device: torch.device) -> Model:
    if device.type == "cpu" and ONEDNN:
        return copy_with(model, device, torch.float32, PackedLinear)
    return copy.deepcopy(model).to(device)


def to_bf16(model: Model, device: torch.device) -> Model:
    if device.type == "cpu" and ONEDNN and has_onednn_bf16():
        return copy_with(model, device, torch.bfloat16, PackedLinear)
    return copy.deepcopy(model).to(device, torch.bfloat16)


def to_int8(model: Model, device: torch.device) -> Model:
    if device.type != "cpu":
        raise ConfigError(f"given precision 'int8' on device {device.type!r}, expected device 'cpu'", hint="use 'bf16'")
    if not ONEDNN:
        raise ConfigError("given precision 'int8', which requires a build of torch with oneDNN", hint="use 'fp32'")
    return copy_with(model, device, torch.float32, QuantizedLinear)


def copy_with(model: Model, device: torch.device, dtype: torch.dtype, make: MakeLinear) -> Model:
    """Copy a model with every linear layer replaced by `make`. The replacements are passed to deepcopy as its memo, so that
    the old weights are never copied and shared modules stay shared."""
    memo: dict[int, nn.Module] = {}
    for module in model.modules():
        if isinstance(module, Linear | Readout):
            bias = module.bias if isinstance(module, Linear) else None
            own = None if bias is None else bias.detach().to(device, dtype, copy=True)
            memo[id(module)] = make(module.weight.detach().to(device, dtype), own)
    return copy.deepcopy(model, memo).to(device, dtype)


PRECISIONS: dict[str, Callable[[Model, torch.device], Model]] = {"fp32": to_fp32, "bf16": to_bf16, "int8": to_int8}


def with_precision(model: Model, precision: str, device: torch.device) -> Model:
    """Copy a model for inference on the device in the given precision; the model itself is unchanged."""
    make = lookup(precision, PRECISIONS, "precision")
    with torch.no_grad():
        return make(model, device).eval().requires_grad_(False)
