"""The report: one file with the values of the trace, and texts that are escaped."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from html.parser import HTMLParser
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from reports import HARD, OtherResult, as_numbers, attention, inspection

import heedful
from heedful.inspection.analyses.attention import AttentionResult
from heedful.inspection.analyses.report import ReportResult
from heedful.inspection.page.arrays import EXACT, Numbers
from heedful.inspection.result import to_json
from heedful.storage.reading import read_package_text


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def data_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="recorded">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    content: dict[str, Any] = json.loads(match[1])
    return content


@pytest.fixture(scope="module")
def small() -> AttentionResult:
    return attention(tokens=8, layers=2, heads=2)


@pytest.fixture
def translator(tiny_runs: dict[str, Path]) -> heedful.Translator:
    return heedful.Translator.load(tiny_runs["translation"])


def test_small_pages_store_values_exactly(small: AttentionResult) -> None:
    arrays = as_numbers(data_of(small.html()))
    weights = [one.weights for one in small.trace.maps]
    assert len(arrays) == 2 * len(weights) + len(small.views.rollout)
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
    assert [one.get("type") for tag, one in elements if tag == "script"] == ["application/json", "module"]
    for tag, attributes in elements:
        for name in ("src", "href", "action", "data", "poster"):
            assert (attributes.get(name) or "data:").startswith("data:"), (tag, attributes)
    policy = next(one["content"] for _, one in elements if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'")
    own = "".join(read_package_text("heedful.studio", name) for name in ("studio.js", "studio.css"))
    assert not re.search(r"document\.write|\beval\(|@import|url\(", own)


def test_page_texts_are_those_of_the_trace(small: AttentionResult) -> None:
    content = data_of(small.html())
    assert content["subject"] == [" ".join(HARD[:8]), " ".join(HARD[:8])] and content["text"] == " ".join(HARD[:8])
    labels = {tuple(tokens) for one in small.trace.maps for tokens in (small.trace.queries(one), small.trace.keys(one))}
    assert set(map(tuple, content["attention"]["labels"])) == labels


def test_results_are_the_replies_of_the_inspection_api(translator: heedful.Translator) -> None:
    results = {
        "lens": heedful.inspection.lens(translator, "w1 w2"),
        "heads": heedful.inspection.heads(translator, sentences=4),
        "cost": heedful.inspection.cost(translator, rows=2, tokens=4),
        "alternatives": heedful.inspection.alternatives(translator, "w1 w2", 1),
    }
    for name, result in results.items():
        (recorded,) = data_of(result.html())["results"]
        assert recorded["analysis"] == name and recorded["data"] == json.loads(to_json(result.to_dict()))
        function = signature(getattr(heedful.inspection, name)).parameters
        assert recorded["options"].keys() <= function.keys(), "the options are arguments of the analysis"
    whole = data_of(ReportResult(results, "a run", "transformer").html())
    assert (
        [one["analysis"] for one in whole["results"]]
        == list(results)
        == sorted(whole["model"]["analyses"], key=list(results).index)
    )


def test_a_notebook_shows_the_same_page_in_an_iframe(small: AttentionResult) -> None:
    ((tag, attributes),) = Elements(small._repr_html_()).elements
    assert tag == "iframe" and attributes["srcdoc"] == small.html() and attributes["sandbox"] == "allow-scripts"


def test_nonfinite_values_become_null(small: AttentionResult) -> None:
    data = {"losses": [1.5, math.nan], "most": math.inf, "rows": ({"share": -math.inf},)}
    page = ReportResult({"attention": small, "odd": OtherResult("Odd", [], data)}, "a run", "transformer").html()
    whole, other = data_of(page)["results"]
    assert whole["analysis"] == "attention" and not whole["shown"]
    assert other["data"] == {"losses": [1.5, None], "most": None, "rows": [{"share": None}]}


def test_packing_is_plain_deflate(small: AttentionResult) -> None:
    packed = data_of(small.html())["numbers"]
    assert isinstance(packed, str) and len(zlib.decompress(base64.b64decode(packed))) > 1000
