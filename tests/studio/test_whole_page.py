"""All views: hostile text is harmless, they fit the screen and are accessible, answer at once, and the bundle is that of the
sources."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from serving.running_server import run_server
from studio.family_runs import HOSTILE, WIDE_TEXT, train_family_runs, train_hostile_run
from studio.studio_pages import IN_BROWSER, TEXT, page, playwright, settle

import heedful
from heedful.serving.security import new_key

pytestmark = IN_BROWSER
ROOT = Path(__file__).parents[2]
BUILT = Path(heedful.__file__).parent / "studio"
MARKUP = "<img src=x onerror=alert(1)>"
VIEWS = ("work", "attention", "decoding", "inside", "heads", "positions", "cost", "training", "tour")
THROUGH_THE_NEXT_FRAME = """async (button) => {
  const start = performance.now();
  button.click();
  await new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = done;
    channel.port2.postMessage(0);
  }));
  return performance.now() - start;
}"""  # the message is handled after the frame has been painted


@pytest.fixture(scope="module")
def several(tiny_runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("several")
    runs = [*train_family_runs(folder, ["wide", "bert"]).values(), train_hostile_run(folder)]
    with run_server(tiny_runs["translation"], *runs) as running:
        yield running.url


@pytest.mark.parametrize("view", VIEWS)
def test_hostile_tokens_are_harmless_and_every_view_fits_the_screen(browser: Any, several: str, view: str) -> None:
    """Words of markup, direction overrides, other scripts and 3,000 characters; in the replies one token is replaced by markup
    and one by 5,000 characters."""
    with page(browser, several, view, model="hostile", text=TEXT) as opened:
        opened.route("**/api/**", lambda route: route.fulfill(response=(got := route.fetch()), body=replace_token(got.text())))
        opened.evaluate("hash => { location.hash = hash }", f"#/{view}?model=hostile&text={quote_plus(' '.join(HOSTILE))}")
        settle(opened)
        shown = opened.locator("#view").inner_text()
        if view in ("attention", "inside"):
            assert MARKUP[:10] in shown and "\u202e" not in shown and "日本語" in shown
        for width in (1280, 390):
            opened.set_viewport_size({"width": width, "height": 900})
            settle(opened)
            assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert opened.locator("img, script:not([src])").count() == 0
        assert opened.locator("[role=alert]").all_inner_texts() == []
        nameless = opened.evaluate(
            """() => [...document.querySelectorAll("button, input, select, textarea, canvas, [role=img]")]
              .filter((one) => !one.getAttribute("aria-label") && !one.closest("[aria-hidden]"))
              .filter((one) => !one.textContent.trim() && !one.closest("label"))
              .filter((one) => !document.querySelector(`label[for="${one.id}"]`))
              .map((one) => one.outerHTML.slice(0, 80))"""
        )
        assert nameless == []


def replace_token(reply: str) -> str:
    return reply.replace('"img"', json.dumps(MARKUP)).replace('"src"', json.dumps("z" * 5000))


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_no_serious_problem(browser: Any, several: str, view: str) -> None:
    """In light and dark colors, on a wide and on a small screen."""
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()
    problems = []
    with page(browser, several, view) as opened:
        for theme in ("light", "dark"):
            if opened.evaluate("document.documentElement.dataset.theme") != theme:
                opened.get_by_role("button", name=f"Switch to {theme} colors").click()
            for width in (1280, 390):
                opened.set_viewport_size({"width": width, "height": 900})
                settle(opened)
                found = axe.run(opened, context="html").response
                assert found["passes"]
                for one in found["violations"]:
                    if one["impact"] in ("serious", "critical"):
                        problems += [f"{theme} {width} {one['id']}: {node['html']:.120}" for node in one["nodes"][:3]]
    assert "\n".join(problems) == ""


def test_a_change_of_head_is_painted_in_a_tenth_of_a_second(browser: Any, several: str) -> None:
    """6 layers of 8 heads and 40 tokens: the time from a click to the next painted frame."""
    with page(browser, several, "attention", model="wide", text=WIDE_TEXT, kind="encoder") as opened:
        heads = opened.locator("button.head")
        assert heads.count() == 48
        assert opened.locator(".labels > span").first.is_visible()
        times = []
        for layer, head in ((1, 3), (5, 7), (0, 2), (3, 3), (4, 0)):
            button = opened.locator(f'button[data-layer="{layer}"][data-head="{head}"]')
            times.append(button.evaluate(THROUGH_THE_NEXT_FRAME))
            assert opened.locator("#head-title").inner_text() == f"encoder · layer {layer} · head {head}"
        assert sorted(times)[len(times) // 2] < 100, times


def test_a_server_with_keys_is_used_with_a_key(browser: Any, tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    key, line = new_key()
    (tmp_path / "keys").write_text(f"{line}\n")
    with run_server(tiny_runs["translation"], "--api-keys", tmp_path / "keys") as running:
        context = browser.new_context()
        opened = context.new_page()
        opened.goto(f"{running.url}/#/attention?text=w1")
        opened.get_by_label("API key").fill("wrong")
        opened.get_by_role("button", name="Use this key").click()
        playwright.expect(opened.get_by_label("API key")).to_have_value("")
        assert opened.locator("#head-title").count() == 0
        opened.get_by_label("API key").fill(key)
        opened.get_by_role("button", name="Use this key").click()
        opened.locator("#head-title").wait_for()
        assert opened.get_by_label("API key").count() == 0
        assert opened.evaluate("[sessionStorage.getItem('heedful-key'), localStorage.getItem('heedful-key')]") == [key, None]
        context.close()


def test_the_bundle_is_small_and_a_rebuild_gives_the_same_bytes(tmp_path: Path) -> None:
    assert sum(len(gzip.compress((BUILT / name).read_bytes())) for name in ("studio.js", "studio.css", "index.html")) < 250_000
    if shutil.which("npx") is None or not (ROOT / "studio" / "node_modules").is_dir():
        pytest.skip("Node or the packages of studio/ are missing; see make studio")
    build = ["npx", "vite", "build", "--outDir", str(tmp_path / "built"), "--emptyOutDir", "--logLevel", "error"]
    subprocess.run(build, cwd=ROOT / "studio", check=True, env=os.environ | {"NODE_ENV": "production"})
    assert {one.name: one.read_bytes() for one in (tmp_path / "built").iterdir()} == {
        one.name: one.read_bytes() for one in BUILT.iterdir()
    }


def test_back_returns_to_the_view_before(browser: Any, url: str) -> None:
    with page(browser, url, "attention") as opened:
        opened.get_by_role("tab", name="Cost").click()
        settle(opened)
        opened.get_by_role("tab", name="Positions").click()
        settle(opened)
        opened.go_back()
        playwright.expect(opened.get_by_role("tab", name="Cost")).to_have_attribute("aria-selected", "true")
        opened.go_back()
        playwright.expect(opened.get_by_role("tab", name="Attention")).to_have_attribute("aria-selected", "true")
        settle(opened)


def test_an_address_is_followed_although_the_page_replaces_it_before_it_is_read(browser: Any, url: str) -> None:
    """As an effect does when an example arrives between a change of the address and its event."""
    with page(browser, url, "attention") as opened:
        follow_and_replace = "old => { location.hash = '#/cost?model=translation'; history.replaceState(null, '', old) }"
        opened.evaluate(follow_and_replace, opened.url)
        playwright.expect(opened.locator("#to-cost")).to_have_attribute("aria-selected", "true")
        assert "#/cost?" in opened.url


def test_a_request_that_a_full_queue_refuses_is_sent_again(browser: Any, url: str) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    refused: list[str] = []

    def refuse_first(route: Any) -> None:
        if refused:
            route.continue_()
        else:
            refused.append(route.request.url)
            route.fulfill(status=429, headers={"Retry-After": "10"}, json={"error": "Slowdown: the queue is full"})

    opened.route("**/api/inspect/cost", refuse_first)
    opened.goto(f"{url}/#/cost?model=translation")
    playwright.expect(opened.locator("#parameters")).to_be_visible(timeout=20_000)
    assert refused and opened.get_by_role("alert").count() == 0
    context.close()


def test_unknown_words_are_counted(browser: Any, url: str) -> None:
    with page(browser, url, "work", text="w1 never-seen") as opened:
        playwright.expect(opened.locator("#unknown")).to_contain_text("not in the vocabulary", timeout=20_000)
