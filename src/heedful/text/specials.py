"""The four special tokens of every vocabulary, the mask token of some, and their names in other toolkits.

Ids are always read from the tokenizer: ours are 0 to 3, a SentencePiece file has its own, and padding need not be 0.
The mask token is a tag that a task asks for: see `tags.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PAD, START, END, UNK = "<pad>", "<s>", "</s>", "<unk>"
SPECIALS = (PAD, START, END, UNK)  # in the order of their ids in tokenizers that we train
MASK = "<mask>"


class Specials(NamedTuple):
    """The ids of the special tokens; `mask` is None in a vocabulary without a mask token."""

    pad: int
    start: int
    end: int
    unk: int
    mask: int | None = None


ALIASES: dict[str, tuple[str, ...]] = {
    "pad": (PAD, "<PAD>", "[PAD]", "[pad]", "<blank>"),
    "start": (START, "<SOS>", "<sos>", "<GO>", "<go>", "<start>", "[start]", "<bos>", "<BOS>", "[BOS]"),
    "end": (END, "<EOS>", "<eos>", "<e>", "<end>", "[end]", "[EOS]"),
    "unk": (UNK, "<UNK>", "[UNK]", "[unk]"),
    "mask": (MASK, "<MASK>", "[MASK]", "[mask]"),
}


def find_special(role: str, vocabulary: Mapping[str, int]) -> int | None:
    """Return the id of the token for `role` (pad, start, end, unk, mask) in a vocabulary, under any of its names; else None."""
    return next((vocabulary[name] for name in ALIASES[role] if name in vocabulary), None)
