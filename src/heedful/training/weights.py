"""Loading weights into a model: names, shapes and types must match."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from heedful.errors import CheckpointError

Shapes = Mapping[str, tuple[int, ...]]
SHOWN = 5  # differences in a message
SLACK = 4  # a model may have this many times the parameters and tensors of its weights
SMALL = 1024  # and this many more


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether no value is infinite or NaN; one sum per tensor and one synchronization."""
    values = [tensor.detach() for tensor in tensors if tensor.is_floating_point() and tensor.numel()]
    if not values or bool(torch.stack([value.sum().isfinite() for value in values]).all()):
        return True  # a non-finite value makes the sum non-finite
    return all(bool(value.isfinite().all()) for value in values)  # the sum alone may have overflowed


def load_into(model: nn.Module, weights: Mapping[str, Tensor], where: Path) -> None:
    """Load weights by name; CheckpointError if a name, shape or type differs."""
    own = model.state_dict()
    check_shapes(shapes_of(own), shapes_of(weights), where)
    wrong = [
        f"{name} has type {weights[name].dtype}, expected {own[name].dtype}"
        for name in own
        if weights[name].dtype != own[name].dtype
    ]
    if wrong:
        raise mismatch(where, wrong)
    model.load_state_dict(dict(weights))


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def check_shapes(own: Shapes, given: Shapes, where: Path) -> None:
    wrong = [f"{name} is missing" for name in own.keys() - given.keys()]
    wrong += [f"{name} is not in the model" for name in given.keys() - own.keys()]
    wrong += [
        f"{name} has shape {given[name]}, expected {own[name]}"
        for name in own.keys() & given.keys()
        if own[name] != given[name]
    ]
    if wrong:
        raise mismatch(where, wrong)


def mismatch(where: Path, wrong: list[str]) -> CheckpointError:
    more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    return CheckpointError(
        f"the weights of {where} do not fit the model: {'; '.join(sorted(wrong)[:SHOWN])}{more}",
        hint="restore the run folder from a backup, or use another checkpoint with --checkpoint",
    )


@contextmanager
def parameter_limit(given: Shapes, where: Path) -> Iterator[None]:
    """Limit the size of a model built in this block, which will load the weights `given`; a much larger one is an error.

    A config may have any number of layers of any size. Parameters are counted when they are registered, before they are
    initialized: until then the system has not allocated their memory. A tied or replaced parameter counts again."""
    thread = threading.get_ident()
    parameters_left = SLACK * sum(math.prod(shape) for shape in given.values()) + SMALL
    tensors_left = SLACK * len(given) + SMALL

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal parameters_left, tensors_left
        if threading.get_ident() == thread and parameter is not None:
            parameters_left -= parameter.numel()
            tensors_left -= 1
            if parameters_left < 0 or tensors_left < 0:
                raise too_small(given, where)

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # one tensor larger than the address space
        raise too_small(given, where) from error
    finally:
        hook.remove()


def too_small(given: Shapes, where: Path) -> CheckpointError:
    parameters = sum(math.prod(shape) for shape in given.values())
    return mismatch(where, [f"they have {parameters:,} parameters in {len(given):,} tensors, its config has more"])
