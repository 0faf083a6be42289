"""Taps: named places in a model where one may listen or interfere.

A tap is an identity; a listener is a function `tensor -> tensor`. Recording returns its input, ablation returns zeros,
patching returns a stored value: three techniques, one mechanism.

    with record(model, "decoder.*.cross.weights") as seen:
        model.step(target, model.start(source, source_mask, room=0))
    seen["decoder.0.cross.weights"]        # (rows, heads, query, key)

A tap's name is the path of its module. A computation that is only worth doing when somebody listens (attention weights)
asks `tap.wanted` first; one that must be done the explicit way when somebody may change it asks `tap.changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError, nearest

Listener = Callable[[Tensor], Tensor]


class Tap(nn.Module):
    """An identity until somebody listens."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[tuple[Listener, bool]] = []  # (listener, whether it may change what it hears)

    @property
    def wanted(self) -> bool:
        return bool(self.listeners)

    @property
    def changes(self) -> bool:
        return any(changes for _, changes in self.listeners)

    def forward(self, x: Tensor) -> Tensor:
        for listener, _ in self.listeners:
            x = listener(x)
        return x

    if TYPE_CHECKING:
        __call__ = forward


def taps(model: nn.Module) -> dict[str, Tap]:
    """Every tap of a model by name, in the order of the model."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


def matching(model: nn.Module, pattern: str) -> dict[str, Tap]:
    """The taps whose name fits a shell pattern; a pattern that fits none is an error."""
    known = taps(model)
    found = {name: tap for name, tap in known.items() if fnmatchcase(name, pattern)}
    if not found:
        close = nearest(pattern, known)
        raise ConfigError(
            f"no tap fits {pattern!r}; this model has: {', '.join(known) or 'none'}",
            hint=f"did you mean {close!r}?" if close else None,
        )
    return found


@contextmanager
def listen(model: nn.Module, pattern: str, listener: Callable[[str, Tensor], Tensor]) -> Iterator[None]:
    """Let `listener(name, tensor) -> tensor` change what passes the matching taps."""
    with _attached(matching(model, pattern), listener, changes=True):
        yield


@contextmanager
def record(model: nn.Module, *patterns: str) -> Iterator[dict[str, Tensor]]:
    """Collect what passes the matching taps, by name; the last value wins. No output changes by a bit."""
    found = {name: tap for pattern in patterns for name, tap in matching(model, pattern).items()}
    seen: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> Tensor:
        seen[name] = x.detach()
        return x

    with _attached(found, keep, changes=False):
        yield seen


@contextmanager
def ablate(model: nn.Module, pattern: str) -> Iterator[None]:
    """Let zeros pass the matching taps."""
    with listen(model, pattern, lambda name, x: torch.zeros_like(x)):
        yield


@contextmanager
def patch(model: nn.Module, values: dict[str, Tensor]) -> Iterator[None]:
    """Let the given values pass the taps of these names."""
    found = {name: tap for pattern in values for name, tap in matching(model, pattern).items()}
    with _attached(found, lambda name, x: values[name].to(x), changes=True):
        yield


@contextmanager
def _attached(found: dict[str, Tap], listener: Callable[[str, Tensor], Tensor], *, changes: bool) -> Iterator[None]:
    added: list[tuple[Tap, tuple[Listener, bool]]] = []
    try:
        for name, tap in found.items():
            entry: tuple[Listener, bool] = (partial(listener, name), changes)
            tap.listeners.append(entry)
            added.append((tap, entry))
        yield
    finally:
        for tap, listening in added:
            tap.listeners.remove(listening)
