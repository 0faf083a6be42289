"""A batch of sentence pairs as tensors, prepared in the usual order:

    source     + end                         what the encoder reads
    target_in  = start + target              what the decoder is fed, teacher-forced
    target_out = target + end                what it should say; as long as target_in

each padded to the longest of its side. Padding is whatever id the tokenizer says, and masks come from lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.nn import masks
from heedful.text.specials import Specials


class Batch(NamedTuple):
    source: Tensor  # (rows, source time)
    source_mask: Tensor | None  # (rows, source time), True where a token is real; None: all are
    target_in: Tensor  # (rows, target time)
    target_out: Tensor  # (rows, target time)
    tokens: int  # real tokens of target_out
    gold: Tensor | None = None  # (rows, target time, source time), 1 where a token to be said is linked with one of the source

    def pin(self) -> Batch:
        """In memory from which a GPU copies by itself."""
        return self.each(Tensor.pin_memory)

    def to(self, device: torch.device) -> Batch:
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))

    def each(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch, its tensors by this function."""
        parts: Any = (function(part) if isinstance(part, Tensor) else part for part in self)
        return Batch(*parts)


def pad(rows: Sequence[Sequence[int]], padding: int) -> Tensor:
    """(rows, longest)."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows])


def source_tensors(sources: Sequence[Sequence[int]], specials: Specials) -> tuple[Tensor, Tensor | None]:
    """Ids without end -> (rows, time) with end, and the mask where anything is padded."""
    lengths = torch.tensor([len(row) + 1 for row in sources])
    source = pad([[*row, specials.end] for row in sources], specials.pad)
    mask = masks.padding(lengths, source.shape[1])
    return source, None if bool(mask.all()) else mask


def collate(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], source: Specials, target: Specials) -> Batch:
    """Ids of both sides, and the special ids of their tokenizers."""
    tokens, mask = source_tensors(sources, source)
    target_in = pad([[target.start, *row] for row in targets], target.pad)
    target_out = pad([[*row, target.end] for row in targets], target.pad)
    return Batch(tokens, mask, target_in, target_out, sum(len(row) + 1 for row in targets))


def fill_up(batch: Batch, budget: int, pad_to_multiple_of: int, source: Specials, target: Specials) -> Batch:
    """Pad both sides to a multiple of `pad_to_multiple_of`, and the rows to as many as the budget holds of that length.

    Then few shapes occur, and what was compiled or captured for one is used again. Added rows hold an end and no target."""
    length = -(-max(batch.source.shape[1], batch.target_in.shape[1]) // pad_to_multiple_of) * pad_to_multiple_of
    rows = max(budget // length, batch.source.shape[0])

    def grow(tensor: Tensor, value: int | bool) -> Tensor:
        missing = (0, length - tensor.shape[1], 0, rows - tensor.shape[0])
        return torch.nn.functional.pad(tensor, missing, value=value)

    mask = torch.ones_like(batch.source, dtype=torch.bool) if batch.source_mask is None else batch.source_mask
    mask = grow(mask, False)
    mask[len(batch.source) :, 0] = True  # a row must have something to look at
    filled = grow(batch.source, source.pad)
    filled[len(batch.source) :, 0] = source.end
    gold = batch.gold
    if gold is not None:
        gold = torch.nn.functional.pad(gold, (0, length - gold.shape[2], 0, length - gold.shape[1], 0, rows - len(gold)))
    return Batch(filled, mask, grow(batch.target_in, target.pad), grow(batch.target_out, target.pad), batch.tokens, gold)


def split_batch(batch: Batch, parts: int, padding: int) -> list[Batch]:
    """The same rows in at most `parts` smaller batches, for memory."""
    if parts == 1:
        return [batch]
    pieces = zip(
        batch.source.chunk(parts),
        [None] * parts if batch.source_mask is None else batch.source_mask.chunk(parts),
        batch.target_in.chunk(parts),
        batch.target_out.chunk(parts),
        [None] * parts if batch.gold is None else batch.gold.chunk(parts),
        strict=False,
    )
    return [Batch(s, m, i, o, int((o != padding).sum()), g) for s, m, i, o, g in pieces]
