"""A model made ready for inference: a copy whose linear maps multiply faster, in the precision asked for.

    fp32    as trained; on a CPU every weight lies in the order in which oneDNN reads it
    bf16    weights and activations in bfloat16
    int8    on a CPU: weights and activations of linear maps in bytes, sums in whole numbers, all else in fp32

In int8 each output has a scale of its own, and so has each row of activations, taken from its largest member as it comes:

    x = r a     W = s w     =>     x W^T + b = r (a w^T s) + b          a, w: bytes; r: one for each row; s: for each output

Kernels want the activations without sign, a + 128; what that adds to the sum, 128 sum_k w, is known beforehand.
A prepared model is for running, not for saving or moving: prepare the trained one again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError, lookup
from heedful.nn.linear import ONEDNN, Linear, Readout, onednn

ROWS = 128  # for which weights are packed; measured to be as good for any other number, but for packing with one row
LEAST = 1e-20  # what a row of zeros is divided by
# Without VNNI, pairs of products are added up in 16 bits, which weights of 7 bits cannot overflow.
LEVELS = 127 if torch.cpu._is_vnni_supported() else 63

Model = TypeVar("Model", bound=nn.Module)
Made = Callable[[Tensor, Tensor | None], nn.Module]  # weight (outputs, inputs), bias -> what maps instead


class PackedLinear(nn.Module):
    """A linear map by oneDNN, its weight packed once."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) -> (…, outputs)."""
        out = onednn(x.reshape(-1, x.shape[-1]), self.packed, self.bias)
        return out.view(*x.shape[:-1], self.out_features)

    if TYPE_CHECKING:
        __call__ = forward


class QuantizedLinear(nn.Module):
    """A linear map in bytes."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        scale = weight.abs().amax(1).clamp(min=LEAST) / LEVELS  # (outputs,)
        levels = (weight / scale[:, None]).round().to(torch.int8)
        self.packed: Tensor = torch.ops.onednn.qlinear_prepack(levels, [ROWS, self.in_features])
        self.scale = scale
        self.offset = -128 * levels.sum(1) * scale
        self.zero = torch.zeros(self.out_features, dtype=torch.int32)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) -> (…, outputs)."""
        rows = x.reshape(-1, x.shape[-1])
        scale = rows.abs().amax(-1, keepdim=True).clamp_(min=LEAST).div_(127)  # (rows, 1)
        signed = (rows / scale).round_().to(torch.int8)
        levels = signed.view(torch.uint8).bitwise_xor_(128)  # + 128; torch turns floats into signed bytes faster
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            levels, 1.0, 0, self.packed, self.scale, self.zero, self.offset, 1.0, 0, torch.float32, "none", [], ""
        )
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
    if device.type == "cpu" and ONEDNN and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return copy_with(model, device, torch.bfloat16, PackedLinear)
    return copy.deepcopy(model).to(device, torch.bfloat16)


def to_int8(model: Model, device: torch.device) -> Model:
    if device.type != "cpu":
        raise ConfigError(f"precision 'int8' was asked for on {device.type!r}, but runs on 'cpu' only", hint="use 'bf16'")
    if not ONEDNN:
        raise ConfigError("precision 'int8' needs oneDNN, which this torch was built without", hint="use 'fp32'")
    return copy_with(model, device, torch.float32, QuantizedLinear)


def copy_with(model: Model, device: torch.device, dtype: torch.dtype, make: Made) -> Model:
    """A copy in which `make` has made every linear map anew. Copying is told beforehand what to put in their place, so
    that their weights are never copied as they were, and what is shared stays shared."""
    instead: dict[int, nn.Module] = {}
    for module in model.modules():
        if isinstance(module, Linear | Readout):
            bias = module.bias if isinstance(module, Linear) else None
            own = None if bias is None else bias.detach().to(device, dtype, copy=True)
            instead[id(module)] = make(module.weight.detach().to(device, dtype), own)
    return copy.deepcopy(model, instead).to(device, dtype)


PRECISIONS: dict[str, Callable[[Model, torch.device], Model]] = {"fp32": to_fp32, "bf16": to_bf16, "int8": to_int8}


def with_precision(model: Model, precision: str, device: torch.device) -> Model:
    """A copy of the model for inference on the device; the model itself stays as it is."""
    make = lookup(precision, PRECISIONS, "precision")
    with torch.no_grad():
        return make(model, device).eval().requires_grad_(False)
