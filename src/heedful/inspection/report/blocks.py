"""What a section of the page is made of, and how each becomes HTML. Whatever came from a model is put in as text.

    Words      a paragraph
    Heading    of what follows
    Terms      words and what they mean
    Table      the first row is its head; a column may have bars; a long one is folded up
    Pictures   sketches, side by side where there is room
    Lines      a text whose lines stay as they are

What is broader than the page scrolls in a box of its own, which the keyboard reaches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from heedful.inspection.figure import Figure
from heedful.inspection.markup import escape
from heedful.inspection.svg import inline

LONG = 40  # rows of a table; one that has more is folded up
NUMBER = re.compile(r"[-+−]?\.?\d[\d.,]*(e[-+]?\d+)?( ?(%|°|x|ms|s|[kMGT]?B?|of \d+))?( \(\d+%\))?")


class Words(NamedTuple):
    text: str
    kind: str = ""  # hint: what explains something; note: what is not to be missed


class Heading(NamedTuple):
    text: str


class Terms(NamedTuple):
    meanings: Mapping[str, str]


class Lines(NamedTuple):
    text: str


class Table(NamedTuple):
    rows: Sequence[Sequence[str]]
    name: str  # for those who hear it
    bars: Mapping[int, Sequence[float | None]] = {}  # column -> for each row below the head a share of 1
    totals: int = 0  # so many of the last rows sum up the others


class Pictures(NamedTuple):
    figures: Sequence[Figure]
    caption: str = ""


Block = Words | Heading | Terms | Lines | Table | Pictures


def as_html(blocks: Sequence[Block]) -> str:
    return "\n".join(WRITERS[type(block)](block) for block in blocks)


def sentence(text: str) -> str:
    """As it begins on a page."""
    return text[:1].upper() + text[1:]


def words(block: Words) -> str:
    kind = block.kind or "told"
    return f'<p class="{kind}">{escape(block.text)}</p>'


def heading(block: Heading) -> str:
    return f"<h3>{escape(block.text)}</h3>"


def terms(block: Terms) -> str:
    told = "".join(f"<dt>{escape(name)}</dt><dd>{escape(meaning)}</dd>" for name, meaning in block.meanings.items())
    return f'<dl class="terms">{told}</dl>'


def lines(block: Lines) -> str:
    return f'<pre tabindex="0">{escape(block.text)}</pre>'


def pictures(block: Pictures) -> str:
    drawn = "".join(scrolling(inline(figure), figure.title) for figure in block.figures)
    caption = f"<figcaption>{escape(block.caption)}</figcaption>" if block.caption else ""
    return f'<figure class="pictures"><div>{drawn}</div>{caption}</figure>'


def table(block: Table) -> str:
    head, *rows = block.rows
    kinds = ["number" if is_of_numbers([row[column] for row in rows]) else "word" for column in range(len(head))]
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
    shown = scrolling(inner, block.name)
    if len(rows) <= LONG:
        return shown
    return f"<details><summary>{escape(sentence(block.name))}, a table of {len(rows)} rows</summary>{shown}</details>"


def is_of_numbers(cells: Sequence[str]) -> bool:
    """Then they are aligned at the right."""
    said = [cell for cell in cells if cell not in ("", "-")]
    return bool(said) and all(NUMBER.fullmatch(cell) for cell in said)


def bar(share: float, text: str) -> str:
    width = f"width:{100 * min(max(share, 0.0), 1.0):.2f}%"
    return f'<span class="bar" aria-hidden="true"><i style="{width}"></i></span><span class="figure">{escape(text)}</span>'


def scrolling(inner: str, name: str) -> str:
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(name)}">{inner}</div>'


WRITERS: dict[type, Callable[[Any], str]] = {
    Words: words,
    Heading: heading,
    Terms: terms,
    Lines: lines,
    Table: table,
    Pictures: pictures,
}
