"""What a computation costs, part by part, counted and not timed.

    work        2 operations for each multiplication and addition of a matrix product; what surrounds the products is
                paid for in traffic, not in operations
    traffic     bytes that every kernel reads and writes, each kernel by itself
    intensity   work / traffic; a machine that does F operations and moves B bytes in a second waits for its memory
                wherever the intensity is below F / B (the roofline: Williams et al., 2009)

The model is counted on torch's meta device, where tensors have shapes and no contents, so any size is counted at once.
Attention counts as one kernel that keeps its scores to itself, as the fused ones do.
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
GATHERS = {"embedding", "index_select", "gather", "index"}  # read no more than they give
FREE = {"empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided"}  # touch no memory


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
    """Costs by part, in the order in which the parts were first used, and what is kept for the backward pass."""

    parts: dict[str, Cost] = field(default_factory=dict)
    kept: dict[int, tuple[str, int]] = field(default_factory=dict)  # storage -> the part that keeps it, bytes
    path: list[str] = field(default_factory=lambda: [""])  # the modules that are at work, the innermost last

    def charge(self, cost: Cost) -> None:
        part = part_of(self.path[-1])
        self.parts[part] = total([self.parts.get(part, Cost()), cost])

    def kept_by(self, part: str) -> int:
        return sum(size for keeper, size in self.kept.values() if keeper == part)

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        self.path.append(path)
        yield
        self.path.pop()


def part_of(path: str) -> str:
    """decoder.3.cross.look -> decoder.cross: two names deep, the numbers of layers left out."""
    names = [name for name in path.split(".") if not name.isdigit()]
    return ".".join(names[:2]) or "between"


def on_meta_device(model: AnyModule) -> AnyModule:
    """The model without its contents. It can be run where things are counted, and only there."""
    made: AnyModule = copy.deepcopy(model).to("meta")
    return made


@contextmanager
def count_costs(model: nn.Module) -> Iterator[CostRecord]:
    """Everything that is computed inside is put on the bill, under the name of the module that computes it."""
    bill = CostRecord()
    own = {storage_id(parameter.untyped_storage()) for parameter in model.parameters()}
    held = []  # so that no address is given to two

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: bill.path.append(name)

    def leave(*_: Any) -> None:
        bill.path.pop()

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held.append(storage)
        if storage_id(storage) not in own:
            bill.kept.setdefault(storage_id(storage), (part_of(bill.path[-1]), storage.nbytes()))
        return tensor

    hooks = [module.register_forward_pre_hook(enter(name)) for name, module in model.named_modules()]
    hooks += [module.register_forward_hook(leave, always_call=True) for module in model.modules()]
    try:
        kept = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with kept, Fused(bill.charge), Kernels(bill.charge):
            yield bill
    finally:
        for hook in hooks:
            hook.remove()


Charge = Callable[[Cost], None]


class Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Charges for every kernel that torch would start."""

    def __init__(self, charge: Charge) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.charge = charge

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        self.charge(cost_of(function, args, kwargs or {}, out))
        return out


def cost_of(function: Any, args: Any, kwargs: Any, out: Any) -> Cost:
    given, made = tensors((args, kwargs)), tensors(out)
    name = function._overloadpacket._qualified_op_name.split("::")[-1]
    if name in FREE or (not function._schema.is_mutable and made and shares(made[0], given)):
        return Cost()  # nothing is touched, or only seen another way
    formula = flop_registry.get(function._overloadpacket)
    work = int(formula(*args, **kwargs, out_val=out)) if formula else 0
    return Cost(work, moved([*(made if name in GATHERS else given), *made]))


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def shares(made: Tensor, given: Sequence[Tensor]) -> bool:
    return any(storage_id(made.untyped_storage()) == storage_id(one.untyped_storage()) for one in given)


def moved(several: Sequence[Tensor]) -> int:
    """Bytes; what is only repeated by its strides is read once."""
    return sum(min(one.numel() * one.element_size(), one.untyped_storage().nbytes()) for one in several)


class Fused(TorchFunctionMode):
    """Charges for attention, and for a product of each token with its own expert's matrix, as one kernel each."""

    def __init__(self, charge: Charge) -> None:
        super().__init__()
        self.charge = charge

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is functional.scaled_dot_product_attention:
            query, key, value, *rest = args
            return _Attention.apply(query, key, value, moved(tensors(rest)), self.charge)  # type: ignore[no-untyped-call]
        if getattr(function, "__name__", None) == "_grouped_mm":  # what functional.grouped_mm calls
            return _Grouped.apply(*args, self.charge)  # type: ignore[no-untyped-call]
        return function(*args, **(kwargs or {}))


class _Attention(torch.autograd.Function):
    """Two products forwards; backwards five, since the weights are computed again (Dao et al., 2022)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: int, charge: Charge) -> Tensor:
        """query (…, n, head_dim), key and value (…, m, head_dim); mask: its bytes."""
        out = query.new_empty(*query.shape[:-1], value.shape[-1])
        ctx.save_for_backward(query, key, value, out)
        ctx.product = 2 * query.numel() * key.shape[-2]  # operations
        ctx.mask, ctx.charge = mask, charge
        charge(Cost(2 * ctx.product, mask + moved([query, key, value, out])))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, out = ctx.saved_tensors
        made = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        ctx.charge(Cost(5 * ctx.product, ctx.mask + moved([query, key, value, out, *gradients, *made])))
        return *made, None, None


class _Grouped(torch.autograd.Function):
    """One product forwards, two backwards, of the tokens there are, however many experts there are."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, charge: Charge) -> Tensor:
        """x (tokens, inputs), weight (experts, inputs, outputs) -> (tokens, outputs)."""
        out = x.new_empty(len(x), weight.shape[-1])
        ctx.save_for_backward(x, weight)
        ctx.charge, ctx.product = charge, 2 * x.numel() * weight.shape[-1]
        charge(Cost(ctx.product, moved([x, weight, out])))
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        made = torch.empty_like(x), torch.empty_like(weight)
        ctx.charge(Cost(2 * ctx.product, moved([x, weight, *gradients, *made])))
        return *made, None
