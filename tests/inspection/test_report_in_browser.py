"""The report in a browser: no network requests, no console messages, fits the screen, shows the values of the trace."""

from __future__ import annotations

import base64
import os
import random
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from reports import HARD, OtherResult, alone, attention, blocks, inspection, page_of

from heedful.inspection.analyses.attention import AttentionResult
from heedful.inspection.page.blocks import Heading

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")]
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
KEPT = os.environ.get("HEED_SCREENSHOTS")  # a folder to store screenshots in


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS.split(), "--disable-sync"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def result() -> AttentionResult:
    return attention(tokens=12, layers=2, heads=3)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return inspection(tokens=12, layers=2, heads=3).save(tmp_path_factory.mktemp("report") / "inspection.html")


@contextmanager
def page(browser: Any, path: Path, size: str = "wide", scheme: str = "light") -> Iterator[Any]:
    """Open the page; after use, assert that it made no requests and logged nothing."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    opened = context.new_page()
    requests: list[str] = []
    messages: list[str] = []
    opened.on("request", lambda request: requests.append(request.url))
    opened.on("console", lambda message: messages.append(message.text))
    opened.on("pageerror", lambda error: messages.append(str(error)))
    opened.on("dialog", lambda dialog: messages.append(f"dialog: {dialog.message}"))
    opened.goto(path.as_uri())
    opened.wait_for_selector("html[data-ready]", timeout=20_000)
    yield opened
    assert requests == [path.as_uri()]
    assert messages == []
    context.close()


def test_the_page_is_complete_when_it_has_loaded(browser: Any, path: Path) -> None:
    """The content at the load event does not change later and is the same in every new page."""
    keep = "addEventListener('load', () => { window.atLoad = document.documentElement.outerHTML; })"
    contents = set()
    for _ in range(5):
        opened = browser.new_page()
        opened.add_init_script(keep)
        opened.goto(path.as_uri(), wait_until="load")
        at_load = opened.evaluate("window.atLoad")
        opened.wait_for_timeout(200)
        assert opened.evaluate("document.documentElement.outerHTML") == at_load
        assert opened.evaluate("document.documentElement.dataset.ready") == "yes"
        contents.add(at_load)
        opened.close()
    assert len(contents) == 1


def test_inflate_decompresses_zlib_streams(browser: Any, path: Path) -> None:
    """Stored blocks, fixed codes and dynamic codes."""
    draw = random.Random(1)
    content = bytes(draw.choice(b"abc") for _ in range(40_000)) + draw.randbytes(40_000) + bytes(1000) + b"end"
    unpack = (
        "([text, size]) => btoa(String.fromCharCode(...inflate(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), size)))"
    )
    with page(browser, path) as opened:
        for level, strategy in ((0, zlib.Z_DEFAULT_STRATEGY), (9, zlib.Z_FIXED), (1, zlib.Z_DEFAULT_STRATEGY), (9, 0)):
            packer = zlib.compressobj(level, strategy=strategy)
            packed = packer.compress(content) + packer.flush()
            found = opened.evaluate(unpack, [base64.b64encode(packed).decode(), len(content)])
            assert base64.b64decode(found) == content


def fits(opened: Any) -> bool:
    return bool(opened.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_it_fits_the_screen_in_every_view(browser: Any, path: Path, size: str, scheme: str) -> None:
    with page(browser, path, size, scheme) as opened:
        for kind in opened.locator("#attention-controls fieldset").first.locator("label").all():
            kind.click()
            for values_name in ("weights", "norm-weighted", "rollout"):
                choice = opened.locator("#attention-controls fieldset").nth(1).locator("label", has_text=values_name)
                if choice.locator("input").is_enabled():
                    choice.click()
                    assert fits(opened)
        opened.locator("#numbers summary").click()
        assert fits(opened)
        if KEPT:
            opened.screenshot(path=f"{KEPT}/report-{size}-{scheme}.png", full_page=True)


@pytest.mark.parametrize("size", SIZES)
def test_a_page_without_a_sentence_has_only_its_sections(browser: Any, tmp_path: Path, size: str) -> None:
    found = {"heads": [{"layer": layer, "head": head, "ablation": 0.01 * head} for layer in range(3) for head in range(4)]}
    model = page_of(OtherResult("What each head does", blocks(), found))
    with page(browser, model.save(tmp_path / "model.html"), size) as opened:
        assert fits(opened)
        assert opened.locator("main section h2").all_inner_texts() == ["What each head does"]
        assert opened.locator("#title").inner_text() == "a run"
        opened.locator("#theme").click()
        assert fits(opened)
        if KEPT:
            opened.screenshot(path=f"{KEPT}/sections-{size}.png", full_page=True)


@pytest.mark.parametrize("size", SIZES)
def test_wide_content_scrolls_in_a_labeled_and_focusable_box(browser: Any, tmp_path: Path, size: str) -> None:
    model = page_of(OtherResult("Cost", blocks(), {}))
    with page(browser, model.save(tmp_path / "model.html"), size) as opened:
        boxes = opened.locator("#more .scroll").evaluate_all(
            "all => all.map(one => [one.scrollWidth > one.clientWidth, one.tabIndex, one.getAttribute('aria-label')])"
        )
        assert [name for *_, name in boxes] == ["parts", "narrow heatmap", "wide heatmap"]
        assert [overflows for overflows, *_ in boxes] == ([True, False, False] if size == "wide" else [True, False, True])
        assert all(at == 0 for _, at, _ in boxes)
        assert fits(opened)


def test_figures_use_the_text_colors_of_the_page_in_light_and_dark_mode(browser: Any, tmp_path: Path) -> None:
    path = page_of(OtherResult("Cost", blocks(), {})).save(tmp_path / "model.html")
    colors = []
    for scheme in ("light", "dark"):
        with page(browser, path, "wide", scheme) as opened:
            text, body, cell = opened.evaluate(
                """() => [getComputedStyle(document.querySelector('#more svg text')).fill,
                  getComputedStyle(document.body).color, document.querySelector('#more svg rect').getAttribute('fill')]"""
            )
            assert text == body
            colors.append((text, cell))
    (light, cell), (dark, same) = colors
    assert light != dark and cell == same


def test_a_page_with_several_sections_starts_with_links_to_them(browser: Any, path: Path, tmp_path: Path) -> None:
    with page(browser, path) as opened:
        links = opened.locator("#contents a")
        assert links.all_inner_texts() == ["Tokens", "Attention", "Soft alignment", "Cost"]
        for link in links.all():
            target = opened.locator(link.get_attribute("href"))
            assert target.count() == 1 and target.inner_text() == link.inner_text()
    few = page_of(OtherResult("Cost", [Heading("one")], {})).save(tmp_path / "few.html")
    with page(browser, few) as opened:
        assert opened.locator("#contents").is_hidden()


def test_a_long_sentence_with_many_heads_fits_too(browser: Any, tmp_path: Path) -> None:
    long = inspection(tokens=60, layers=6, heads=8).save(tmp_path / "long.html")
    for size in SIZES:
        with page(browser, long, size) as opened:
            assert fits(opened)
            assert opened.locator("#head-grid button").count() == 48
            if KEPT:
                opened.screenshot(path=f"{KEPT}/report-long-{size}.png", full_page=True)


@pytest.mark.parametrize(("kind", "about"), [("cross", "output → source"), ("encoder", "source → source")])
@pytest.mark.parametrize("values_name", ["weights", "norm-weighted", "rollout"])
def test_the_page_shows_the_values_of_the_trace(
    browser: Any, path: Path, result: AttentionResult, kind: str, about: str, values_name: str
) -> None:
    at, one = next((at, one) for at, one in enumerate(result.trace.maps) if (one.kind.name, one.layer) == (kind, 1))
    rolled = {other.name: other.weights for other in result.views.rollout}
    if values_name == "rollout" and kind == "cross":
        with page(browser, path) as opened:
            assert opened.locator("label", has_text="rollout").locator("input").is_disabled()
        return
    values = {"weights": one.weights[2], "norm-weighted": one.weights[2] * result.views.norms[at][2]}
    expected = rolled[one.name][0] if values_name == "rollout" else values[values_name]
    with page(browser, path) as opened:
        opened.locator("label", has_text=about).first.click()
        opened.locator("#attention-controls label", has_text=values_name).click()
        head = 0 if values_name == "rollout" else 2
        opened.locator(f'#head-grid button[data-layer="1"][data-head="{head}"]').click()
        opened.locator("#numbers summary").click()
        texts = "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
        opened.locator("#numbers td").first.wait_for()
        shown = opened.locator("#numbers tr").evaluate_all(texts)
        scale = opened.locator("#scale-most").inner_text()
    assert float(scale.split()[0]) == pytest.approx(1.0 if values_name == "weights" else float(expected.max()), rel=0.01)
    assert shown[0][1:] == result.trace.keys(one) and [row[0] for row in shown[1:]] == result.trace.queries(one)
    assert [row[1:] for row in shown[1:]] == [[f"{value:.4f}" for value in row] for row in expected.tolist()]


def test_the_tooltip_shows_the_weight_under_the_pointer_and_arrow_keys_move_the_cursor(
    browser: Any, path: Path, result: AttentionResult
) -> None:
    one = next(one for one in result.trace.maps if one.kind.name == "cross")
    with page(browser, path) as opened:
        matrix = opened.locator("#matrix svg")
        matrix.scroll_into_view_if_needed()
        frame = matrix.locator(".frame").bounding_box()
        count = len(HARD[:12]) + 1
        opened.mouse.move(frame["x"] + frame["width"] * 3.5 / count, frame["y"] + frame["height"] * 2.5 / count)
        assert opened.locator("#tip").inner_text().endswith(f": {one.weights[0, 2, 3]:.4f}")
        assert "猫が" in opened.locator("#tip").inner_text()
        matrix.focus()
        opened.keyboard.press("ArrowDown")
        opened.keyboard.press("ArrowRight")
        assert opened.locator("#cell").inner_text().endswith(f": {one.weights[0, 3, 4]:.4f}")


def test_pointing_at_an_output_token_highlights_the_source_tokens_it_attends_to(
    browser: Any, path: Path, result: AttentionResult
) -> None:
    cross = [one.weights for one in result.trace.maps if one.kind.name == "cross"]
    mean = torch.stack(cross).mean((0, 1))  # (target, source)
    with page(browser, path) as opened:
        source, output = opened.locator("#sentence .tokens").all()
        output.locator("button").nth(3).hover()
        titles = [chip.get_attribute("title") for chip in source.locator("button").all()]
        shades = [chip.evaluate("chip => chip.style.background") for chip in source.locator("button").all()]
    assert titles == [f"{float(value):.4f}" for value in mean[3]]
    assert len(set(shades)) > 3


def test_tokens_are_shown_as_text(browser: Any, path: Path) -> None:
    with page(browser, path) as opened:
        chips = opened.locator("#sentence .tokens").first.locator("button").all_inner_texts()
        assert chips == [*HARD[:12], "</s>"]
        assert opened.locator("img, b").count() == 0
        assert "<b>encoder</b>" in opened.locator("#more").text_content()


def test_every_control_is_labeled_and_reachable_by_keyboard(browser: Any, path: Path) -> None:
    with page(browser, path) as opened:
        nameless = opened.evaluate(
            """() => [...document.querySelectorAll("button, input, select, svg, summary, section")]
              .filter((one) => !one.getAttribute("aria-label") && !one.getAttribute("aria-labelledby"))
              .filter((one) => !one.textContent.trim() && !one.closest("label")).map((one) => one.outerHTML.slice(0, 80))"""
        )
        assert nameless == []
        reached = set()
        for _ in range(60):
            opened.keyboard.press("Tab")
            reached.add(opened.evaluate("(document.activeElement.closest('[id]') || document.body).id"))
        assert reached >= {"theme", "sentence", "attention-controls", "head-grid", "matrix", "numbers", "words"}
        opened.locator('#head-grid button[tabindex="0"]').focus()
        opened.keyboard.press("ArrowRight")
        opened.keyboard.press("ArrowDown")
        assert opened.locator("#head-title").inner_text() == "cross · layer 1 · head 1 · weights"


def test_the_alignment_links_every_output_word_to_the_source_word_of_largest_weight(
    browser: Any, path: Path, result: AttentionResult
) -> None:
    mean = torch.stack(list(result.views.words.values())).mean((0, 1))  # (target, source)
    expected = sorted((int(row.argmax()), at) for at, row in enumerate(mean))
    with page(browser, path) as opened:
        assert opened.locator("#pharaoh").inner_text() == " ".join(f"{source}-{target}" for source, target in expected)


@pytest.mark.parametrize("layers", [2, 0])
def test_a_text_without_a_source_has_no_alignment_and_a_model_may_have_no_attention(
    browser: Any, layers: int, tmp_path: Path
) -> None:
    with page(browser, alone(tokens=9, layers=layers).save(tmp_path / "alone.html")) as opened:
        opened.locator("#theme").click()
        opened.set_viewport_size({"width": 700, "height": 800})
        opened.wait_for_timeout(300)
        assert opened.locator("#alignment").count() == 0
        assert opened.locator("#head-grid button").count() == 2 * layers
        opened.locator("#sentence .tokens").last.locator("button").nth(2).hover()
        status = opened.locator("#sentence-status").inner_text()
        assert status.endswith("0.0000") if layers else status == ""


def test_a_notebook_frame_works_without_network(browser: Any, result: AttentionResult, tmp_path: Path) -> None:
    (tmp_path / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8>{result._repr_html_()}", encoding="utf-8")
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    opened = context.new_page()
    messages: list[str] = []
    opened.on("console", lambda message: messages.append(message.text))
    opened.on("pageerror", lambda error: messages.append(str(error)))
    opened.goto((tmp_path / "notebook.html").as_uri())
    opened.frame_locator("iframe").locator("html[data-ready]").wait_for(state="attached", timeout=20_000)
    assert opened.frame_locator("iframe").locator("#head-grid button").count() == 6
    assert messages == []
    context.close()
