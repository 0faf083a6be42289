"""The report: one file with the values of the trace, and texts that are escaped."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from reports import HARD, OtherResult, as_numbers, attention, inspection

from heedful.inspection.analyses.attention import AttentionResult
from heedful.inspection.analyses.report import ReportResult
from heedful.inspection.page import EXACT, SCRIPTS, Numbers, asset, fill_template


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def data_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    content: dict[str, Any] = json.loads(match[1])
    return content


@pytest.fixture(scope="module")
def small() -> AttentionResult:
    return attention(tokens=8, layers=2, heads=2)


def test_small_pages_store_values_exactly(small: AttentionResult) -> None:
    arrays = as_numbers(data_of(small.html()))
    weights = [one.weights for one in small.trace.maps]
    assert len(arrays) == 2 * len(weights) + len(small.views.rollout) + len(small.views.words)
    for expected in [*weights, *small.views.norms, *(one.weights for one in small.views.rollout)]:
        assert any(array.shape == expected.shape and torch.equal(array, expected) for array in arrays)


def test_large_pages_store_weights_to_four_decimals_in_less_than_a_megabyte() -> None:
    large = attention(tokens=40, layers=6, heads=8)
    page = large.html()
    assert sum(one.weights.numel() for one in large.trace.maps) > EXACT
    assert len(page.encode()) < 1_000_000
    arrays = as_numbers(data_of(page))
    for one in large.trace.maps:
        assert any(array.shape == one.weights.shape and (array - one.weights).abs().max() < 0.51e-4 for array in arrays)


@pytest.mark.parametrize("count", [EXACT, EXACT + 1])
def test_packed_numbers_round_trip(count: int) -> None:
    numbers = Numbers(count)
    given = torch.rand(3, 4), torch.rand(2, 5) * 1000
    numbers.add(given[0])
    numbers.add(given[1], exact=True)
    first, second = as_numbers({"arrays": numbers.shapes, "numbers": numbers.pack()})
    assert torch.equal(second, given[1])
    assert (first - given[0]).abs().max() <= (0 if count == EXACT else 0.501e-4)


def test_the_page_has_no_external_references_and_tokens_are_not_parsed_as_elements() -> None:
    page = inspection(tokens=8, layers=2, heads=2).html()
    elements = Elements(page).elements
    assert [tag for tag, _ in elements if tag == "img"] == []
    assert [tag for tag, _ in elements].count("script") == 2
    for tag, attributes in elements:
        for name in ("src", "href", "action", "data", "poster"):
            assert (attributes.get(name) or "data:").startswith("data:"), (tag, attributes)
    policy = next(one["content"] for _, one in elements if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'")
    own = "".join(asset(name) for name in ("page.css", "numbers.js", "drawing.js", "parts.js", "page.js", "template.html"))
    assert set(re.findall(r"\w+://[^\"'`\s)]+", own)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}  # names
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|@import|url\(", own)


def test_page_texts_are_those_of_the_trace(small: AttentionResult) -> None:
    content = data_of(small.html())
    assert content["source"] == HARD[:8] and content["marks"] == ["<s>", "</s>"]
    assert content["title"] == [" ".join(HARD[:8]), " ".join(HARD[:8])]


def test_a_notebook_shows_the_same_page_in_an_iframe(small: AttentionResult) -> None:
    ((tag, attributes),) = Elements(small._repr_html_()).elements
    assert tag == "iframe" and attributes["srcdoc"] == small.html() and attributes["sandbox"] == "allow-scripts"


def test_inserted_values_are_not_searched_for_placeholders() -> None:
    assert fill_template("<@a@|@b@>", {"a": "@b@", "b": "@a@"}) == "<@b@|@a@>"


def test_nonfinite_values_become_null(small: AttentionResult) -> None:
    data = {"losses": [1.5, math.nan], "most": math.inf, "rows": ({"share": -math.inf},)}
    page = ReportResult({"attention": small, "odd": OtherResult("Odd", [], data)}, "a run", "transformer").html()
    (section,) = data_of(page)["sections"]
    assert section == {"losses": [1.5, None], "most": None, "rows": [{"share": None}]}


def test_the_page_is_drawn_before_the_load_event() -> None:
    """Nothing in its scripts is deferred, except redrawing after a resize."""
    scripts = "\n".join(asset(name) for name in SCRIPTS)
    later = re.findall(r"\b(?:async|await|Promise|setTimeout|requestIdleCallback|requestAnimationFrame|loading)\b", scripts)
    assert later == ["requestAnimationFrame"]


def test_packing_is_plain_deflate(small: AttentionResult) -> None:
    packed = data_of(small.html())["numbers"]
    assert isinstance(packed, str) and len(zlib.decompress(base64.b64decode(packed))) > 1000
