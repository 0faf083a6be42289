"""The page of a result in a browser: no network requests, no console messages, fits the screen, the numbers of the result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from reports import HARD, OtherResult, alone, attention, blocks, inspection, page_of
from studio.studio_pages import IN_BROWSER, cells, playwright, settle

import heedful
from heedful.inspection.analyses.attention import AttentionResult
from heedful.inspection.analyses.report import report
from heedful.inspection.page.blocks import Heading

pytestmark = IN_BROWSER
SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
KEPT = os.environ.get("HEED_SCREENSHOTS")  # a folder to store screenshots in


@pytest.fixture(scope="module")
def result() -> AttentionResult:
    return attention(tokens=12, layers=2, heads=3)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return inspection(tokens=12, layers=2, heads=3).save(tmp_path_factory.mktemp("report") / "inspection.html")


@pytest.fixture(scope="module")
def translation(tiny_runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[heedful.Translator, Path]:
    """A translator, and the report of a text."""
    translator = heedful.Translator.load(tiny_runs["translation"])
    return translator, report(translator, "w1 w2 w3").save(tmp_path_factory.mktemp("report") / "report.html")


@contextmanager
def page(browser: Any, path: Path, view: str = "", size: str = "wide", scheme: str = "light") -> Iterator[Any]:
    """Open the page; after use, assert that it made no requests and logged nothing."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    opened = context.new_page()
    requests: list[str] = []
    messages: list[str] = []
    opened.on("request", lambda request: requests.append(request.url.partition("#")[0]))
    opened.on("console", lambda message: messages.append(message.text))
    opened.on("pageerror", lambda error: messages.append(str(error)))
    opened.on("dialog", lambda dialog: messages.append(f"dialog: {dialog.message}"))
    opened.goto(path.as_uri() + (f"#/{view}" if view else ""))
    opened.wait_for_selector("html[data-ready]", timeout=20_000)
    settle(opened)
    yield opened
    assert requests == [path.as_uri()]
    assert messages == []
    context.close()


def tabs(opened: Any) -> list[str]:
    names: list[str] = opened.get_by_role("tab").all_inner_texts()
    return names


