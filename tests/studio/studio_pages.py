"""Opening views of the studio in Chromium, and reading what they show."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
TEXT = "w1 w2 w3"
IN_BROWSER = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")]


@contextmanager
def launch() -> Iterator[Any]:
    """Chromium, without a window and without requests of its own."""
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS.split(), "--disable-sync"])
        yield opened
        opened.close()


@contextmanager
def page(browser: Any, url: str, view: str, *, model: str = "translation", width: int = 1280, **more: Any) -> Iterator[Any]:
    """Open a view and wait for its numbers; at the end, assert that it made no request elsewhere and logged nothing."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    opened = context.new_page()
    requests: list[str] = []
    messages: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("console", lambda message: messages.append(message.text))
    opened.on("pageerror", lambda error: messages.append(str(error)))
    opened.on("dialog", lambda dialog: messages.append(f"dialog: {dialog.message}"))
    opened.goto(f"{url}/#/{view}?{urlencode({'model': model, 'text': TEXT, **more})}")
    opened.wait_for_selector("html[data-ready]", timeout=20_000)
    settle(opened)
    yield opened
    assert [one for one in requests if not one.startswith(f"{url}/")] == []
    assert messages == []
    context.close()


def settle(opened: Any) -> None:
    """Wait until nothing is being computed."""
    opened.wait_for_timeout(100)
    playwright.expect(opened.locator("[role=status]")).to_have_count(0, timeout=30_000)


def cells(opened: Any, selector: str) -> list[list[str]]:
    """The texts of the cells of rows; waits for the first row, because a table may be drawn after it is opened."""
    opened.locator(selector).first.wait_for(state="attached")
    found: list[list[str]] = opened.locator(selector).evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.textContent.trim()))"
    )
    return found
