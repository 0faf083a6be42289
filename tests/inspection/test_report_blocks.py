"""Blocks of a page: texts stay texts, numbers stand at the right, bars are as long as their shares."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch

from heedful.inspection.figure import INK, QUIET, Figure, Label, heatmap
from heedful.inspection.report.blocks import LONG, Block, Heading, Lines, Pictures, Table, Terms, Words, as_html, is_numeric
from heedful.inspection.svg import inline

HARD = "</p><script>alert(1)</script>\"'&"


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<all>{html}</all>")


def test_whatever_is_said_stays_text() -> None:
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


def test_a_column_of_numbers_stands_at_the_right_and_one_of_words_does_not() -> None:
    rows = [("part", "size", "time", "what"), ("a", "1,024", "0.1 ms", "3 cats"), ("b", "", "12.0 ms", "-")]
    root = parsed(as_html([Table(rows, "parts")]))
    kinds = [[cell.get("class") for cell in row] for row in root.iter("tr")]
    assert kinds == [["word", "number", "number", "word"]] * 3


@pytest.mark.parametrize(
    "number", ["0", "-0.86", "+0.0130", "82%", "302.0 M", "8.2 kB", "57.3° (0%)", "2.7e-08", ".013", "0.01 of 64", "3.6 x"]
)
def test_figures_are_known_as_such(number: str) -> None:
    assert is_numeric([number, "", "-"])


@pytest.mark.parametrize("text", ["-", "", "1-6", "82% new", "n^2 d", "▁7up", "9 lives"])
def test_what_is_more_than_a_figure_is_not(text: str) -> None:
    assert not is_numeric([text])


def test_bars_are_as_long_as_their_shares() -> None:
    table = Table([("part", "share"), ("a", "25%"), ("b", "75%"), ("all", "100%")], "parts", {1: [0.25, 0.75, None]}, totals=1)
    root = parsed(as_html([table]).replace("class=total", 'class="total"'))
    assert [one.get("style") for one in root.iter("i")] == ["width:25.00%", "width:75.00%"]
    assert [row.get("class") for row in root.iter("tr")] == [None, None, None, "total"]
    assert ["".join(row[1].itertext()) for row in root.iter("tr")] == ["share", "25%", "75%", "100%"]


@pytest.mark.parametrize("count", [LONG, LONG + 1])
def test_only_a_long_table_is_folded_up(count: int) -> None:
    root = parsed(as_html([Table([("n",), *((str(at),) for at in range(count))], "heads")]))
    assert len(list(root.iter("details"))) == (count > LONG) and len(list(root.iter("tr"))) == count + 1


def test_a_picture_in_a_page_has_the_pages_inks_no_ground_and_the_same_cells() -> None:
    figure = heatmap(torch.rand(2, 2), ["a", "b"], ["c", "d"], "map")
    page = inline(figure._replace(marks=[*figure.marks, Label(30, 30, f'"{INK}"', color=INK)]))
    assert f'"{INK}"' not in page and f'"{QUIET}"' not in page and "#fff" not in page
    assert "var(--ink)" in page and f"&quot;{INK}&quot;" in page
    assert len(re.findall(r"<title>", page)) == 4


def test_it_has_a_name_and_may_become_only_so_narrow() -> None:
    (svg,) = parsed(as_html([Pictures([Figure("all heads", 424, 100, [])])])).iter("svg")
    assert (svg.get("role"), svg.get("aria-label")) == ("img", "all heads")
    width, least = map(float, re.findall(r"width:(\d+)px", svg.get("style", "")))
    assert 0.7 * width < least < width
