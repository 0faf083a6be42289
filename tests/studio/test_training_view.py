"""Training: the numbers of the page are those of the run folder; a studio without a run trains the demo model."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Any

import pytest
from studio.studio_pages import IN_BROWSER, cells, page, playwright
from tiny_tasks import write_tiny_recipe
from workshop import heed, start_heed

from heedful.training.metrics_log import append_metrics, read_metrics

pytestmark = IN_BROWSER


@pytest.fixture(scope="module")
def folder(tiny_runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: one with a damaged checkpoint, and one that is being trained."""
    folder = tmp_path_factory.mktemp("watched")
    shutil.copytree(tiny_runs["translation"], folder / "damaged", symlinks=True)
    recipe = write_tiny_recipe("translation", tmp_path_factory.mktemp("recipe"))
    assert heed("train", recipe, "training.steps=20", "--run", folder / "live") == 0
    checkpoint = max((folder / "damaged" / "checkpoints").glob("step-*"))
    weights = checkpoint / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    records = [
        {"step": 1, "kind": "train", "loss": 4.0, "rate": 0.001, "norm": 2.0, "skipped": 0.0, "seconds": 1.0},
        {"step": 2, "kind": "train", "loss": 2.0, "rate": 0.002, "norm": 1.0, "skipped": 1.0, "seconds": 3.0},
    ]
    (folder / "live" / "metrics.jsonl").unlink()
    for record in records:
        append_metrics(folder / "live" / "metrics.jsonl", record | {"time": time()})
    return folder


