"""A text with shaded words: a line for each sentence, with a bar for its weight; long sentences continue below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from heedful.inspection.drawing.figure import (
    DARK,
    EDGE,
    INSIDE,
    QUIET,
    SMALL,
    Figure,
    Heatmap,
    Label,
    Mark,
    add_caption,
    color_scale,
    text_width,
)
from heedful.inspection.drawing.text_heatmap import printable_token

WIDTH = 880.0  # of a line of words
HEIGHT, GAP = 24.0, 2.0  # of a word, and between words
BAR = 90.0  # width of a weight of 1
BAR_HEIGHT, BAR_SHADE = 12.0, 0.6


class ShadedWord(NamedTuple):
    text: str
    shade: float


class ShadedLine(NamedTuple):
    weight: float | None  # of the sentence; None: no bar
    words: Sequence[ShadedWord]


def document_figure(lines: Sequence[ShadedLine], darkest: float, title: str, captions: Sequence[str]) -> Figure:
    """darkest: the shade of the last color, above 0."""
    has_bars = lines[0].weight is not None
    left = EDGE + (BAR + 52 if has_bars else 0)
    marks: list[Mark] = [Label(EDGE, EDGE, title, 15)]
    y, right = 2 * EDGE + 8, left + 240
    for line in lines:
        if line.weight is not None:
            width, value, middle = max(BAR * line.weight, 1.0), torch.tensor([[line.weight]]), y + HEIGHT / 2
            box = EDGE, middle - BAR_HEIGHT / 2, width, BAR_HEIGHT
            marks.append(Heatmap(*box, value, max(line.weight, 1e-12) / BAR_SHADE, "blue", (["sentence"], ["weight"])))
            marks.append(Label(left - 10, middle, f"{line.weight:.2f}", SMALL, "end", color=QUIET))
        x = left
        for word in line.words:
            text = printable_token(word.text)
            width = text_width(text) + 10
            if x > left and x + width > left + WIDTH:
                x, y = left, y + HEIGHT + GAP
            value, names = torch.tensor([[word.shade]]), ([text], ["shade"])
            marks.append(Heatmap(x, y, width, HEIGHT, value, darkest, "blue", names))
            marks.append(Label(x + width / 2, y + HEIGHT / 2, text, anchor="middle", color=INSIDE[word.shade > DARK * darkest]))
            x += width + GAP
            right = max(right, x)
        y += HEIGHT + 4 * GAP
    full = max(right + EDGE, 2 * EDGE + text_width(title, 15))
    return add_caption(Figure(title, full, y + 34, marks + color_scale(left, y + 8, darkest, "blue")), captions)
