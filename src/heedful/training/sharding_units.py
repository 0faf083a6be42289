"""The modules whose weights are gathered together when a model is sharded (sharding.py).

A unit gathers its weights when it is called, so nothing else may use them. Most blocks of most models are such units. A
decoder layer whose keys and values of the source are projected beforehand is not quite: that projection becomes a unit of its
own. A block whose weights are read from outside without a call of their module cannot be a unit; its weights are gathered with
those outside of all blocks. Which is which is observed in one forward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from heedful.nn.torch_private import TorchDispatchMode, storage_id, tree_leaves


class WeightUses(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records, while a model runs, the modules that use their weights while their block is not running."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owners: dict[int, tuple[nn.Module, nn.Module]] = {}  # of each weight: its module and its innermost block
        for block in blocks:
            for module in block.modules():
                for weight in module.parameters(recurse=False):
                    self.owners[storage_id(weight.untyped_storage())] = module, block
        self.running: list[nn.Module] = []
        self.called_outside: dict[nn.Module, None] = {}
        self.read_outside: dict[nn.Module, None] = {}  # blocks

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, Tensor):
                self.record(storage_id(leaf.untyped_storage()))
        return operator(*args, **(kwargs or {}))

    def record(self, storage: int) -> None:
        module, block = self.owners.get(storage, (None, None))
        if module is None or block is None or block in self.running:
            return
        if module in self.running:
            self.called_outside[module] = None
        else:
            self.read_outside[block] = None

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Record what is used inside the block."""
        hooks = []
        for module in model.modules():
            hooks.append(module.register_forward_pre_hook(lambda module, _: self.running.append(module)))
            hooks.append(module.register_forward_hook(lambda module, *_: drop(self.running.pop())))
        try:
            with self, torch.no_grad():
                yield
        finally:
            for hook in hooks:
                hook.remove()


def drop(module: nn.Module) -> None:
    """A hook that returns None leaves the output of its module as it is."""


def find_units(model: nn.Module, blocks: Sequence[nn.Module], run: Callable[[], object]) -> list[nn.Module]:
    """The units of a model, inner ones first; run: a forward pass that uses all of its weights."""
    uses = WeightUses(blocks)
    with uses.watching(model):
        run()
    closed = [block for block in blocks if block not in uses.read_outside and not shares_weights(block, model)]
    own_units = [module for module in uses.called_outside if not shares_weights(module, model)]
    return sorted({*closed, *own_units}, key=lambda module: len(list(module.modules())))


def shares_weights(module: nn.Module, model: nn.Module) -> bool:
    """Whether a weight of the module is also one of another module of the model (tied)."""
    inside = [name for part in module.modules() for name in map(id, part.parameters(recurse=False))]
    everywhere = [name for part in model.modules() for name in map(id, part.parameters(recurse=False))]
    return any(everywhere.count(name) > inside.count(name) for name in set(inside))
