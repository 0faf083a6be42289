"""torch.compile with a fallback: after the first failure, which is reported, the eager function is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from heedful.nn.torch_private import compile_error, set_compile_cache_limit


def compile_task(task: Any, device: torch.device, announce: Callable[[str], None]) -> None:
    """Compile a task's objective in place; on a GPU with CUDA graphs, one per batch shape."""
    eager = task.objective
    set_compile_cache_limit(64)
    if device.type == "cuda":
        compiled = torch.compile(eager, dynamic=False, mode="reduce-overhead")
    else:
        compiled = torch.compile(eager, dynamic=True)
    task.objective = with_fallback(compiled, eager, announce)


def with_fallback(
    compiled: Callable[..., Any], eager: Callable[..., Any], announce: Callable[[str], None]
) -> Callable[..., Any]:
    """Return a function that calls `compiled`, and `eager` once that has failed."""
    works = True

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal works
        if works:
            try:
                return compiled(*args, **kwargs)
            except compile_error() as error:
                works = False
                reason = str(error).strip().splitlines()[0]
                announce(f"torch.compile failed ({reason}); continuing without it")
        return eager(*args, **kwargs)

    return call


def recompute_blocks(blocks: Iterable[nn.Module]) -> None:
    """Activation checkpointing: each block recomputes its forward pass in the backward pass instead of storing activations."""
    for block in blocks:
        forward = block.forward
        block.forward = lambda *args, forward=forward: torch.utils.checkpoint.checkpoint(forward, *args, use_reentrant=False)
