"""Hook points (taps): named places in a model where activations can be recorded or changed.

A tap is an identity. A hook is a function `tensor -> tensor` on it: recording returns its input, ablation returns zeros,
patching returns a stored value. A tap's name is the path of its module:

>>> import torch
>>> from heedful.models.transformer import Transformer, TransformerConfig
>>> model = Transformer(TransformerConfig(dim=16, layers=2, heads=2, feed_forward=32), 20, 20).eval()
>>> source, target = torch.randint(4, 20, (3, 5)), torch.randint(4, 20, (3, 7))
>>> with record(model, "decoder.*.cross_attention.weights") as seen:
...     out = model.step(target, model.start(source, None, room=0))
>>> seen["decoder.0.cross_attention.weights"].shape        # (rows, heads, query, key)
torch.Size([3, 2, 7, 5])
>>> with ablate(model, "decoder.1.cross_attention.context"):
...     without = model.step(target, model.start(source, None, room=0))
>>> with patch(model, seen):
...     again = model.step(target, model.start(source, None, room=0))

A hook acts only in the context (`contextvars`) that registered it: other threads and other asyncio tasks that use the same
model neither see nor feel it. A task started inside the block, and `asyncio.to_thread`, inherit the context and the hook; a
plain thread does so by `contextvars.copy_context().run`. The hook ends with its block, wherever it was inherited.

A computation that is only needed for a hook (attention weights) asks `tap.wanted` first; one that must take another path
when a hook may change the value asks `tap.changes`. Without any hook both read one attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError, nearest

SCOPES: ContextVar[frozenset[int]] = ContextVar("SCOPES", default=frozenset())  # whose hooks act in this context
NUMBERS = count()


class Hook(NamedTuple):
    scope: int  # the block that registered it
    function: Callable[[Tensor], Tensor]
    changes: bool  # whether it may return another value than it was given


class HookPoint(nn.Module):
    """An identity, unless the calling context has hooks on it."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks: list[Hook] = []  # of all contexts; only appended to and removed from, which threads may do at once

    def active(self) -> list[Hook]:
        """The hooks of the calling context, in the order of their registration."""
        scopes = SCOPES.get()
        return [hook for hook in tuple(self.hooks) if hook.scope in scopes]

    @property
    def wanted(self) -> bool:
        return bool(self.hooks) and bool(self.active())

    @property
    def changes(self) -> bool:
        return bool(self.hooks) and any(hook.changes for hook in self.active())

    def forward(self, x: Tensor) -> Tensor:
        if self.hooks:
            for hook in self.active():
                x = hook.function(x)
        return x

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles have no hooks."""
        return self.__dict__ | {"hooks": []}

    if TYPE_CHECKING:
        __call__ = forward


def any_hooks() -> bool:
    """Whether the calling context has hooks on any model."""
    return bool(SCOPES.get())


def hook_points(model: nn.Module) -> dict[str, HookPoint]:
    """Every tap of a model by name, in the order of the model."""
    return {name: module for name, module in model.named_modules() if isinstance(module, HookPoint)}


def matching_points(model: nn.Module, pattern: str) -> dict[str, HookPoint]:
    """The taps whose name fits a shell pattern; a pattern that fits none is an error."""
    known = hook_points(model)
    found = {name: tap for name, tap in known.items() if fnmatchcase(name, pattern)}
    if not found:
        close = nearest(pattern, known)
        raise ConfigError(
            f"no tap fits {pattern!r}; this model has: {', '.join(known) or 'none'}",
            hint=f"did you mean {close!r}?" if close else None,
        )
    return found


@contextmanager
def hook(model: nn.Module, pattern: str, listener: Callable[[str, Tensor], Tensor]) -> Iterator[None]:
    """Let `listener(name, tensor) -> tensor` change what passes the matching taps."""
    with register(matching_points(model, pattern), listener, changes=True):
        yield


@contextmanager
def record(model: nn.Module, *patterns: str) -> Iterator[dict[str, Tensor]]:
    """Collect what passes the matching taps, by name; the last value wins. No output changes by a bit."""
    found = {name: tap for pattern in patterns for name, tap in matching_points(model, pattern).items()}
    seen: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> Tensor:
        seen[name] = x.detach()
        return x

    with register(found, keep, changes=False):
        yield seen


@contextmanager
def ablate(model: nn.Module, pattern: str) -> Iterator[None]:
    """Let zeros pass the matching taps."""
    with hook(model, pattern, lambda name, x: torch.zeros_like(x)):
        yield


@contextmanager
def patch(model: nn.Module, values: dict[str, Tensor]) -> Iterator[None]:
    """Let the given values pass the taps of these names."""
    found = {name: tap for pattern in values for name, tap in matching_points(model, pattern).items()}
    with register(found, lambda name, x: values[name].to(x), changes=True):
        yield


@contextmanager
def register(found: dict[str, HookPoint], function: Callable[[str, Tensor], Tensor], *, changes: bool) -> Iterator[None]:
    """Register `function(name, tensor) -> tensor` on these taps, for the calling context and until the block ends."""
    scope = next(NUMBERS)
    hooks = [(tap, Hook(scope, partial(function, name), changes)) for name, tap in found.items()]
    SCOPES.set(SCOPES.get() | {scope})
    try:
        for tap, hook in hooks:
            tap.hooks.append(hook)
        yield
    finally:
        for tap, hook in hooks:
            if hook in tap.hooks:
                tap.hooks.remove(hook)
        SCOPES.set(SCOPES.get() - {scope})  # not `reset`: a generator may end in another context than it began in
