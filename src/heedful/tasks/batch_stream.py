"""Feeding a training run: batches without end, from any place of any epoch on, prepared ahead of need."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, Protocol, Self, TypeVar

import torch

from heedful.data.prefetch import prefetch
from heedful.training.loop import StreamedBatch

Chosen = TypeVar("Chosen")


class Pinnable(Protocol):
    def pin(self) -> Self:
        """In memory that a GPU can read while the CPU works on."""


class Place(NamedTuple):
    epoch: int
    cursor: int  # how many batches of the epoch are done


def feed(
    plan: Callable[[int], Sequence[Chosen]],
    collate: Callable[[Chosen, int], Pinnable],
    place: Place,
    *,
    device: torch.device,
    ahead: int,
) -> Generator[StreamedBatch, None, None]:
    """plan: an epoch -> what each of its batches is made of; collate: that and the epoch -> the batch. Both are pure."""

    def batches() -> Iterator[StreamedBatch]:
        epoch, cursor = place
        while True:
            planned = plan(epoch)
            for at in range(cursor, len(planned)):
                batch = collate(planned[at], epoch)
                yield StreamedBatch(batch.pin() if device.type == "cuda" else batch, epoch, at + 1)
            epoch, cursor = epoch + 1, 0

    return prefetch(batches(), ahead)
