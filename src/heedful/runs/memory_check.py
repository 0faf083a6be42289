"""The memory that training a model needs, computed before any of it is allocated, so that a typo in a size fails at once.

    weights + gradients + optimizer state  =  4 bytes x parameters x (2 + tensors of state per parameter)

Parameters are counted on a copy without storage (torch's "meta" device). Activations are not included: it is a lower bound.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from heedful.errors import OutOfMemory
from heedful.nn.torch_private import weight_norm_operator
from heedful.runs.build import make_model
from heedful.runs.config import Run
from heedful.storage.reading import read_bytes
from heedful.training.optimizers import OptimizerConfig

MIN_VOCAB = 16  # about the smallest vocabulary of any data
BYTES_PER_NUMBER = 4
FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)  # that create parameters
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


class WithoutStorage(TorchFunctionMode):
    """Creates parameters on the "meta" device without initial values. Other tensors stay on their device: on "meta", much of
    torch needs its compiler, which takes seconds to import."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        if func in FACTORIES:
            return func(*args, **named | {"device": "meta"})
        if func in (torch.Tensor.normal_, torch.Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else named["tensor"]
        if func is torch.norm_except_dim:  # of weight normalization: a norm for each row
            return args[0].new_empty(len(args[0]), *[1] * (args[0].dim() - 1))
        return args[0] if func is weight_norm_operator else func(*args, **named)


def require_memory(run: Run, device: torch.device, *, source_vocab: int = MIN_VOCAB, target_vocab: int = MIN_VOCAB) -> None:
    """Raise `OutOfMemory` if weights, gradients and optimizer state exceed the memory of the machine or its GPU.

    Default vocabulary sizes: the smallest, so that the check needs no data."""
    parameters = count_parameters_on_meta(run, source_vocab, target_vocab)
    training = BYTES_PER_NUMBER * parameters * (2 + state_tensors(run.training.optimizer))
    is_gpu = device.type == "cuda"
    needs = {"this machine": (BYTES_PER_NUMBER * parameters if is_gpu else training, machine_memory())}
    if is_gpu:
        needs["the GPU"] = training, torch.cuda.get_device_properties(device).total_memory
    for where, (needed, available) in needs.items():
        if needed > available:
            raise OutOfMemory(
                f"the model has {parameters:,} parameters, and training it takes at least {gibibytes(needed)}, "
                f"but {where} has {gibibytes(available)}",
                hint="choose a smaller model, for example with a smaller model.dim or fewer model.layers",
            )


def count_parameters_on_meta(run: Run, source_vocab: int, target_vocab: int) -> int:
    with torch.random.fork_rng(devices=[]), WithoutStorage():
        model = make_model(run, source_vocab, target_vocab)
    return sum(parameter.numel() for parameter in model.parameters())


def state_tensors(config: OptimizerConfig) -> int:
    """Number of state values of an optimizer for each parameter."""
    count = {"adam": 2, "adamw": 2, "adadelta": 2, "rmsprop": 1, "sgd": 0}[config.name]
    return count + (1 if config.name in ("rmsprop", "sgd") and config.momentum else 0)


def machine_memory() -> int:
    """Bytes of the machine, or of the container around this process."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = read_bytes(CONTAINER_LIMIT).decode().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def gibibytes(count: int) -> str:
    return f"{count / 2**30:,.1f} GiB"
