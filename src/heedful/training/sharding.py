"""Fully sharded data parallelism (FSDP2): each rank stores its part of every weight, gradient and optimizer state.

    forward, backward    the weights of a block are gathered when it runs, and released afterwards
    gradients            rank r receives the sum of slice r, added in the order of the ranks (ranks.py)
    update               of plain tensors that share memory with this rank's part

A weight (rows, …) is cut along its first dimension, as `Tensor.chunk` does. A checkpoint has whole weights, or with
training.sharded_save the parts of all ranks (sharded_checkpoint.py). Ranks validate different examples, each with a replica of
the model whose weights are whole, and are freed after the validation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from heedful.nn.losses import Loss
from heedful.nn.torch_private import all_gather, is_view, map_tensors
from heedful.training.ranks import Group, add_slices, lost_ranks
from heedful.training.update import Accumulate, Objective

Model = TypeVar("Model", bound=nn.Module)


class Replica(NamedTuple):
    """An unsharded copy of a model, for validation."""

    model: nn.Module  # without weights, except during a validation
    task: Any
    forget: Callable[[], object]  # drops what the task has computed or captured with these weights


class Shards:
    """This rank's part of the weights of a model, as plain tensors; used like the model by optimizers and averages."""

    def __init__(self, model: nn.Module, units: Sequence[nn.Module], group: Group, replica: Replica) -> None:
        """Shard the model in place; units: modules whose weights are gathered one at a time, inner ones first."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard  # importing it takes a while

        self.group, self.unsharded = group, replica
        group.copy_from_first(list(model.state_dict().values()))
        self.shapes = {name: parameter.shape for name, parameter in model.named_parameters(remove_duplicate=False)}
        self.objective: Any = ObjectiveModule(model)
        device = next(model.parameters()).device.type
        mesh = init_device_mesh(device, (group.size,))
        for unit in units:
            unit.register_forward_hook(lambda module, inputs, output: map_tensors(own_memory, output))
        for module in (*units, self.objective):
            fully_shard(module, mesh=mesh)
            use_own_collectives(module, group)
        self.sharded: dict[str, Any] = dict(model.named_parameters(remove_duplicate=False))
        self.buffers = {name: value for name, value in model.state_dict().items() if name not in self.sharded}
        own: dict[int, nn.Parameter] = {}  # tied weights are one parameter
        self.local = {
            name: own.setdefault(id(parameter), nn.Parameter(parameter.to_local(), requires_grad=parameter.requires_grad))
            for name, parameter in self.sharded.items()
        }

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        first = {id(parameter): name for name, parameter in reversed(self.local.items())}
        return ((name, parameter) for name, parameter in self.local.items() if first[id(parameter)] == name)

    def parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for _, parameter in self.named_parameters())

    def state_dict(self) -> dict[str, Tensor]:
        detached = {id(parameter): parameter.detach() for parameter in self.local.values()}  # one tensor for tied weights
        return {name: detached[id(parameter)] for name, parameter in self.local.items()} | self.buffers

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self.state_dict().items():
            tensor.copy_(tensors[name])

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in (*self.local.values(), *self.sharded.values()):
            parameter.grad = None

    def accumulation(self, loss: Callable[[Any], Objective]) -> Accumulate:
        """A function that adds the gradients of a batch to those of this rank's part."""
        self.objective.loss = loss

        def accumulate(batch: Any, factor: float) -> dict[str, Loss]:
            with lost_ranks():
                total, report = self.objective(batch)
                (total * factor).backward()
            for name, parameter in self.sharded.items():
                if parameter.grad is not None:
                    self.local[name].grad, parameter.grad = parameter.grad.to_local(), None
            return {name: Loss(total.detach(), count) for name, (total, count) in report.items()}

        return accumulate

    def begin_part(self, last: bool) -> None:
        """Sum gradients over ranks after the last part of an update only."""
        self.objective.set_requires_gradient_sync(last)

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors on the CPU of rank 0, from the parts of all ranks; names may have a suffix, as optimizer states have.
        Other ranks have no memory for them and return nothing."""
        whole: dict[int, Tensor] = {}
        for number, (name, part) in first_of_tied(tensors):
            gathered = self.gather_one(name, part)
            if self.group.first:
                whole[number] = gathered
        return {name: whole[id(part)] for name, part in tensors.items()} if self.group.first else {}

    def gather_one(self, name: str, part: Tensor) -> Tensor:
        shape = self.whole_shape(name, part)
        if shape is None:
            return part.detach().cpu()
        group, rows = self.group, -(-shape[0] // self.group.size)
        padded = part.new_zeros((rows, *shape[1:]))
        padded[: len(part)] = part.detach()
        padded = group.readable(padded)
        gathered = padded.new_empty((rows * group.size, *shape[1:]))
        with lost_ranks():
            all_gather(gathered, padded)
        return gathered[: shape[0]].cpu()

    def whole_shape(self, name: str, part: Tensor) -> torch.Size | None:
        """The shape of the whole tensor; None if every rank has all of it: a buffer, or the step of an optimizer."""
        return None if part.dim() == 0 else self.shapes.get(name.split(":")[0])

    def cut(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This rank's part of whole tensors."""
        return {name: self.cut_one(name, tensor) for name, tensor in tensors.items()}

    def cut_one(self, name: str, tensor: Tensor) -> Tensor:
        if self.whole_shape(name, tensor) is None:
            return tensor
        rows = -(-tensor.shape[0] // self.group.size)
        return tensor[rows * self.group.rank : rows * (self.group.rank + 1)]

    @contextmanager
    def replica(self) -> Iterator[Replica]:
        """The unsharded copy with the current weights."""
        own = self.unsharded.model.state_dict(keep_vars=True)
        for _, (name, part) in first_of_tied(self.state_dict()):
            whole = self.gather_one(name, part)
            if isinstance(own[name], nn.Parameter):
                own[name].data = whole.to(part.device)
            else:
                own[name].copy_(whole)
        try:
            yield self.unsharded
        finally:
            self.unsharded.forget()
            for parameter in self.unsharded.model.parameters():
                parameter.data = parameter.data.new_empty(0)


def first_of_tied(tensors: Mapping[str, Tensor]) -> Iterator[tuple[int, tuple[str, Tensor]]]:
    """Each tensor once, with its id; tied weights have several names."""
    seen: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in tensors.items():
        seen.setdefault(id(tensor), (name, tensor))
    return iter(seen.items())


def copy_without_weights(model: Model) -> Model:
    """A copy of a model whose parameters are empty."""
    empty = {id(parameter): nn.Parameter(parameter.new_empty(0), parameter.requires_grad) for parameter in model.parameters()}
    return copy.deepcopy(model, empty)  # which takes what the second argument has instead of copying it


def own_memory(tensor: Tensor) -> Tensor:
    """A copy of a view: the hook of FSDP on the output of a unit would be lost if the view were changed in place."""
    return tensor.clone() if is_view(tensor) else tensor


class ObjectiveModule(nn.Module):
    """The objective as a module: the weights outside of all blocks are gathered while it runs."""

    loss: Callable[[Any], Objective]

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """The loss and the losses to report, as tensors: hooks of FSDP look for tensors in the output."""
        objective = self.loss(batch)
        return objective.minimize.total, {name: (loss.total, loss.count) for name, loss in objective.report.items()}


class RankOrderReduceScatter:
    """The sum of slice r of all ranks' inputs, added in the order of the ranks, on rank r."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> None:
        total = add_slices(self.group.readable(input_tensor), self.group.size, group)
        output_tensor.copy_(total.view_as(output_tensor))


class CopyingAllGather:
    """All ranks' inputs one after another, through the memory that the backend can read."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        part = self.group.readable(input_tensor)
        whole = torch.empty(output_tensor.shape, dtype=part.dtype, pin_memory=True)
        all_gather(whole, part, group=group)
        output_tensor.copy_(whole)


def use_own_collectives(module: Any, group: Group) -> None:
    """Sum gradients in the order of the ranks, and exchange through the CPU where the backend cannot read the GPU."""
    module.set_gradient_divide_factor(1.0)  # gradients are sums, not means, over ranks
    module.set_force_sum_reduction_for_comms(True)
    module.set_custom_reduce_scatter(RankOrderReduceScatter(group))
    if group.device.type != next(module.parameters()).device.type:
        module.set_custom_all_gather(CopyingAllGather(group))
