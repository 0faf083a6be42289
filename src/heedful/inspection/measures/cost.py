"""The cost of a computation by part of the model, counted instead of timed.

    work        operations of matrix products, 2 per multiply-add; elementwise operations count as traffic only
    traffic     bytes read and written by every kernel, without fusion
    intensity   work / traffic; a machine with F operations and B bytes per second is memory-bound below F / B (the roofline
                model: Williams et al., 2009)

The model runs on torch's meta device, where tensors have shapes but no data, so any size is counted quickly. Attention counts
as a fused kernel that does not write its scores to memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import flop_registry

from heedful.nn.torch_private import TorchDispatchMode, storage_id, tree_leaves

AnyModule = TypeVar("AnyModule", bound=nn.Module)
GATHERS = {"embedding", "index_select", "gather", "index"}  # read as many bytes as they write
FREE = {"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided"}  # access no memory


class Cost(NamedTuple):
    work: int = 0  # operations
    traffic: int = 0  # bytes

    @property
    def intensity(self) -> float:
        return self.work / self.traffic if self.traffic else 0.0


def total(costs: Sequence[Cost]) -> Cost:
    return Cost(sum(cost.work for cost in costs), sum(cost.traffic for cost in costs))


@dataclass
class CostRecord:
    """Costs by part, in order of first use, and the activations saved for the backward pass."""

    parts: dict[str, Cost] = field(default_factory=dict)
    kept: dict[int, tuple[str, int]] = field(default_factory=dict)  # storage -> part that saves it, bytes
    path: list[str] = field(default_factory=lambda: [""])  # paths of the running modules, innermost last

    def charge(self, cost: Cost) -> None:
        """Add a cost to the running part."""
        part = part_of(self.path[-1])
        self.parts[part] = total([self.parts.get(part, Cost()), cost])

    def kept_by(self, part: str) -> int:
        """Return the bytes that a part saves for the backward pass."""
        return sum(size for owner, size in self.kept.values() if owner == part)

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Charge costs to this path."""
        self.path.append(path)
        yield
        self.path.pop()


def part_of(path: str) -> str:
    """decoder.3.cross_attention.core -> decoder.cross_attention: the first two names, without layer numbers."""
    names = [name for name in path.split(".") if not name.isdigit()]
    return ".".join(names[:2]) or "between"


def paths_in_base(model: nn.Module) -> dict[nn.Module, str]:
    """The path of every module in the model without the head of a task."""
    base = getattr(model, "base_model", model)
    own = {module: name for name, module in model.named_modules()}
    return own | {module: name for name, module in base.named_modules()}


def on_meta_device(model: AnyModule) -> AnyModule:
    """Return a copy of the model on the meta device."""
    copied: AnyModule = copy.deepcopy(model).to("meta")
    return copied


@contextmanager
def count_costs(model: nn.Module) -> Iterator[CostRecord]:
    """Record the cost of everything computed inside, by the module that computes it."""
    record = CostRecord()
    parameters = {storage_id(parameter.untyped_storage()) for parameter in model.parameters()}
    storages = []  # kept alive, so that no address is reused

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: record.path.append(name)

    def leave(*_: Any) -> None:
        record.path.pop()

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages.append(storage)
        if storage_id(storage) not in parameters:
            record.kept.setdefault(storage_id(storage), (part_of(record.path[-1]), storage.nbytes()))
        return tensor

    hooks = [module.register_forward_pre_hook(enter(name)) for module, name in paths_in_base(model).items()]
    hooks += [module.register_forward_hook(leave, always_call=True) for module in model.modules()]
    try:
        kept = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with kept, Fused(record.charge), Kernels(record.charge):
            yield record
    finally:
        for hook in hooks:
            hook.remove()


Charge = Callable[[Cost], None]


class Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Charges every kernel that torch would launch."""

    def __init__(self, charge: Charge) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.charge = charge

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        self.charge(cost_of(function, args, kwargs or {}, out))
        return out


def cost_of(function: Any, args: Any, kwargs: Any, out: Any) -> Cost:
    inputs, outputs = tensors((args, kwargs)), tensors(out)
    name = function._overloadpacket._qualified_op_name.split("::")[-1]
    if name in FREE or (not function._schema.is_mutable and outputs and shares_storage(outputs[0], inputs)):
        return Cost()  # no memory access, or a view
    formula = flop_registry.get(function._overloadpacket)
    work = int(formula(*args, **kwargs, out_val=out)) if formula else 0
    return Cost(work, bytes_moved([*(outputs if name in GATHERS else inputs), *outputs]))


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def shares_storage(output: Tensor, inputs: Sequence[Tensor]) -> bool:
    return any(storage_id(output.untyped_storage()) == storage_id(tensor.untyped_storage()) for tensor in inputs)


def bytes_moved(operands: Sequence[Tensor]) -> int:
    """Return the bytes of all tensors; data repeated by zero strides counts once."""
    return sum(min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()) for tensor in operands)


class Fused(TorchFunctionMode):
    """Charges attention and grouped matrix products (each token with its own expert's matrix) as one kernel each."""

    def __init__(self, charge: Charge) -> None:
        super().__init__()
        self.charge = charge

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is functional.scaled_dot_product_attention:
            query, key, value, *rest = args
            return _Attention.apply(query, key, value, bytes_moved(tensors(rest)), self.charge)  # type: ignore[no-untyped-call]
        if getattr(function, "__name__", None) == "_grouped_mm":  # called by functional.grouped_mm
            return _Grouped.apply(*args, self.charge)  # type: ignore[no-untyped-call]
        return function(*args, **(kwargs or {}))


class _Attention(torch.autograd.Function):
    """Two products in the forward pass, five in the backward pass, which recomputes the weights (Dao et al., 2022)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: int, charge: Charge) -> Tensor:
        """query (…, n, head_dim), key and value (…, m, head_dim); mask: size of the attention mask in bytes."""
        out = query.new_empty(*query.shape[:-1], value.shape[-1])
        ctx.save_for_backward(query, key, value, out)
        ctx.product = 2 * query.numel() * key.shape[-2]  # operations
        ctx.mask, ctx.charge = mask, charge
        charge(Cost(2 * ctx.product, mask + bytes_moved([query, key, value, out])))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, out = ctx.saved_tensors
        outputs = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        ctx.charge(Cost(5 * ctx.product, ctx.mask + bytes_moved([query, key, value, out, *gradients, *outputs])))
        return *outputs, None, None


class _Grouped(torch.autograd.Function):
    """One product in the forward pass, two in the backward pass; the cost does not depend on the number of experts."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, charge: Charge) -> Tensor:
        """x (tokens, inputs), weight (experts, inputs, outputs) -> (tokens, outputs)."""
        out = x.new_empty(len(x), weight.shape[-1])
        ctx.save_for_backward(x, weight)
        ctx.charge, ctx.product = charge, 2 * x.numel() * weight.shape[-1]
        charge(Cost(ctx.product, bytes_moved([x, weight, out])))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        outputs = torch.empty_like(x), torch.empty_like(weight)
        ctx.charge(Cost(2 * ctx.product, bytes_moved([x, weight, *gradients, *outputs])))
        return *outputs, None
