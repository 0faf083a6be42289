"""torch.compile, where it works: the first failure is announced and the plain functions are used from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from heedful.nn.torch_private import compile_error, set_compile_cache_limit


def compile_task(task: Any, device: torch.device, announce: Callable[[str], None]) -> None:
    """Compile a task's objective in place. On a GPU its kernels are captured too, a graph for each shape that occurs."""
    plain = task.objective
    set_compile_cache_limit(64)
    if device.type == "cuda":
        quick = torch.compile(plain, dynamic=False, mode="reduce-overhead")
    else:
        quick = torch.compile(plain, dynamic=True)
    task.objective = falling_back(quick, plain, announce)


def falling_back(quick: Callable[..., Any], plain: Callable[..., Any], announce: Callable[[str], None]) -> Callable[..., Any]:
    works = True

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal works
        if works:
            try:
                return quick(*args, **kwargs)
            except compile_error() as error:
                works = False
                reason = str(error).strip().splitlines()[0]
                announce(f"torch.compile does not work here ({reason}); going on without it")
        return plain(*args, **kwargs)

    return call


def recompute_blocks(blocks: list[nn.Module]) -> None:
    """Activation checkpointing: a block's forward pass is run again in the backward pass instead of remembered."""
    for block in blocks:
        forward = block.forward
        block.forward = lambda *args, forward=forward: torch.utils.checkpoint.checkpoint(forward, *args, use_reentrant=False)
