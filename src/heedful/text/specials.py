"""The four special tokens of every vocabulary, and their names in other toolkits.

Ids are always read from the tokenizer: ours are 0 to 3, a SentencePiece file has its own, and padding need not be 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PAD, START, END, UNK = "<pad>", "<s>", "</s>", "<unk>"
SPECIALS = (PAD, START, END, UNK)  # in the order of their ids in tokenizers that we train


class Specials(NamedTuple):
    """The ids of the special tokens."""

    pad: int
    start: int
    end: int
    unk: int


ALIASES: dict[str, tuple[str, ...]] = {
    "pad": (PAD, "<PAD>", "[PAD]", "[pad]", "<blank>"),
    "start": (START, "<SOS>", "<sos>", "<GO>", "<go>", "<start>", "[start]", "<bos>", "<BOS>", "[BOS]"),
    "end": (END, "<EOS>", "<eos>", "<e>", "<end>", "[end]", "[EOS]"),
    "unk": (UNK, "<UNK>", "[UNK]", "[unk]"),
}


def find_special(role: str, vocabulary: Mapping[str, int]) -> int | None:
    """Return the id of the token for `role` (pad, start, end, unk) in a vocabulary, under any of its names; else None."""
    return next((vocabulary[name] for name in ALIASES[role] if name in vocabulary), None)
