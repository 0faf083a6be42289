"""Updates of training, ours and those of peers, timed in alternating blocks of one run."""

from __future__ import annotations

import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.training.loop import StreamedBatch, Trainer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PEER_MODES = ("default", "max-autotune-no-cudagraphs")  # of torch.compile

Update = Callable[[], None]


class NotCompiled(Exception):
    """The compiler failed, or takes longer than allowed."""


def refuse(*reason: Any) -> None:
    raise NotCompiled(*reason)


class AdamW(NamedTuple):
    """Options of the optimizer, the same for all systems."""

    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-6
    decay: float = 0.01


def our_update(trainer: Trainer, batches: Iterator[StreamedBatch]) -> Update:
    """One update of a run, with its batches prepared in the background as in a run."""
    trainer.model.train()

    def update() -> None:
        trainer.update([next(batches)])
        trainer.guard.pending.clear()

    return update


def peer_update(model: nn.Module, loss: Callable[[], Tensor], options: AdamW) -> Update:
    """A backward pass, clipping and a fused optimizer step of a model whose loss is given."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=options.betas, eps=options.epsilon, weight_decay=options.decay, fused=True
    )

    def update() -> None:
        loss().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def warm_up(update: Update, limit: float) -> float | None:
    """Seconds of the first updates, which compile or capture the step; None if they fail or exceed the limit."""
    started, before = time.perf_counter(), signal.signal(signal.SIGALRM, refuse)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        for _ in range(4):
            update()
        wait()
    except Exception as error:  # the compiler wraps the interruption in an error of its own
        print(f"left out: {type(error).__name__} after {time.perf_counter() - started:.0f} s", file=sys.stderr)
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return round(time.perf_counter() - started, 1)


def updates_per_second(update: Update, count: int) -> float:
    """Over a block of updates."""
    wait()
    started = time.perf_counter()
    for _ in range(count):
        update()
    wait()
    return count / (time.perf_counter() - started)


class Timing(NamedTuple):
    limit: float  # seconds to compile a system
    blocks: int
    updates: int  # per block
    items: int  # tokens or images per update


def compare_updates(systems: Mapping[str, Update], peers: Mapping[str, Update], timing: Timing, unit: str) -> dict[str, Any]:
    """Medians of the blocks, and of the ratios to the fastest peer."""
    every = {**systems, **peers}
    seconds = {name: warm_up(update, timing.limit) for name, update in every.items()}
    running = {name: update for name, update in every.items() if seconds[name] is not None}
    blocks = [
        {name: timing.items * updates_per_second(update, timing.updates) for name, update in running.items()}
        for _ in range(timing.blocks)
    ]
    median = {name: statistics.median(block[name] for block in blocks) for name in running}
    best = max((name for name in peers if name in running), key=lambda name: median[name])
    own = [name for name in systems if name in running]
    return {
        f"{unit}_per_second": {name: round(value) for name, value in median.items()},
        "best_peer": best,
        "ratio": {name: round(statistics.median(block[name] / block[best] for block in blocks), 3) for name in own},
        "first_updates_seconds": seconds,
    }
