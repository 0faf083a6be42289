"""A batch of sentence pairs as tensors:

    source     + end                         input of the encoder
    target_in  = start + target              input of the decoder (teacher forcing)
    target_out = target + end                labels; as long as target_in

each padded to the longest of its side with the tokenizer's padding id. Masks are computed from lengths.
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
    gold: Tensor | None = None  # (rows, target time, source time), 1 where target_out is aligned with the source

    def pin(self) -> Batch:
        """A copy in pinned memory, which a GPU can read asynchronously."""
        return self.each(Tensor.pin_memory)

    def to(self, device: torch.device) -> Batch:
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))

    def each(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """Apply a function to every tensor of the batch."""
        parts: Any = (function(part) if isinstance(part, Tensor) else part for part in self)
        return Batch(*parts)


def pad(rows: Sequence[Sequence[int]], padding: int) -> Tensor:
    """Pad lists of ids to (rows, longest)."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows])


def source_tensors(sources: Sequence[Sequence[int]], specials: Specials) -> tuple[Tensor, Tensor | None]:
    """Ids without end tokens -> (rows, time) with end tokens, and a mask, None where nothing is padded."""
    lengths = torch.tensor([len(row) + 1 for row in sources])
    source = pad([[*row, specials.end] for row in sources], specials.pad)
    mask = masks.padding(lengths, source.shape[1])
    return source, None if bool(mask.all()) else mask


def collate(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], source: Specials, target: Specials) -> Batch:
    """Make a batch from ids without special tokens; source, target: the special ids of the tokenizers."""
    tokens, mask = source_tensors(sources, source)
    target_in = pad([[target.start, *row] for row in targets], target.pad)
    target_out = pad([[*row, target.end] for row in targets], target.pad)
    return Batch(tokens, mask, target_in, target_out, sum(len(row) + 1 for row in targets))


def pad_length(longest: int, multiple: int, limit: int) -> int:
    """Round a length up to a multiple, but not beyond the limit, which a model with learned positions could not process."""
    return max(longest, min(-(-longest // multiple) * multiple, limit))


def fill_up(batch: Batch, budget: int, lengths: tuple[int, int], source: Specials, target: Specials) -> Batch:
    """Pad both sides to the given lengths, and the rows to the number that the token budget allows.

    With few shapes, compiled or captured steps are reused. Added rows hold an end token as source and no target."""
    source_length, target_length = lengths
    rows = max(budget // max(lengths), batch.source.shape[0])

    def grow(tensor: Tensor, length: int, value: int | bool) -> Tensor:
        missing = (0, length - tensor.shape[1], 0, rows - tensor.shape[0])
        return torch.nn.functional.pad(tensor, missing, value=value)

    mask = torch.ones_like(batch.source, dtype=torch.bool) if batch.source_mask is None else batch.source_mask
    mask = grow(mask, source_length, False)
    mask[len(batch.source) :, 0] = True  # a row needs at least one token to attend to
    filled = grow(batch.source, source_length, source.pad)
    filled[len(batch.source) :, 0] = source.end
    target_in, target_out = (grow(tensor, target_length, target.pad) for tensor in (batch.target_in, batch.target_out))
    gold = batch.gold
    if gold is not None:  # (rows, target time, source time)
        added = (0, source_length - gold.shape[2], 0, target_length - gold.shape[1], 0, rows - len(gold))
        gold = torch.nn.functional.pad(gold, added)
    return Batch(filled, mask, target_in, target_out, batch.tokens, gold)


def split_batch(batch: Batch, parts: int, padding: int) -> list[Batch]:
    """Split a batch into at most `parts` smaller ones, to save memory."""
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
