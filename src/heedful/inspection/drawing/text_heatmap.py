"""Attention heatmaps for a terminal: darker cells have larger weights.

        I   am  trendy
Io      ██  ░░
sono    ░░  ██
alla            ██
moda            ██

Widths are terminal columns: a Chinese character takes two, a combining accent none. If the source words do not fit side by
side, the columns are numbered and the words are listed below.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from torch import Tensor

SHADES = "  ", "░░", "▒▒", "▓▓", "██"
WIDEST = 120  # columns of a line
LONGEST = 24  # columns of a word
BEGIN, END = "\u2068", "\u2069"  # isolate right-to-left text, so that it does not reorder its neighbors


def draw_text_heatmap(weights: Tensor, source_words: Sequence[str], target_words: Sequence[str]) -> str:
    """weights (target words, source words), each row summing to about 1 -> lines of text."""
    source, target = [printable_token(word) for word in source_words], [printable_token(word) for word in target_words]
    left = max(map(columns, target), default=0)
    widths = [max(columns(word), 2) for word in source]
    below = []
    if left + sum(widths) + len(widths) > WIDEST:
        below = ["", *numbered_list(source)]
        source, widths = [str(index) for index in range(len(source))], [2] * len(source)
    head = " ".join([" " * left, *(pad_to_width(word, width) for word, width in zip(source, widths, strict=True))])
    lines = [head]
    for word, row in zip(target, weights.tolist(), strict=True):
        cells = [shade(weight).ljust(width) for weight, width in zip(row, widths, strict=True)]
        lines.append(" ".join([pad_to_width(word, left), *cells]))
    return "\n".join(line.rstrip() for line in [*lines, *below])


def shade(weight: float) -> str:
    return SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)]


def numbered_list(words: Sequence[str]) -> list[str]:
    """Format as "0 The   1 cat …", as many per line as fit."""
    cells = [f"{index} {isolate_bidi(word)}" for index, word in enumerate(words)]
    width = max(map(columns, cells), default=1) + 2
    each = max(1, WIDEST // width)
    return [
        "".join(cell + " " * (width - columns(cell)) for cell in cells[at : at + each]) for at in range(0, len(cells), each)
    ]


def printable_token(word: str, longest: int = LONGEST) -> str:
    """Return a token for display: control characters escaped, cut after `longest` columns."""
    visible = "".join(repr(mark)[1:-1] if unicodedata.category(mark) in ("Cc", "Zl", "Zp") else mark for mark in word) or "∅"
    if columns(visible) <= longest:
        return visible
    while columns(visible) >= longest:
        visible = visible[:-1]
    return visible + "…"


def wrap_text(text: str, room: int) -> list[str]:
    """Wrap a text to lines of `room` columns, between words, or inside a word that is longer than a line."""
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
    """Return the width in terminal columns."""
    return sum(map(character_columns, text))


def character_columns(mark: str) -> int:
    if unicodedata.category(mark) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(mark) in ("W", "F") else 1


def pad_to_width(word: str, width: int) -> str:
    return isolate_bidi(word) + " " * (width - columns(word))


def isolate_bidi(word: str) -> str:
    right_to_left = any(unicodedata.bidirectional(mark) in ("R", "AL") for mark in word)
    return f"{BEGIN}{word}{END}" if right_to_left else word
