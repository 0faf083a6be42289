"""The report: one file, whose numbers are the trace's and whose texts stay texts."""

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
from reports import HARD, as_numbers, inspection

from heedful.inspection.report import EXACT, SCRIPTS, Numbers, Section, asset, fill_template
from heedful.studies.report import Inspection


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


@pytest.fixture(scope="module")
def small() -> Inspection:
    return inspection(tokens=8, layers=2, heads=2)


def test_small_pages_hold_every_number_exactly(small: Inspection) -> None:
    arrays = as_numbers(data_of(small.html()))
    weights = [one.weights for one in small.trace.maps]
    assert len(arrays) == 2 * len(weights) + len(small.views.rollout) + len(small.views.words)
    for expected in [*weights, *small.views.norms, *(one.weights for one in small.views.rollout)]:
        assert any(found.shape == expected.shape and torch.equal(found, expected) for found in arrays)


def test_large_pages_hold_weights_to_four_decimals_and_stay_below_a_megabyte() -> None:
    large = inspection(tokens=40, layers=6, heads=8)
    page = large.html()
    assert sum(one.weights.numel() for one in large.trace.maps) > EXACT
    assert len(page.encode()) < 1_000_000
    arrays = as_numbers(data_of(page))
    for one in large.trace.maps:
        assert any(found.shape == one.weights.shape and (found - one.weights).abs().max() < 0.51e-4 for found in arrays)


@pytest.mark.parametrize("count", [EXACT, EXACT + 1])
def test_numbers_come_back_as_they_were_packed(count: int) -> None:
    numbers = Numbers(count)
    given = torch.rand(3, 4), torch.rand(2, 5) * 1000
    numbers.add(given[0])
    numbers.add(given[1], exact=True)
    first, second = as_numbers({"arrays": numbers.shapes, "numbers": numbers.pack()})
    assert torch.equal(second, given[1])
    assert (first - given[0]).abs().max() <= (0 if count == EXACT else 0.501e-4)


def test_nothing_is_asked_of_the_network_and_no_token_becomes_an_element(small: Inspection) -> None:
    page = small.html()
    elements = Elements(page).found
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


def test_texts_are_those_of_the_trace(small: Inspection) -> None:
    content = data_of(small.html())
    assert content["source"] == HARD[:8] and content["marks"] == ["<s>", "</s>"]
    assert content["title"] == [" ".join(HARD[:8]), " ".join(HARD[:8])]


def test_a_notebook_shows_the_same_page_in_a_frame_of_its_own(small: Inspection) -> None:
    ((tag, attributes),) = Elements(small._repr_html_()).found
    assert tag == "iframe" and attributes["srcdoc"] == small.html() and attributes["sandbox"] == "allow-scripts"


def test_places_are_filled_once_and_what_fills_them_is_not_filled() -> None:
    assert fill_template("<@a@|@b@>", {"a": "@b@", "b": "@a@"}) == "<@b@|@a@>"


def test_what_is_no_number_is_left_out_of_a_section(small: Inspection) -> None:
    found = {"losses": [1.5, math.nan], "most": math.inf, "rows": ({"share": -math.inf},)}
    page = small._replace(sections=(Section("Odd", [], found),)).html()
    (section,) = data_of(page)["sections"]
    assert section == {"losses": [1.5, None], "most": None, "rows": [{"share": None}]}


def test_the_page_is_drawn_before_it_has_loaded() -> None:
    """Nothing in its scripts is deferred, except what follows a change of the window's width."""
    scripts = "\n".join(asset(name) for name in SCRIPTS)
    later = re.findall(r"\b(?:async|await|Promise|setTimeout|requestIdleCallback|requestAnimationFrame|loading)\b", scripts)
    assert later == ["requestAnimationFrame"]


def test_packing_is_plain_deflate(small: Inspection) -> None:
    packed = data_of(small.html())["numbers"]
    assert isinstance(packed, str) and len(zlib.decompress(base64.b64decode(packed))) > 1000