@pytest.fixture(scope="module")
def studio(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`heed studio` without a run, in an empty folder."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    empty = tmp_path_factory.mktemp("empty")
    options = ("--no-browser", "--port", "0", "--json", "--watch", folder)
    with start_heed("studio", *options, cwd=empty, **streams) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()


def values(opened: Any, figure: str) -> dict[str, str]:
    found: dict[str, str] = opened.locator(f'[data-figure="{figure}"] [data-value]').evaluate_all(
        "all => Object.fromEntries(all.map((one) => [one.dataset.value, one.textContent]))"
    )
    return found


def test_training_shows_the_last_record_and_verified_checkpoints(browser: Any, url: str, tiny_runs: dict[str, Path]) -> None:
    with page(browser, url, "training", runs="translation,tagging") as opened:
        opened.locator('[data-checkpoints="tagging"] tbody tr').first.wait_for()
        for name in ("translation", "tagging"):
            last = read_metrics(tiny_runs[name] / "metrics.jsonl")[-1]
            section = opened.get_by_label(f"Checkpoints of {name}")
            assert section.locator('[data-last="loss"]').inner_text() == f"{last['loss']:.4f}"
            assert "✓ verified" in section.inner_text()
        shown = values(opened, "loss")
        assert {name.split()[0] for name in shown} == {"translation", "tagging"}, "two runs are overlaid"


def test_outputs_over_training_are_those_of_the_run(browser: Any, url: str, tiny_runs: dict[str, Path]) -> None:
    records = read_metrics(tiny_runs["translation"] / "samples.jsonl")
    with page(browser, url, "training", runs="translation") as opened:
        table = '[data-samples="translation"] tbody tr'
        opened.locator(table).first.wait_for()
        for number in (0, 1):
            opened.get_by_role("group", name="Validation example").get_by_role("button").nth(number).click()
            outputs = [record["samples"][number]["output"] for record in records]
            different = [one for at, one in enumerate(outputs) if at == 0 or one != outputs[at - 1]]
            shown = [row[1].removesuffix(" ✓") for row in cells(opened, table)]
            assert shown == different and shown
        marked = opened.locator(f"{table} mark").all_inner_texts()
        reference = records[-1]["samples"][1]["reference"].split()
        assert all(word not in reference or outputs[-1].split().count(word) > reference.count(word) for word in marked)


def test_keys_choose_a_record_in_all_figures_and_axes_change(browser: Any, studio: str) -> None:
    with page(browser, studio, "training", model="", runs="live") as opened:
        opened.locator('[data-figure="loss"] svg').focus()
        for keys, loss, norm in (("Home", "4", "2"), ("ArrowRight", "2", "1")):
            opened.keyboard.press(keys)
            assert (values(opened, "loss"), values(opened, "norm")) == ({"train": loss}, {"train": norm})
        opened.keyboard.press("Home")
        assert opened.locator('[data-figure="loss"] figcaption').inner_text().startswith("loss at 1")
        opened.get_by_role("button", name="time").click()
        assert "at 0:03" in opened.locator('[data-figure="loss"] figcaption').inner_text()
        opened.get_by_role("button", name="log").click()
        middle = opened.locator('[data-figure="loss"] polyline').first.get_attribute("points")
        assert middle is not None and len(middle.split()) == 2
        assert "skipped updates" in opened.locator('[data-figure="skipped"]').inner_text()


def test_a_single_validation_is_in_the_middle_of_an_axis_of_integers(browser: Any, studio: str, folder: Path) -> None:
    (record,) = [one for one in read_metrics(folder / "damaged" / "metrics.jsonl") if one["kind"] == "valid"]
    with page(browser, studio, "training", runs="damaged", model="tour") as opened:
        figure = opened.locator('[data-figure="bleu"] svg')
        (point,) = figure.locator("circle").evaluate_all("all => all.map((one) => Number(one.getAttribute('cx')))")
        below = figure.locator('text[y="193"]').all_text_contents()
        assert below == [str(record["step"] + at) for at in (-1, 0, 1)] and 200 < point < 260


def test_the_pointer_shows_the_nearest_record(browser: Any, studio: str) -> None:
    with page(browser, studio, "training", model="", runs="live") as opened:
        box = opened.locator('[data-figure="loss"] svg').bounding_box()
        opened.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
        assert values(opened, "loss") == {"train": "4"}
        opened.mouse.move(0, 0)
        assert values(opened, "loss") == {"train": "2"}


def test_a_run_that_trains_is_followed_and_its_end_is_estimated(browser: Any, studio: str, folder: Path) -> None:
    with page(browser, studio, "training", model="", runs="live") as opened:
        steps = int(cells(opened, 'tr[data-run="live"]')[0][1].split("of")[1].replace(",", ""))
        assert steps > 3
        state = opened.locator("[data-state]")
        assert state.get_attribute("data-state") == "training"
        assert state.inner_text().endswith(f"about {2 * (steps - 2)} s left")
        log = {"step": 3, "kind": "train", "loss": 1.5, "rate": 0.003, "norm": 1.0, "skipped": 1.0, "seconds": 5.0}
        append_metrics(folder / "live" / "metrics.jsonl", log | {"time": time()})
        playwright.expect(opened.locator('[data-figure="loss"] [data-value]')).to_have_text("1.5", timeout=10_000)


def test_a_damaged_checkpoint_is_marked(browser: Any, studio: str, folder: Path) -> None:
    with page(browser, studio, "training", model="", runs="damaged") as opened:
        rows = cells(opened, '[data-checkpoints="damaged"] tbody tr')
        assert rows and rows[-1][1].startswith("✗") and str(folder) not in rows[-1][1]
        assert all(row[1] == "✓ verified" for row in rows[:-1])


def test_the_demo_model_is_trained_by_a_button(browser: Any, studio: str) -> None:
    with page(browser, studio, "training", model="", runs="live") as opened:
        opened.get_by_role("button", name="Train the demo model").click()
        opened.locator('[data-demo="training"]').wait_for()
        opened.get_by_role("button", name="Stop").click()
        opened.locator('[data-demo="stopped"]').wait_for(timeout=60_000)
        assert opened.get_by_role("button", name="Continue training").is_enabled()


def test_a_studio_without_a_run_opens_the_tour(browser: Any, studio: str) -> None:
    opened = browser.new_page()
    opened.goto(studio)
    opened.wait_for_selector("html[data-ready]", timeout=20_000)
    assert opened.get_by_role("tab", name="Tour").get_attribute("aria-selected") == "true"
    opened.close()
