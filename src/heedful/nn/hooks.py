"""Hook points: named places in a model where activations can be recorded or changed.

A hook point is an identity. A hook is a function `tensor -> tensor` registered on it: recording returns its input, ablation
returns zeros, patching returns a stored value. The name of a hook point is the path of its module:

>>> import torch
>>> from heedful.models.transformer import Transformer, TransformerConfig
>>> model = Transformer(TransformerConfig(dim=16, layers=2, heads=2, feed_forward=32), 20, 20).eval()
>>> source, target = torch.randint(4, 20, (3, 5)), torch.randint(4, 20, (3, 7))
>>> with record(model, "decoder.*.cross_attention.weights") as recorded:
...     out = model.step(target, model.start(source, None, room=0))
>>> recorded["decoder.0.cross_attention.weights"].shape        # (rows, heads, query, key)
torch.Size([3, 2, 7, 5])
>>> with ablate(model, "decoder.1.cross_attention.context"):
...     without = model.step(target, model.start(source, None, room=0))
>>> with patch(model, recorded):
...     again = model.step(target, model.start(source, None, room=0))

A hook acts only in the context (`contextvars`) that registered it: it does not affect other threads and asyncio tasks that
use the same model. A task started inside the block, and `asyncio.to_thread`, inherit the context and the hook; a plain
thread does so by `contextvars.copy_context().run`. The hook ends with its block, also where it was inherited.

A computation that only hooks need (attention weights) checks `point.has_hooks` first; one that needs another code path when
a hook may change the value checks `point.changes`. Without any hook both read one attribute.
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

SCOPES: ContextVar[frozenset[int]] = ContextVar("SCOPES", default=frozenset())  # blocks whose hooks act in this context
SCOPE_IDS = count()


class Hook(NamedTuple):
    scope: int  # the block that registered it
    function: Callable[[Tensor], Tensor]
    changes: bool  # whether it may return another value than its input


class HookPoint(nn.Module):
    """An identity that applies the hooks which the calling context has registered on it."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks: list[Hook] = []  # of all contexts; changed only by append and remove, which are thread-safe

    def active(self) -> list[Hook]:
        """The hooks of the calling context, in order of registration."""
        scopes = SCOPES.get()
        return [hook for hook in tuple(self.hooks) if hook.scope in scopes]

    @property
    def has_hooks(self) -> bool:
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
        """Drop hooks from copies and pickles."""
        return self.__dict__ | {"hooks": []}

    if TYPE_CHECKING:
        __call__ = forward


def any_hooks() -> bool:
    """Whether the calling context has hooks on any model."""
    return bool(SCOPES.get())


def hook_points(model: nn.Module) -> dict[str, HookPoint]:
    """All hook points of a model by name, in the order of the model."""
    return {name: module for name, module in model.named_modules() if isinstance(module, HookPoint)}


def matching_points(model: nn.Module, pattern: str) -> dict[str, HookPoint]:
    """Hook points whose name matches a shell pattern; a pattern without a match is an error."""
    known = hook_points(model)
    points = {name: point for name, point in known.items() if fnmatchcase(name, pattern)}
    if not points:
        close = nearest(pattern, known)
        raise ConfigError(
            f"no hook point matches {pattern!r}; this model has: {', '.join(known) or 'none'}",
            hint=f"did you mean {close!r}?" if close else None,
        )
    return points


@contextmanager
def hook(model: nn.Module, pattern: str, function: Callable[[str, Tensor], Tensor]) -> Iterator[None]:
    """Apply `function(name, tensor) -> tensor` at the matching hook points."""
    with register(matching_points(model, pattern), function, changes=True):
        yield


@contextmanager
def record(model: nn.Module, *patterns: str) -> Iterator[dict[str, Tensor]]:
    """Record activations at the matching hook points by name; a later value replaces an earlier one. Outputs stay
    bit-identical.

    >>> with heedful.record(translator.model, "decoder.*.cross_attention.weights") as recorded:
    ...     scores = translator.score(["w1 w2"], ["w2 w1"])
    >>> sorted(recorded)
    ['decoder.0.cross_attention.weights', 'decoder.1.cross_attention.weights']
    """
    points = {name: point for pattern in patterns for name, point in matching_points(model, pattern).items()}
    recorded: dict[str, Tensor] = {}

    def keep(name: str, x: Tensor) -> Tensor:
        recorded[name] = x.detach()
        return x

    with register(points, keep, changes=False):
        yield recorded


@contextmanager
def ablate(model: nn.Module, pattern: str) -> Iterator[None]:
    """Replace activations at the matching hook points by zeros.

    >>> with heedful.ablate(translator.model, "decoder.*.cross_attention.context"):
    ...     without = translator.score(["w1 w2"], ["w2 w1"])
    >>> without != translator.score(["w1 w2"], ["w2 w1"])
    True
    """
    with hook(model, pattern, lambda name, x: torch.zeros_like(x)):
        yield


@contextmanager
def patch(model: nn.Module, values: dict[str, Tensor]) -> Iterator[None]:
    """Replace activations at the hook points of these names by the given values.

    >>> with heedful.record(translator.model, "encoder.*.out") as recorded:
    ...     score = translator.score(["w1 w2"], ["w2 w1"])
    >>> with heedful.patch(translator.model, recorded):          # the encoder outputs of another source
    ...     patched = translator.score(["w3 w4"], ["w2 w1"])
    >>> patched == score
    True
    """
    points = {name: point for pattern in values for name, point in matching_points(model, pattern).items()}
    with register(points, lambda name, x: values[name].to(x), changes=True):
        yield


@contextmanager
def register(points: dict[str, HookPoint], function: Callable[[str, Tensor], Tensor], *, changes: bool) -> Iterator[None]:
    """Register `function(name, tensor) -> tensor` at these hook points, for the calling context, until the block ends."""
    scope = next(SCOPE_IDS)
    hooks = [(point, Hook(scope, partial(function, name), changes)) for name, point in points.items()]
    SCOPES.set(SCOPES.get() | {scope})
    try:
        for point, hook in hooks:
            point.hooks.append(hook)
        yield
    finally:
        for point, hook in hooks:
            if hook in point.hooks:
                point.hooks.remove(hook)
        SCOPES.set(SCOPES.get() - {scope})  # not `reset`: a generator may end in another context than the one it started in
