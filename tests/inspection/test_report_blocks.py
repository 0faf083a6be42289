"""Blocks of a page: escaped texts, right-aligned numbers, and bars of the right width."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch

from heedful.inspection.drawing.figure import INK, QUIET, Figure, Label, heatmap
from heedful.inspection.drawing.svg import inline
from heedful.inspection.page.blocks import LONG, Block, Heading, Lines, Pictures, Table, Terms, Words, as_html, is_numeric

HARD = "</p><script>alert(1)</script>\"'&"


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<all>{html}</all>")


def test_all_texts_are_escaped() -> None:
    figure = heatmap(torch.eye(1), [HARD], [HARD], HARD)
    blocks: list[Block] = [
        Words(HARD),
        Heading(HARD),
        Lines(HARD),
        Terms({HARD: HARD}),
        Table([(HARD, "b"), (HARD, HARD)], HARD),
    ]
    root = parsed(as_html([*blocks, Pictures([figure], HARD)]))
    assert not list(root.iter("script"))
    texts = [
        "".join(one.itertext()) for name in ("p", "h3", "pre", "dt", "dd", "th", "td", "figcaption") for one in root.iter(name)
    ]
    assert texts.count(HARD) == 9
    assert [one.get("aria-label") for one in root.iter("svg")] == [HARD]


def test_only_numeric_columns_are_right_aligned() -> None:
    rows = [("part", "size", "time", "what"), ("a", "1,024", "0.1 ms", "3 cats"), ("b", "", "12.0 ms", "-")]
    root = parsed(as_html([Table(rows, "parts")]))
    kinds = [[cell.get("class") for cell in row] for row in root.iter("tr")]
    assert kinds == [["word", "number", "number", "word"]] * 3


@pytest.mark.parametrize(
    "number", ["0", "-0.86", "+0.0130", "82%", "302.0 M", "8.2 kB", "57.3° (0%)", "2.7e-08", ".013", "0.01 of 64", "3.6 x"]
)
def test_numbers_with_units_are_numeric(number: str) -> None:
    assert is_numeric([number, "", "-"])


@pytest.mark.parametrize("text", ["-", "", "1-6", "82% new", "n^2 d", "▁7up", "9 lives"])
def test_other_texts_are_not_numeric(text: str) -> None:
    assert not is_numeric([text])


def test_bars_have_the_width_of_their_shares() -> None:
    table = Table([("part", "share"), ("a", "25%"), ("b", "75%"), ("all", "100%")], "parts", {1: [0.25, 0.75, None]}, totals=1)
    root = parsed(as_html([table]).replace("class=total", 'class="total"'))
    assert [one.get("style") for one in root.iter("i")] == ["width:25.00%", "width:75.00%"]
    assert [row.get("class") for row in root.iter("tr")] == [None, None, None, "total"]
    assert ["".join(row[1].itertext()) for row in root.iter("tr")] == ["share", "25%", "75%", "100%"]


@pytest.mark.parametrize("count", [LONG, LONG + 1])
def test_only_a_long_table_is_collapsed(count: int) -> None:
    root = parsed(as_html([Table([("n",), *((str(at),) for at in range(count))], "heads")]))
    assert len(list(root.iter("details"))) == (count > LONG) and len(list(root.iter("tr"))) == count + 1


def test_an_inline_figure_uses_the_colors_of_the_page_and_has_no_background() -> None:
    figure = heatmap(torch.rand(2, 2), ["a", "b"], ["c", "d"], "map")
    page = inline(figure._replace(marks=[*figure.marks, Label(30, 30, f'"{INK}"', color=INK)]))
    assert f'"{INK}"' not in page and f'"{QUIET}"' not in page and "#fff" not in page
    assert "var(--ink)" in page and f"&quot;{INK}&quot;" in page
    assert len(re.findall(r"<title>", page)) == 4


def test_a_figure_has_a_label_and_a_minimum_width() -> None:
    (svg,) = parsed(as_html([Pictures([Figure("all heads", 424, 100, [])])])).iter("svg")
    assert (svg.get("role"), svg.get("aria-label")) == ("img", "all heads")
    width, least = map(float, re.findall(r"width:(\d+)px", svg.get("style", "")))
    assert 0.7 * width < least < width