def fits(opened: Any) -> bool:
    return bool(opened.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_results_fit_the_screen(browser: Any, path: Path, size: str, scheme: str) -> None:
    with page(browser, path, "results", size, scheme) as opened:
        assert fits(opened)
        for closed in opened.locator("summary").all():
            closed.click()
        assert fits(opened)
        if KEPT:
            opened.screenshot(path=f"{KEPT}/report-{size}-{scheme}.png", full_page=True)


@pytest.mark.parametrize("size", SIZES)
def test_every_view_of_a_report_has_its_data(browser: Any, translation: tuple[heedful.Translator, Path], size: str) -> None:
    """Nothing that a view asks first is missing from the file."""
    with page(browser, translation[1], "", size) as opened:
        names = tabs(opened)
        assert names[:2] == ["Results", "Work"] and {"Attention", "Decoding", "Inside a head"} <= set(names)
        assert not {"Training", "Tour", "Heads"} & set(names), "no data for these"
        for name in names:
            opened.get_by_role("tab", name=name, exact=True).click()
            settle(opened)
            assert opened.locator(".error").all_inner_texts() == [], name


def test_the_views_of_a_report_show_the_numbers_of_python(browser: Any, translation: tuple[heedful.Translator, Path]) -> None:
    translator, path = translation
    with page(browser, path, "work") as opened:
        (best,) = translator.translations(["w1 w2 w3"])
        assert opened.locator("#translation").inner_text() == best.text
    with page(browser, path, "decoding") as opened:
        shown = opened.locator("#lens").inner_text()
        for layer in heedful.inspection.lens(translator, "w1 w2 w3").layers:
            assert all(f"{value:.4f}" in shown for value in layer.probability)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("by", ["weights", "norms", "rollout"])
def test_the_values_shown_are_those_of_the_trace(browser: Any, path: Path, result: AttentionResult, kind: str, by: str) -> None:
    if (kind, by) == ("cross", "rollout"):
        return  # not defined: the page does not offer it
    at = next(at for at, one in enumerate(result.trace.maps) if one.kind.name == kind and one.layer == 1)
    one, head = result.trace.maps[at], 0 if by == "rollout" else 2
    rolled = {other.name: other.weights for other in result.views.rollout}
    values = {"weights": one.weights[2], "norms": one.weights[2] * result.views.norms[at][2]}
    expected = rolled[one.name][0] if by == "rollout" else values[by]
    with page(browser, path, f"attention?kind={kind}&by={by}&layer=1&head={head}") as opened:
        opened.locator("summary", has_text="Numbers").first.click()
        shown = cells(opened, "table.numbers tbody tr")
        assert all(name.startswith(row[0].rstrip("…")) for row, name in zip(shown, result.trace.queries(one), strict=True))
        for row, right in zip(shown, expected.tolist(), strict=True):
            assert list(map(float, row[1:])) == pytest.approx(right, abs=6e-5)


def test_tokens_are_shown_as_text(browser: Any, path: Path) -> None:
    for view in ("results", "attention", "cost"):
        with page(browser, path, view) as opened:
            assert opened.locator("img, main b:has-text('encoder')").count() == 0
    with page(browser, path, "results") as opened:
        assert "<b>encoder</b>" in opened.get_by_label("Cost", exact=True).inner_text()
        assert opened.locator("p.subject bdi").first.inner_text() == " ".join(HARD[:12])


def test_bars_and_figures_of_a_section_are_drawn(browser: Any, path: Path) -> None:
    with page(browser, path, "results") as opened:
        section = opened.get_by_label("Cost", exact=True)
        widths = section.locator(".bar i").evaluate_all("all => all.map((one) => one.getBoundingClientRect().width)")
        assert widths[1] == pytest.approx(3 * widths[0], rel=0.05)
        assert section.locator("svg[role=img]").count() == 2
        section.locator("summary", has_text="All data").click()
        assert "123456" in section.inner_text()


def test_every_control_is_labeled_and_a_tab_opens_by_keyboard(browser: Any, path: Path) -> None:
    with page(browser, path, "results") as opened:
        nameless = opened.evaluate(
            """() => [...document.querySelectorAll("button, input, select, summary, section, svg[role=img]")]
              .filter((one) => !one.getAttribute("aria-label") && !one.getAttribute("aria-labelledby"))
              .filter((one) => !one.textContent.trim() && !one.closest("label")).map((one) => one.outerHTML.slice(0, 80))"""
        )
        assert nameless == []
        opened.get_by_role("tab", name="Results").focus()
        opened.keyboard.press("ArrowRight")
        settle(opened)
        assert opened.get_by_role("tab", name="Attention").get_attribute("aria-selected") == "true"
        assert "#/attention" in opened.url


@pytest.mark.parametrize("layers", [2, 0])
def test_a_text_without_a_source_has_no_alignment_and_a_model_may_have_no_attention(
    browser: Any, layers: int, tmp_path: Path
) -> None:
    with page(browser, alone(tokens=9, layers=layers).save(tmp_path / "alone.html")) as opened:
        assert tabs(opened) == (["Attention"] if layers else [])
        assert opened.locator("#alignment").count() == 0
        assert opened.locator("button[data-head]").count() == 2 * layers


def test_a_page_of_the_model_alone_opens_with_its_sections(browser: Any, tmp_path: Path) -> None:
    other = OtherResult("Other", [Heading("only a heading")], {"a": 1})
    with page(browser, page_of(OtherResult("Cost", blocks(), {}), other).save(tmp_path / "model.html")) as opened:
        assert opened.locator("#contents a").all_inner_texts() == ["Cost", "Other"]
        assert "only a heading" in opened.get_by_label("Other").inner_text()


def test_a_notebook_frame_works_without_network(browser: Any, result: AttentionResult, tmp_path: Path) -> None:
    (tmp_path / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8>{result._repr_html_()}", encoding="utf-8")
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    opened = context.new_page()
    messages: list[str] = []
    opened.on("console", lambda message: messages.append(message.text))
    opened.on("pageerror", lambda error: messages.append(str(error)))
    opened.goto((tmp_path / "notebook.html").as_uri())
    frame = opened.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(state="attached", timeout=20_000)
    playwright.expect(frame.locator("button[data-head]")).to_have_count(6)
    frame.get_by_role("button", name="Switch to").click()
    frame.locator('button[data-layer="1"][data-head="2"]').click()
    assert frame.locator("#head-title").inner_text().startswith("cross · layer 1 · head 2")
    assert messages == []
    context.close()
