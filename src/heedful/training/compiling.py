"""torch.compile, where it works: the first failure is announced and the plain functions are used from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def compile_model(model: nn.Module, announce: Callable[[str], None]) -> None:
    """Compile a model's `start` and `step` in place; lengths may vary without compiling again."""
    for name in ("start", "step"):
        plain = getattr(model, name)
        setattr(model, name, falling_back(torch.compile(plain, dynamic=True), plain, announce))


def falling_back(quick: Callable[..., Any], plain: Callable[..., Any], announce: Callable[[str], None]) -> Callable[..., Any]:
    works = True

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal works
        if works:
            try:
                return quick(*args, **kwargs)
            except torch._dynamo.exc.TorchDynamoException as error:
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
