"""The tour: every reply that its views ask for is recorded, each step marks a part of its view, and steps have addresses."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from studio.studio_pages import IN_BROWSER, cells, playwright, settle

import heedful

pytestmark = IN_BROWSER
TOUR = Path(heedful.__file__).parent / "studio" / "tour.json"
STEPS = 12


@contextmanager
def opened_at(browser: Any, url: str, address: str, *, width: int = 1280) -> Iterator[Any]:
    """The page; at the end, assert that no reply was asked of the server and nothing was logged."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    asked: list[str] = []
    messages: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(f"{url}/#/{address}")
    page.wait_for_selector("html[data-ready]", timeout=20_000)
    settle(page)
    yield page
    assert asked == [] and messages == []
    context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_every_step_has_its_data_and_marks_a_part_of_its_view(browser: Any, url: str, width: int) -> None:
    with opened_at(browser, url, "tour", width=width) as page:
        page.get_by_role("button", name="Start the tour").click()
        titles = []
        for step in range(1, STEPS + 1):
            settle(page)
            playwright.expect(page.locator(".toured")).to_have_count(1)
            assert page.locator("#tour-step").inner_text() == str(step) and f"tour={step}" in page.url
            assert page.locator(".error").all_inner_texts() == [], step
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), step
            titles.append(page.locator(".guide h2").inner_text())
            page.keyboard.press("n")
        assert len(set(titles)) == STEPS


def test_a_step_is_opened_by_its_address_and_left_to_its_view(browser: Any, url: str) -> None:
    with opened_at(browser, url, "tour?tour=6") as page:
        assert page.locator("#tour-step").inner_text() == "6"
        assert page.locator("#head-title").inner_text().startswith("cross · layer 1")
        page.keyboard.press("ArrowLeft")
        settle(page)
        assert page.locator("#tour-step").inner_text() == "5"
        page.get_by_role("button", name="Leave the tour").click()
        settle(page)
        assert page.get_by_role("tab", name="Attention").get_attribute("aria-selected") == "true"
        assert "model=tour" in page.url and page.locator(".error").count() == 0


def test_numbers_of_the_tour_are_those_of_the_file(browser: Any, url: str) -> None:
    tour = json.loads(TOUR.read_text())
    key = json.dumps({"text": tour["text"], "kind": "cross", "by": "weights"}, ensure_ascii=False, separators=(",", ":"))
    (attention,) = [one for one in tour["replies"][f"/api/attention {key}"]["maps"] if one["layer"] == 1]
    with opened_at(browser, url, "tour?tour=6") as page:
        page.locator("summary", has_text="Numbers").first.click()
        rows = cells(page, "table.numbers tbody tr")
        assert len(rows) == len(attention["queries"])
        for row, expected in zip(rows, attention["values"][0], strict=True):
            assert [float(one) for one in row[1:]] == pytest.approx(expected, abs=6e-5)


def test_the_recorded_replies_are_small() -> None:
    assert len(gzip.compress(TOUR.read_bytes())) < 150_000
