"""Pictures of attention for a terminal: darker means looked at more.

        I   am  trendy
Io      ██  ░░
sono    ░░  ██
alla            ██
moda            ██
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

SHADES = "  ", "░░", "▒▒", "▓▓", "██"


def draw(weights: Tensor, source_words: Sequence[str], target_words: Sequence[str]) -> str:
    """weights (target words, source words), each row adding up to about 1 -> lines of text."""
    left = max(map(len, target_words))
    widths = [max(len(word), 2) for word in source_words]
    lines = [" ".join([" " * left, *(word.ljust(width) for word, width in zip(source_words, widths, strict=True))])]
    for word, row in zip(target_words, weights.tolist(), strict=True):
        cells = [shade(weight).ljust(width) for weight, width in zip(row, widths, strict=True)]
        lines.append(" ".join([word.ljust(left), *cells]))
    return "\n".join(line.rstrip() for line in lines)


def shade(weight: float) -> str:
    return SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)]
