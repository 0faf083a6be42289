"""The studio in a browser: its numbers are those of Python, it makes no request to other servers and logs nothing."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from serving.running_server import run_server
from tiny_tasks import example_of

import heedful
from heedful import inspection
from heedful.training.metrics_log import read_metrics

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")]
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
ROOT = Path(__file__).parents[2]
BUILT = Path(heedful.__file__).parent / "studio"
TEXT = "w1 w2 w3"
HOSTILE = "<img src=x onerror=alert(1)> \u202eabc " + "y" * 4000
VIEWS = ("work", "attention", "decoding", "inside", "heads", "positions", "cost", "training", "tour")


@pytest.fixture(scope="module")
def url(tiny_runs: dict[str, Path]) -> Iterator[str]:
    with run_server(*(tiny_runs[task] for task in ("translation", "classification", "tagging", "language"))) as running:
        yield running.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS.split(), "--disable-sync"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def translator(tiny_runs: dict[str, Path]) -> Any:
    return heedful.load(tiny_runs["translation"])


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
    found: list[list[str]] = opened.locator(selector).evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.textContent.trim()))"
    )
    return found


def test_work_translates_and_decodes_again_after_an_alternative(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "work") as opened:
        (best,) = translator.translations([TEXT])
        assert opened.locator("#translation").inner_text() == best.text
        assert opened.locator("#log-probability").inner_text() == f"{best.candidates[0].log_probability:.4f}"
        opened.get_by_role("group", name="Target tokens").locator("button").nth(1).click()
        settle(opened)
        expected = inspection.alternatives(translator, TEXT, 1)
        assert [row[1] for row in cells(opened, "#alternatives tbody tr")] == [
            f"{a.probability:.4f}" for a in expected.alternatives
        ]
        other = next(one.piece for one in expected.alternatives if not one.chosen)
        opened.locator("#alternatives button", has_text=other).first.click()
        settle(opened)
        forced = inspection.alternatives(translator, TEXT, 1, instead=other).instead
        assert forced is not None and opened.locator("#forced").inner_text() == forced.translation
        assert opened.locator("#forced-log-probability").inner_text() == f"{forced.log_probability:.4f}"
        assert "step=1" in opened.url


@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_work_shows_the_prediction_of_every_task(browser: Any, url: str, task: str, tiny_runs: dict[str, Path]) -> None:
    text = example_of(task).inputs[0]
    (expected,) = heedful.load(tiny_runs[task]).predictions([text])
    with page(browser, url, "work", model=task, text=text) as opened:
        shown = opened.get_by_label("Output").inner_text()
        found = expected.to_dict()
        if task == "classification":
            assert all(f"{value:.4f}" in shown for value in found["probabilities"].values())
        else:
            assert [f"{label} {value:.2f}" for label, value in zip(found["labels"], found["probabilities"], strict=True)] == (
                opened.locator(".tagword small").all_inner_texts()
            )


def test_work_streams_generated_text(browser: Any, url: str) -> None:
    with page(browser, url, "work", model="language", text="the cat") as opened:
        opened.locator("#run").click()
        playwright.expect(opened.locator("#run")).to_be_enabled(timeout=20_000)
        assert len(opened.locator("#streamed").inner_text()) > len("the cat")


@pytest.mark.parametrize(("kind", "by"), [("cross", "weights"), ("encoder", "norms"), ("decoder", "rollout")])
def test_attention_shows_the_values_of_the_chosen_head(browser: Any, url: str, translator: Any, kind: str, by: str) -> None:
    with page(browser, url, "attention", kind=kind, by=by) as opened:
        head = 0 if by == "rollout" else 1
        opened.locator(f'button[data-layer="1"][data-head="{head}"]').click()
        chosen = {} if by == "rollout" else {"head": head}
        result = inspection.attention(translator, TEXT, kind=kind, layer=1, by=by, **chosen).to_dict()["map"]  # type: ignore[arg-type]
        opened.locator("summary").click()
        shown = [list(map(float, row[1:])) for row in cells(opened, "table.numbers tbody tr")]
        assert len(shown) == len(result["values"])
        for row, expected in zip(shown, result["values"], strict=True):
            assert row == pytest.approx(expected, abs=7e-5)
        opened.get_by_role("button", name="lines").click()
        assert opened.locator("svg.lines line").count() == sum(value > 0.02 for row in result["values"] for value in row)


def test_decoding_shows_the_search_tree_and_the_lens(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "decoding") as opened:
        (stage,) = (one for one in inspection.explain(translator, TEXT, about="tree").stages if one.tree is not None)
        assert stage.tree is not None
        assert opened.locator("g.node").count() == len(stage.tree.nodes)
        opened.locator('g.node[data-index="3"]').click()
        node = stage.tree.nodes[3]
        status = opened.locator("#node").inner_text()
        assert f"p {node.probability:.4f} · log P {node.total:.4f} · score {node.score:.4f} · rank {node.rank}" in status
        lens = inspection.lens(translator, TEXT)
        for row, layer in zip(cells(opened, "#lens tbody tr"), lens.layers, strict=True):
            assert all(f"{value:.4f}" in cell for cell, value in zip(row[1:], layer.probability, strict=True))
        opened.get_by_role("button", name="Previous step").click()
        assert opened.locator("g.node").count() < len(stage.tree.nodes)


@pytest.mark.parametrize("kind", ["cross", "decoder"])
def test_inside_a_head_the_page_repeats_the_arithmetic(browser: Any, url: str, translator: Any, kind: str) -> None:
    with page(browser, url, "inside", kind=kind, layer=1, head=1) as opened:
        stages = inspection.explain(translator, TEXT, kind=kind, layer=1, head=1).stages
        weights = next(stage for stage in stages if stage.title == "Softmax").matrices[0]
        (shown,) = cells(opened, f'table[data-matrix="{weights.name}"] tbody tr')
        numbers = [f"{cell:.4f}" for cell in weights.cells[0] if isinstance(cell, float) and cell != int(cell)]
        assert [cell for cell in shown[1:] if "." in cell] == numbers
        checks = opened.locator("[data-check]").all_inner_texts()
        assert len(checks) >= 3 and all(text.startswith("✓") for text in checks)


def test_heads_are_listed_and_removed(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "heads") as opened:
        result = inspection.heads(translator, sentences=50)
        assert opened.locator("#heads-loss").inner_text() == f"{result.loss:.4f}"
        assert [row[2] for row in cells(opened, "#heads tbody tr")] == [f"{one.confidence:.4f}" for one in result.heads]
        opened.get_by_label("Switch off cross.0.1").click()
        settle(opened)
        ablated = inspection.ablate(translator, TEXT, ["cross.0.1"])
        assert opened.locator("#change").inner_text() == f"{ablated.change:+.4f}"
        assert opened.locator("#without").inner_text() == ablated.translation
        opened.locator("#prune").click()
        settle(opened)
        curve = inspection.pruning_curve(translator, sentences=100)
        assert [row[0] for row in cells(opened, "#pruning tbody tr")] == [str(one.kept) for one in reversed(curve.points)]


def test_positions_and_cost(browser: Any, url: str, translator: Any) -> None:
    with page(browser, url, "positions") as opened:
        scheme = inspection.positions(translator, sentences=50).to_dict()["schemes"]["encoder_position"]
        box = opened.locator('[data-scheme="encoder_position"]')
        box.locator("summary").click()
        assert box.locator("tbody tr").nth(1).locator("td").nth(0).inner_text() == f"{scheme['encoding'][1][0]:.4f}"
    with page(browser, url, "cost") as opened:
        cost = inspection.cost(translator).to_dict()
        assert opened.locator("#parameters").inner_text() == f"{cost['parameters']:,}"
        for phase, parts in cost["phases"].items():
            assert [row[0] for row in cells(opened, f'table[data-phase="{phase}"] tbody tr')] == [one["part"] for one in parts]


def test_training_shows_the_last_record_and_verified_checkpoints(browser: Any, url: str, tiny_runs: dict[str, Path]) -> None:
    with page(browser, url, "training", runs="translation,tagging") as opened:
        opened.locator('[data-checkpoints="tagging"] tbody tr').first.wait_for()
        for name in ("translation", "tagging"):
            last = read_metrics(tiny_runs[name] / "metrics.jsonl")[-1]
            section = opened.get_by_label(f"Checkpoints of {name}")
            assert section.locator('[data-last="loss"]').inner_text() == f"{last['loss']:.4f}"
            assert "✓ verified" in section.inner_text()
        assert opened.locator('[data-figure="loss"] polyline').count() >= 2


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("view", VIEWS)
def test_hostile_text_is_harmless_and_every_view_fits_the_screen(browser: Any, url: str, view: str, width: int) -> None:
    with page(browser, url, view, width=width, text=HOSTILE[:60] if view != "work" else TEXT) as opened:
        assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert opened.locator("img").count() == 0
        nameless = opened.evaluate(
            """() => [...document.querySelectorAll("button, input, select, textarea, canvas, [role=img]")]
              .filter((one) => !one.getAttribute("aria-label") && !one.getAttribute("aria-hidden"))
              .filter((one) => !one.textContent.trim() && !one.closest("label"))
              .filter((one) => !document.querySelector(`label[for="${one.id}"]`))
              .map((one) => one.outerHTML.slice(0, 80))"""
        )
        assert nameless == []


def test_the_bundle_is_small_and_a_rebuild_gives_the_same_bytes(tmp_path: Path) -> None:
    assert sum(len(gzip.compress((BUILT / name).read_bytes())) for name in ("studio.js", "studio.css", "index.html")) < 250_000
    if shutil.which("npx") is None or not (ROOT / "studio" / "node_modules").is_dir():
        pytest.skip("Node or the packages of studio/ are missing; see make studio")
    build = ["npx", "vite", "build", "--outDir", str(tmp_path / "built"), "--emptyOutDir", "--logLevel", "error"]
    subprocess.run(build, cwd=ROOT / "studio", check=True, env=os.environ | {"NODE_ENV": "production"})
    assert {one.name: one.read_bytes() for one in (tmp_path / "built").iterdir()} == {
        one.name: one.read_bytes() for one in BUILT.iterdir()
    }
