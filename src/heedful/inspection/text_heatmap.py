"""Pictures of attention for a terminal: darker means looked at more.

        I   am  trendy
Io      ██  ░░
sono    ░░  ██
alla            ██
moda            ██

Columns are counted as a terminal counts them: a Chinese character takes two, an accent none. Where the words do not fit side
by side, the columns are numbered and the words stand below.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from torch import Tensor

SHADES = "  ", "░░", "▒▒", "▓▓", "██"
WIDEST = 120  # columns of a line
LONGEST = 24  # columns of a word
BEGIN, END = "\u2068", "\u2069"  # around what is read from right to left, so that it does not turn its neighbors around


def draw_text_heatmap(weights: Tensor, source_words: Sequence[str], target_words: Sequence[str]) -> str:
    """weights (target words, source words), each row adding up to about 1 -> lines of text."""
    source, target = [printable_token(word) for word in source_words], [printable_token(word) for word in target_words]
    left = max(map(columns, target), default=0)
    widths = [max(columns(word), 2) for word in source]
    below = []
    if left + sum(widths) + len(widths) > WIDEST:
        below = ["", *numbered_list(source)]
        source, widths = [str(place) for place in range(len(source))], [2] * len(source)
    head = " ".join([" " * left, *(pad_to_width(word, width) for word, width in zip(source, widths, strict=True))])
    lines = [head]
    for word, row in zip(target, weights.tolist(), strict=True):
        cells = [shade(weight).ljust(width) for weight, width in zip(row, widths, strict=True)]
        lines.append(" ".join([pad_to_width(word, left), *cells]))
    return "\n".join(line.rstrip() for line in [*lines, *below])


def shade(weight: float) -> str:
    return SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)]


def numbered_list(words: Sequence[str]) -> list[str]:
    """0 The   1 cat …, as many to a line as fit."""
    cells = [f"{place} {isolate_bidi(word)}" for place, word in enumerate(words)]
    width = max(map(columns, cells), default=1) + 2
    each = max(1, WIDEST // width)
    return [
        "".join(cell + " " * (width - columns(cell)) for cell in cells[at : at + each]) for at in range(0, len(cells), each)
    ]


def printable_token(word: str, longest: int = LONGEST) -> str:
    """A word as it can stand in a picture: what cannot be seen is spelled, what is longer than so many columns is cut."""
    seen = "".join(repr(mark)[1:-1] if unicodedata.category(mark) in ("Cc", "Zl", "Zp") else mark for mark in word) or "∅"
    if columns(seen) <= longest:
        return seen
    while columns(seen) >= longest:
        seen = seen[:-1]
    return seen + "…"


def wrap_text(text: str, room: int) -> list[str]:
    """A text in lines of so many columns: broken between words, or inside of one that does not fit into a line."""
    lines = [""]
    for word in text.split():
        if lines[-1] and columns(lines[-1]) + 1 + columns(word) > room:
            lines.append("")
        lines[-1] += " " * bool(lines[-1])
        for mark in word:
            if columns(lines[-1]) + character_columns(mark) > room:
                lines.append("")
            lines[-1] += mark
    return lines


def columns(text: str) -> int:
    """How wide a terminal shows it."""
    return sum(map(character_columns, text))


def character_columns(mark: str) -> int:
    if unicodedata.category(mark) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(mark) in ("W", "F") else 1


def pad_to_width(word: str, width: int) -> str:
    return isolate_bidi(word) + " " * (width - columns(word))


def isolate_bidi(word: str) -> str:
    turned = any(unicodedata.bidirectional(mark) in ("R", "AL") for mark in word)
    return f"{BEGIN}{word}{END}" if turned else word
