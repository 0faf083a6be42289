"""An endless stream of training batches, from any position of any epoch, prefetched."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.prefetch import prefetch
from heedful.training.loop import StreamedBatch

Chosen = TypeVar("Chosen")  # what identifies the examples of one batch, such as their indices


class Pinnable(Protocol):
    def pin(self) -> Self:
        """A copy in pinned memory, which a GPU can read asynchronously."""


class StreamPosition(NamedTuple):
    epoch: int
    cursor: int  # number of batches of the epoch that are done


def stream_batches(
    plan: Callable[[int], Sequence[Chosen]],
    collate: Callable[[Chosen, int], Pinnable],
    position: StreamPosition,
    *,
    device: torch.device,
    ahead: int,
) -> Generator[StreamedBatch, None, None]:
    """Yield batches from a position on. plan: epoch -> the examples of each batch; collate: examples, epoch -> batch. Both are
    pure functions."""

    def batches() -> Iterator[StreamedBatch]:
        epoch, cursor = position
        while True:
            chosen = plan(epoch)
            for at in range(cursor, len(chosen)):
                batch = collate(chosen[at], epoch)
                yield StreamedBatch(batch.pin() if device.type == "cuda" else batch, epoch, at + 1)
            del chosen  # before the next plan is made
            epoch, cursor = epoch + 1, 0

    return prefetch(batches(), ahead)


def shuffled_batches(examples: int, size: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """The examples of each batch of an epoch, in random order: a pure function of the arguments."""
    order = np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(examples)
    return [order[at : at + size] for at in range(0, examples, size)]
