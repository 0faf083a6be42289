"""Functions of torch that are not part of its public interface: all uses are in this file.

Each comes with what it does and what to use instead if a later version of torch no longer has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# The base class of modes that see every operator call. Without it: torch.utils.flop_counter.FlopCounterMode, which counts less.
from torch.utils._python_dispatch import TorchDispatchMode

# All leaves of nested tuples, lists and dictionaries. Without it: a recursion over these three types.
from torch.utils._pytree import tree_leaves

__all__ = ["TorchDispatchMode", "tree_leaves"]

# The operator behind weight normalization, w = g v / |v|. Without it: drop the special case in `memory_check.py`.
weight_norm_operator = torch._weight_norm


def current_backward_id() -> int:
    """Return a number that differs between calls of backward. Without it: use plain autograd in `shared_weight_grad.py`."""
    return int(torch._C._current_graph_task_id())


def scan(step: Callable[[Any, Any], tuple[Any, Any]], initial: Any, inputs: Tensor) -> tuple[Any, Any]:
    """Run `step(state, input) -> state, output` over dim 0 as one exportable operator. Without it: export an unrolled loop."""
    from torch._higher_order_ops.scan import scan

    state, outputs = scan(step, initial, inputs)
    return state, outputs


def fused_lstm_cell(input_gates: Tensor, hidden_gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the pointwise part of an LSTM cell in one CUDA kernel. Without it: the formula in `recurrent.py`."""
    hidden, cell, _ = torch.ops.aten._thnn_fused_lstm_cell(input_gates, hidden_gates, cell)
    return hidden, cell


def fused_gru_cell(input_gates: Tensor, hidden_gates: Tensor, hidden: Tensor) -> Tensor:
    """Compute the pointwise part of a GRU cell in one CUDA kernel. Without it: the formula in `recurrent.py`."""
    new: Tensor = torch.ops.aten._thnn_fused_gru_cell(input_gates, hidden_gates, hidden)[0]
    return new


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x W^T + b by oneDNN; the weight may be packed. Without it: torch.nn.functional.linear with plain weights."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def pack_linear_weight(weight: Tensor, rows: int) -> Tensor:
    """Reorder a weight for oneDNN and inputs of `rows` rows. Without it: keep the plain weight."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return packed


def has_onednn_bf16() -> bool:
    """Return whether oneDNN multiplies in bfloat16 on this CPU. Without it: return False, and plain linear maps are used."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_vnni() -> bool:
    """Return whether this CPU adds int8 products in 32 bits. Without it: return False, which costs one bit of precision."""
    return bool(torch.cpu._is_vnni_supported())


def pack_int8_weight(weight: Tensor, rows: int) -> Tensor:
    """Reorder an int8 weight (outputs, inputs) for `int8_linear`. Without it: refuse precision 'int8'."""
    packed: Tensor = torch.ops.onednn.qlinear_prepack(weight, [rows, weight.shape[1]])
    return packed


def int8_linear(x: Tensor, packed: Tensor, scale: Tensor, zero_point: Tensor, bias: Tensor) -> Tensor:
    """Compute x W^T in integers for x in uint8, scaled for each output, plus bias. Without it: refuse precision 'int8'."""
    out: Tensor = torch.ops.onednn.qlinear_pointwise(
        x, 1.0, 0, packed, scale, zero_point, bias, 1.0, 0, torch.float32, "none", [], ""
    )
    return out


def set_compile_cache_limit(limit: int) -> None:
    """Let torch.compile keep this many versions of a function. Without it: drop the call; rare shapes then run uncompiled."""
    torch._dynamo.config.cache_size_limit = limit


def compile_error() -> type[Exception]:
    """Return the class of errors that torch.compile raises. Without it: RuntimeError. Imports the compiler."""
    error: type[Exception] = torch._dynamo.exc.TorchDynamoException
    return error


def divide_all(tensors: list[Tensor], divisor: float) -> None:
    """Divide tensors in place with few kernels. Without it: a loop over `Tensor.div_`."""
    torch._foreach_div_(tensors, divisor)


def copy_all(destinations: list[Tensor], sources: list[Tensor]) -> None:
    """Copy each tensor into another of the same shape, with few kernels. Without it: a loop over `Tensor.copy_`."""
    torch._foreach_copy_(destinations, sources)


def lerp_all(tensors: list[Tensor], ends: list[Tensor], weight: float) -> None:
    """tensors += weight (ends - tensors), in place with few kernels. Without it: a loop over `Tensor.lerp_`."""
    torch._foreach_lerp_(tensors, ends, weight)


def is_view(tensor: Tensor) -> bool:
    """Return whether autograd tracks this tensor as a view of another. Without it: return True, which costs a copy."""
    return bool(tensor._is_view())


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Apply a function to every tensor in nested tuples, lists and dictionaries. Without it: a recursion over these types."""
    from torch.utils._pytree import tree_map_only

    return tree_map_only(Tensor, function, tree)


def all_gather(whole: Tensor, part: Tensor, *, group: Any = None, async_op: bool = False) -> Any:
    """Concatenate the parts of all ranks. torch 2.13 has renamed the function; the old name is all that 2.11 has."""
    gather = getattr(torch.distributed, "all_gather_single", torch.distributed.all_gather_into_tensor)
    return gather(whole, part, group=group, async_op=async_op)


def storage_id(storage: torch.UntypedStorage) -> int:
    """Return a number that is equal for tensors which share memory, "meta" ones too. Without it: `data_ptr`, if not meta."""
    return int(storage._cdata)
