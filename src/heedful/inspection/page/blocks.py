"""The blocks of a section of the page, and their HTML. Model output is inserted as text.

    Words      a paragraph
    Heading    a heading
    Terms      a list of terms and definitions
    Table      the first row is the header; columns may have bars; a long table is collapsed
    Pictures   figures, side by side where there is room
    Lines      preformatted text

Content wider than the page scrolls in a focusable box of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from heedful.inspection.drawing.figure import Figure
from heedful.inspection.drawing.markup import escape
from heedful.inspection.drawing.svg import inline

LONG = 40  # rows; a table with more is collapsed
NUMBER = re.compile(r"[-+−]?\.?\d[\d.,]*(e[-+]?\d+)?( ?(%|°|x|ms|s|[kMGT]?B?|of \d+))?( \(\d+%\))?")


class Words(NamedTuple):
    text: str
    kind: str = ""  # hint: an explanation; note: a warning


class Heading(NamedTuple):
    text: str


class Terms(NamedTuple):
    meanings: Mapping[str, str]


class Lines(NamedTuple):
    text: str


class Table(NamedTuple):
    rows: Sequence[Sequence[str]]
    name: str  # for screen readers
    bars: Mapping[int, Sequence[float | None]] = {}  # column -> for each row below the header a share of 1
    totals: int = 0  # number of final rows that hold totals


class Pictures(NamedTuple):
    figures: Sequence[Figure]
    caption: str = ""


Block = Words | Heading | Terms | Lines | Table | Pictures


def as_html(blocks: Sequence[Block]) -> str:
    return "\n".join(WRITERS[type(block)](block) for block in blocks)


def sentence(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def words(block: Words) -> str:
    kind = block.kind or "text"
    return f'<p class="{kind}">{escape(block.text)}</p>'


def heading(block: Heading) -> str:
    return f"<h3>{escape(block.text)}</h3>"


def terms(block: Terms) -> str:
    definitions = "".join(f"<dt>{escape(name)}</dt><dd>{escape(meaning)}</dd>" for name, meaning in block.meanings.items())
    return f'<dl class="terms">{definitions}</dl>'


def lines(block: Lines) -> str:
    return f'<pre tabindex="0">{escape(block.text)}</pre>'


def pictures(block: Pictures) -> str:
    images = "".join(scroll_box(inline(figure), figure.title) for figure in block.figures)
    caption = f"<figcaption>{escape(block.caption)}</figcaption>" if block.caption else ""
    return f'<figure class="pictures"><div>{images}</div>{caption}</figure>'


def table(block: Table) -> str:
    head, *rows = block.rows
    kinds = ["number" if is_numeric([row[column] for row in rows]) else "word" for column in range(len(head))]
    titles = "".join(f'<th scope="col" class="{kind}">{escape(name)}</th>' for name, kind in zip(head, kinds, strict=True))
    body = []
    for at, row in enumerate(rows):
        shares = [block.bars[column][at] if column in block.bars else None for column in range(len(row))]
        texts = [escape(text) if share is None else bar(share, text) for text, share in zip(row, shares, strict=True)]
        cells = [f'<td class="{kind}" dir="auto">{text}</td>' for text, kind in zip(texts, kinds, strict=True)]
        named = f'<th scope="row" dir="auto" class="{kinds[0]}">{texts[0]}</th>'
        sums = at >= len(rows) - block.totals
        body.append(f"<tr{' class=total' if sums else ''}>{named}{''.join(cells[1:])}</tr>")
    inner = f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    content = scroll_box(inner, block.name)
    if len(rows) <= LONG:
        return content
    return f"<details><summary>{escape(sentence(block.name))}, a table of {len(rows)} rows</summary>{content}</details>"


def is_numeric(cells: Sequence[str]) -> bool:
    """Return whether all cells hold numbers; such columns are right-aligned."""
    values = [cell for cell in cells if cell not in ("", "-")]
    return bool(values) and all(NUMBER.fullmatch(cell) for cell in values)


def bar(share: float, text: str) -> str:
    width = f"width:{100 * min(max(share, 0.0), 1.0):.2f}%"
    return f'<span class="bar" aria-hidden="true"><i style="{width}"></i></span><span class="figure">{escape(text)}</span>'


def scroll_box(inner: str, name: str) -> str:
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(name)}">{inner}</div>'


WRITERS: dict[type, Callable[[Any], str]] = {
    Words: words,
    Heading: heading,
    Terms: terms,
    Lines: lines,
    Table: table,
    Pictures: pictures,
}
