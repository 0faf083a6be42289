"""Work for images, tables, graphs and histories: the numbers of the page are those of Python, by pointer and by keyboard, and
inputs that cannot be used are answered with the sentence of the server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from serving.running_server import run_server
from studio.family_runs import train_family_runs
from studio.studio_pages import IN_BROWSER, cells, page, playwright, settle
from tiny_tasks import write_tiny_recipe
from workshop import heed

import heedful
from heedful import inspection
from heedful.data.image_files import encode_png

pytestmark = IN_BROWSER
MODELS = ("vit", "captions", "nodes", "forecasting", "series_classification", "decisions")


@pytest.fixture(scope="module")
def runs(tiny_runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("data-views")
    return {
        **train_family_runs(folder, ["vit", "captions", "nodes", "forecasting", "decisions"]),
        "image_classification": tiny_runs["image_classification"],
        "series_classification": tiny_runs["series_classification"],
    }


@pytest.fixture(scope="module")
def predictors(runs: dict[str, Path]) -> dict[str, Any]:
    return {name: heedful.load(run) for name, run in runs.items()}


@pytest.fixture(scope="module")
def url(runs: dict[str, Path]) -> Iterator[str]:
    with run_server(*runs.values()) as running:
        yield running.url


def examples(predictor: Any, split: str = "valid") -> list[Any]:
    return list(predictor.example_inputs(split))


def noise(width: int, height: int) -> bytes:
    """A PNG file that cannot be compressed to the limit of the server."""
    return encode_png(np.random.Generator(np.random.Philox(0)).integers(0, 256, (height, width, 3), np.uint8))


def bars(opened: Any, name: str) -> dict[str, str]:
    return {row[0]: row[1] for row in cells(opened, f'[aria-label="{name}"] tr')}


def rounded(values: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.4f}" for name, value in values.items()}


def top_patches(weights: Any) -> dict[str, str]:
    """The largest weights, by the name of the patch."""
    flat = {
        f"patch {row + 1},{column + 1}": value for row, line in enumerate(weights.tolist()) for column, value in enumerate(line)
    }
    return rounded(dict(sorted(flat.items(), key=lambda item: -item[1])[:5]))


def press(opened: Any, locator: Any, *keys: str) -> None:
    locator.focus()
    for key in keys:
        opened.keyboard.press(key)
    settle(opened)


def test_an_image_is_classified_and_the_attention_of_a_layer_and_head_is_drawn_on_it(
    browser: Any, url: str, predictors: Any
) -> None:
    classifier = predictors["vit"]
    first, second = examples(classifier)[:2]
    with page(browser, url, "work", model="vit", text="") as opened:
        assert opened.locator(".offered button").first.get_attribute("aria-pressed") == "true"
        (expected,) = classifier.predictions([first.text])
        assert bars(opened, "Probabilities of the labels") == rounded(expected.probabilities)
        assert opened.locator("[data-label]").inner_text() == expected.label
        assert first.expected in opened.locator("[data-expected]").inner_text()
        assert bars(opened, "Patches of the largest weight") == top_patches(
            inspection.image(classifier, first.text).maps[-1].weights
        )
        opened.locator(".offered button").nth(1).click()
        opened.get_by_role("button", name="one head").click()
        opened.locator("#layer").select_option("1")
        opened.locator("#head").select_option("1")
        settle(opened)
        result = inspection.image(classifier, second.text, head=1)
        assert bars(opened, "Patches of the largest weight") == top_patches(result.maps[1].weights)
        assert opened.locator("#attention-of").inner_text() == result.source
        press(opened, opened.get_by_role("toolbar").locator("button").nth(1), "ArrowLeft")
        assert bars(opened, "Patches of the largest weight") == top_patches(result.maps[0].weights)
        assert "mode=head" in opened.url and "head=1" in opened.url and "layer" not in opened.url
        down, across = result.maps[0].top
        press(
            opened,
            opened.get_by_label("Attention of layer 0; arrow keys move over patches"),
            "ArrowDown" if down == 0 else "ArrowUp",
        )
        assert opened.locator("#patch-weight").inner_text() == f"{float(result.maps[0].weights[1 - down, across]):.4f}"
        opened.reload()
        settle(opened)
        assert bars(opened, "Patches of the largest weight") == top_patches(result.maps[0].weights)


def test_the_drawn_image_has_the_pixels_of_the_data_faded_by_weight(browser: Any, url: str, predictors: Any) -> None:
    classifier = predictors["vit"]
    first = examples(classifier)[0]
    pixels = classifier.encode_example(first.text).pixels
    weights = inspection.image(classifier, first.text).maps[-1].weights
    middles = """one => {
      const { width, height } = one, all = one.getContext("2d").getImageData(0, 0, width, height).data;
      const at = (row, column) => 4 * (Math.floor((row * height) / 6) * width + Math.floor((column * width) / 8));
      return [1, 3, 5].map((row) => [1, 3, 5, 7].map((column) => [...all.slice(at(row, column), at(row, column) + 4)]));
    }"""
    with page(browser, url, "work", model="vit", text="") as opened:
        shown = opened.get_by_label("The image", exact=True).evaluate(middles)
        assert shown[1][0] == [*pixels[3, 0].tolist(), 255]
        faded = opened.get_by_label("Attention of rollout").evaluate(middles)
        maps = inspection.image(classifier, first.text).maps
        largest = max(float(one.weights.max()) for one in maps)
        for row, column in ((0, 0), (1, 1)):
            opacity = 0.12 + 0.88 * float(weights[row, column]) / largest
            assert faded[row][column][3] == pytest.approx(255 * opacity, abs=2)


def test_two_classifiers_of_images_are_compared(browser: Any, url: str, predictors: Any) -> None:
    (first, *_) = examples(predictors["vit"])
    with page(browser, url, "work", model="vit", text="") as opened:
        opened.get_by_label("compare with").select_option("image_classification")
        settle(opened)
        (other,) = predictors["image_classification"].predictions([first.text])
        shown = {row[0]: row[1] for row in cells(opened, "#other tr")}
        assert shown == rounded(other.probabilities)


def test_a_file_is_classified_and_what_is_no_image_is_refused_in_a_sentence(
    browser: Any, url: str, predictors: Any, tmp_path: Path
) -> None:
    first = examples(predictors["vit"])[1].text
    content = base64.b64decode(first.partition(",")[2])
    opened = browser.new_page()  # `page` refuses what the browser logs for an answer of status 400
    opened.goto(f"{url}/#/work?model=vit")
    opened.wait_for_selector("html[data-ready]")
    settle(opened)
    address = opened.url
    opened.set_input_files("#file", {"name": "empty.png", "mimeType": "image/png", "buffer": b""})
    playwright.expect(opened.get_by_role("alert")).to_have_text("empty.png is empty; expected an image.")
    assert opened.url == address  # the example is still chosen
    for name, raw, sentence in (
        ("note.png", b"not an image", "is not an image in a known format"),
        ("broken.png", content[:50], "damaged"),
        ("large.txt", b"a" * 80_000, "expected at most 100,000"),
        ("photo.png", noise(1200, 900), "is 320 pixels wide and 240 high, expected 8 and 6"),
    ):
        opened.set_input_files("#file", {"name": name, "mimeType": "image/png", "buffer": raw})
        playwright.expect(opened.get_by_role("alert").first).to_contain_text(sentence, timeout=10_000)
        settle(opened)
    assert "Reduced from 1200 × 900 to 320 × 240 pixels" in opened.get_by_role("note").inner_text()
    drop = """content => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([Uint8Array.from(atob(content), (one) => one.charCodeAt(0))], "a.png"));
      return transfer;
    }"""
    dropped = opened.evaluate_handle(drop, base64.b64encode(content).decode())
    opened.dispatch_event('section[aria-label="Input"]', "drop", {"dataTransfer": dropped})
    playwright.expect(opened.get_by_role("alert")).to_have_count(0)
    settle(opened)
    (expected,) = predictors["vit"].predictions([first])
    assert bars(opened, "Probabilities of the labels") == rounded(expected.probabilities)
    opened.close()


def test_a_caption_has_candidates_and_the_attention_of_each_word(browser: Any, url: str, predictors: Any) -> None:
    captioner = predictors["captions"]
    first = examples(captioner)[0].text
    (found,) = captioner.predictions([first], method="beam", beam=4, n_best=4)
    with page(browser, url, "work", model="captions", text="") as opened:
        rows = cells(opened, "#candidates tbody tr")
        assert [row[0] for row in rows] == [one.text or "(empty)" for one in found.candidates]
        for row, one in zip(rows, found.candidates, strict=True):
            assert [float(row[1]), float(row[2])] == pytest.approx([one.log_probability, one.score], abs=1e-4)
        chosen = next(at for at, one in enumerate(found.candidates) if len(one.text.split()) > 1)
        opened.locator("#candidates button").nth(chosen).click()
        settle(opened)
        caption = found.candidates[chosen].text
        assert opened.locator("[data-caption]").inner_text() == caption
        result = inspection.image(captioner, first, caption)
        words = opened.get_by_role("group", name="Words of the caption").locator("button")
        assert words.all_inner_texts() == [one.name for one in result.maps]
        words.nth(1).click()
        assert opened.locator("#map-name").inner_text() == result.maps[1].name
        assert bars(opened, "Patches of the largest weight") == top_patches(result.maps[1].weights)
        press(opened, words.nth(1), "ArrowLeft", "Enter")
        assert bars(opened, "Patches of the largest weight") == top_patches(result.maps[0].weights)
        opened.get_by_role("button", name="one head").click()
        opened.locator("#head").select_option("1")
        settle(opened)
        head = inspection.image(captioner, first, caption, layer=0, head=1)
        assert bars(opened, "Patches of the largest weight") == top_patches(head.maps[0].weights)
        assert opened.locator("#attention-of").inner_text() == head.source


def test_the_attention_view_of_a_caption_draws_a_query_on_the_image(browser: Any, url: str, predictors: Any) -> None:
    captioner = predictors["captions"]
    first = examples(captioner)[0].text
    weights = inspection.attention(captioner, first, kind="cross").all_maps()["maps"][0]["values"][0][0]
    with page(browser, url, "attention", model="captions", text="", kind="cross") as opened:
        assert opened.get_by_role("link", name="Choose another in Work").is_visible()
        assert opened.locator('[aria-label="Values"]').is_visible()
        assert opened.locator('[aria-label="Units"], #hide-special').count() == 0  # patches are neither subwords nor words
        assert opened.locator(".map > .scroll svg text").all_text_contents() == [
            f"{row},{at}" for row in (1, 2, 3) for at in (1, 2, 3, 4)
        ]
        query = opened.get_by_role("img", name="Attention of the query on the image; arrow keys move over patches")
        press(opened, query, *["ArrowUp"] * 3, *["ArrowLeft"] * 4)
        assert opened.locator("#patch-weight").inner_text() == f"{weights[0]:.4f}"


@pytest.mark.parametrize("model", ["series_classification", "forecasting"])
def test_the_attention_view_of_a_series_and_of_a_table_names_steps_and_patches(
    model: str, browser: Any, url: str, predictors: Any
) -> None:
    predictor = predictors[model]
    (first, *_) = inspection.attention(predictor, examples(predictor)[0].text, kind="self").all_maps()["maps"]
    with page(browser, url, "attention", model=model, text="", kind="self") as opened:
        assert opened.locator("#lacks").count() == 0
        shown = opened.locator(".map").first.inner_text()
        assert all(key in shown for key in first["keys"])


def test_a_forecast_has_intervals_baselines_and_a_table(browser: Any, url: str, predictors: Any) -> None:
    forecaster = predictors["forecasting"]
    first = examples(forecaster, "test")[0].text
    with page(browser, url, "work", model="forecasting", text="") as opened:
        result = inspection.forecast(forecaster, first, holdout=True)
        columns = result.forecast.columns
        names = ["load", "load 0.1", "load 0.9", "load true"]
        assert columns["load 0.5"] == columns["load"]  # the same column twice would say nothing
        assert cells(opened, "#values thead tr")[0] == ["date", *names]
        assert cells(opened, "#values tbody tr") == [
            [time, *(f"{columns[name][at]:.6g}" for name in names)] for at, time in enumerate(result.forecast.times)
        ]
        assert [float(one) for one in cells(opened, "#errors tbody tr")[0][1:]] == pytest.approx(
            list(result.errors.values()), rel=1e-3
        )
        press(opened, opened.get_by_role("button", name="wind", exact=True), "Enter")
        assert opened.locator("figure").evaluate_all("all => all.map(one => one.dataset.variable)") == ["load", "wind"]
        past, *lines = opened.locator('[data-variable="load"] svg').evaluate(
            "one => [...one.querySelectorAll('polyline')].reverse().map(line => line.getAttribute('points').split(' '))"
        )
        band = opened.locator('[data-variable="load"] polygon').get_attribute("points").split(" ")
        assert {band[0], *(line[0] for line in lines)} == {past[-1]}  # all begin at the last observed value
        assert len(band) == 2 * len(result.forecast.times) + 1
        press(opened, opened.locator('[data-variable="load"] svg'), "ArrowRight")
        shown = opened.locator('[data-variable="load"] figcaption').inner_text()
        assert f"forecast {columns['load'][1]:.4g}" in shown and f"at {result.forecast.times[1]}" in shown
        assert f"80% {columns['load 0.1'][1]:.4g} to {columns['load 0.9'][1]:.4g}" in shown
        for name, values in result.forecast.baselines.items():
            assert f"{name} {values[1][0]:.4g}" in shown
        opened.locator("#holdout").press("Space")
        settle(opened)
        later = inspection.forecast(forecaster, first).forecast
        assert [row[0] for row in cells(opened, "#values tbody tr")] == later.times and "mode=beyond" in opened.url
        assert opened.locator("#errors").count() == 0


def test_a_pasted_table_is_forecast_and_one_with_a_missing_number_is_refused(browser: Any, url: str, predictors: Any) -> None:
    table = "date,load,wind\n" + "".join(f"2024-01-0{day},{day % 3},{day % 2}\n" for day in range(1, 7))
    opened = browser.new_page()
    opened.goto(f"{url}/#/work?model=forecasting")
    opened.wait_for_selector("html[data-ready]")
    settle(opened)
    opened.get_by_text("Paste or edit the table").click()
    opened.locator("#input").fill(table.replace(",2,", ",,"))
    opened.locator("#input").press("Control+Enter")
    playwright.expect(opened.get_by_role("alert")).to_contain_text("expected a number in every column")
    opened.locator("#input").fill("no table")
    opened.locator("#run").click()
    playwright.expect(opened.get_by_role("alert")).to_contain_text("has no column 'date'; its columns are: no table")
    opened.locator("#input").fill(table)
    opened.locator("#run").click()
    playwright.expect(opened.get_by_role("alert")).to_have_count(0)
    settle(opened)
    expected = predictors["forecasting"].forecast(table)
    assert [row[1] for row in cells(opened, "#values tbody tr")] == [f"{row[0]:.6g}" for row in expected.values]
    opened.close()


def test_a_motion_is_classified_and_drawn(browser: Any, url: str, predictors: Any) -> None:
    classifier = predictors["series_classification"]
    first = examples(classifier)[0]
    with page(browser, url, "work", model="series_classification", text="") as opened:
        (expected,) = classifier.predictions([first.text])
        assert bars(opened, "Probabilities of the labels") == rounded(expected.probabilities)
        points = opened.get_by_role("img", name="Paths of path in the x–y plane").locator("polyline").get_attribute("points")
        assert len(points.split()) == expected.steps > 1
        press(opened, opened.locator("#step"), "ArrowRight")
        assert opened.locator("output").inner_text() == f"2 of {expected.steps}" and "step=1" in opened.url
        opened.get_by_role("button", name="over time").press("Enter")
        assert opened.locator("figure").count() == 1


def test_a_graph_shows_labels_and_the_attention_of_a_node(browser: Any, url: str, predictors: Any) -> None:
    classifier = predictors["nodes"]
    text = json.dumps(
        {
            "nodes": [{"node": name, "label": "yes", "x": at, "y": 1 - at} for at, name in enumerate("abcd")],
            "edges": [["a", "b"], ["b", "c"], ["c", "a"], ["c", "d"]],
        }
    )
    with page(browser, url, "work", model="nodes", text=text, step=2) as opened:
        (expected,) = classifier.predictions([text])
        assert bars(opened, "Probabilities of the labels") == rounded(expected.probabilities[2])
        labels = opened.locator("g[data-node]").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
        assert labels == [f"{node}: {label}" for node, label in zip(expected.nodes, expected.labels, strict=True)]
        correct = expected.labels.count("yes")
        assert f"{correct} of 4 labels are as in the input" in opened.locator("#view").inner_text()
        assert_attention(opened, inspection.graph(classifier, text), "c")
        opened.get_by_role("button", name="one head").click()
        opened.locator("#layer").select_option("1")
        opened.locator("#head").select_option("1")
        settle(opened)
        head = inspection.graph(classifier, text, layer=1, head=1)
        assert_attention(opened, head, "c")
        before = opened.locator("#node").input_value()
        node = opened.locator('g[data-node="c"]')
        node.focus()
        for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
            opened.keyboard.press(key)
            settle(opened)
            if opened.locator("#node").input_value() != before:
                break
        moved = "abcd"[int(opened.locator("#node").input_value())]
        assert moved != "c" and opened.evaluate("document.activeElement.dataset.node") == moved
        assert_attention(opened, head, moved)


def test_names_of_nodes_are_above_all_nodes_and_cover_none(browser: Any, url: str) -> None:
    names = [f"person{at}" for at in range(12)]
    nodes = [{"node": name, "x": at, "y": 1} for at, name in enumerate(names)]
    text = json.dumps({"nodes": nodes, "edges": [["person0", name] for name in names[1:7]]})
    covered = """svg => {
      const circles = [...svg.querySelectorAll("g circle:first-child")].map((one) => one.getBoundingClientRect());
      const texts = [...svg.querySelectorAll("g:last-of-type ~ text")].map((one) => one.getBoundingClientRect());
      const apart = (a, b) => a.right < b.left || b.right < a.left || a.bottom < b.top || b.bottom < a.top;
      return [texts.length, texts.filter((one) => circles.some((other) => !apart(one, other))).length];
    }"""
    with page(browser, url, "work", model="nodes", width=390, text=text) as opened:
        shown, hidden = opened.locator('svg[aria-label^="Graph"]').evaluate(covered)
        assert shown == 7 and hidden <= 1


def test_of_a_part_of_a_large_graph_only_some_nodes_are_compared(browser: Any, tmp_path: Path) -> None:
    recipe = write_tiny_recipe("node_classification", tmp_path)
    data = "data={form='graphs', builtin='communities', counts={train=200, valid=50, test=50}}"
    assert heed("train", recipe, data, "model.features=8", "training.steps=2", "--run", tmp_path / "large") == 0
    first = next(heedful.NodeClassifier.load(tmp_path / "large").example_inputs("valid"))
    given = json.loads(first.text)["nodes"]
    compared = [one for one in given if one["label"]]
    assert 0 < len(compared) < len(given)
    with run_server(tmp_path / "large") as running, page(browser, running.url, "work", model="large", text="") as opened:
        assert opened.get_by_role("button", name=f"node {given[0]['node']}", exact=True).get_attribute("aria-pressed") == "true"
        assert f" of {len(compared)} labels are as in the input" in opened.locator("#right").inner_text()
        assert "Part of a larger graph" in opened.locator("#part").inner_text()
        wrong = opened.locator("g[data-node] circle[stroke-dasharray]").count()
        assert opened.locator("#right").inner_text().startswith(f"{len(compared) - wrong} of")


def assert_attention(opened: Any, result: Any, name: str) -> None:
    """The bars and the lines have the weights of a node to itself and its neighbors."""
    (itself,) = (one.itself for one in result.nodes if one.node == name)
    weights = {edge.neighbor: edge.weight for edge in result.neighbors(name)}
    assert bars(opened, "Attention to itself and its neighbors") == rounded({f"{name} (itself)": itself, **weights})
    drawn = opened.locator("line[data-weight]").evaluate_all("all => all.map(one => one.dataset.weight)")
    assert sorted(drawn) == sorted(f"{value:.4f}" for value in weights.values()) and drawn
    assert result.heads in opened.locator("#view").inner_text()


HISTORY = {"desired": 4.0, "states": ["a1", "a2", "b2"], "actions": ["down", "right"], "rewards": [-0.2, -0.2]}


def test_decisions_change_with_the_desired_return_and_the_path(browser: Any, url: str, predictors: Any) -> None:
    maker = predictors["decisions"]

    def probabilities(history: dict[str, Any]) -> dict[str, str]:
        (decision,) = maker.predictions([history])
        return rounded(decision.probabilities)

    with page(browser, url, "work", model="decisions", text=json.dumps(HISTORY)) as opened:
        desired = json.loads(examples(maker)[1].text)["desired"]
        assert opened.get_by_role("button", name=f"episode 2, return {desired:g}", exact=True).is_visible()
        assert bars(opened, "Probabilities of the actions") == probabilities(HISTORY)
        assert opened.get_by_role("img", name="Grid world; path a1 a2 b2").is_visible()
        assert opened.locator("rect.wall").count() == len(maker.world.to_dict()["walls"])
        goals = opened.locator("rect.goal title").all_text_contents()
        assert sorted(goals) == sorted(f"{name}: goal, {value:g}" for name, value in maker.world.to_dict()["goals"].items())
        press(opened, opened.locator("#desired"), "End")
        desired = float(opened.locator("#desired-number").input_value())
        assert desired == max(json.loads(one.text)["desired"] for one in examples(maker)[:50])
        assert bars(opened, "Probabilities of the actions") == probabilities(HISTORY | {"desired": desired})
        opened.get_by_text("Numbers").click()
        rows = cells(opened, "#swept tbody tr")
        assert rows[-1][1:] == list(probabilities(HISTORY | {"desired": desired}).values()) and len(rows) == 41
        opened.locator("#desired-number").fill("-1.25")
        opened.locator("#desired-number").press("Enter")
        settle(opened)
        assert bars(opened, "Probabilities of the actions") == probabilities(HISTORY | {"desired": -1.25})
        press(opened, opened.locator("#step"), "ArrowLeft")
        shorter = {"desired": -1.25, "states": ["a1", "a2"], "actions": ["down"], "rewards": [-0.2]}
        assert bars(opened, "Probabilities of the actions") == probabilities(shorter) and "step=1" in opened.url


def test_slanted_names_of_columns_are_inside_the_card(browser: Any, url: str, predictors: Any) -> None:
    text = max((one.text for one in examples(predictors["decisions"])), key=len)
    with page(browser, url, "attention", model="decisions", text=text) as opened:
        shown = opened.locator(".map > .scroll").evaluate(
            """box => {
              const right = (one) => one.getBoundingClientRect().right;
              return [...box.querySelectorAll("svg text")].map((one) => right(box) - right(one));
            }"""
        )
        assert len(shown) > 5 and min(shown) >= 0
        assert opened.locator(".map > .scroll").evaluate("box => box.scrollWidth <= box.clientWidth")


def test_episodes_are_rolled_out_on_request(browser: Any, url: str, predictors: Any) -> None:
    expected = inspection.returns(predictors["decisions"], episodes=30).to_dict()["rollouts"]
    with page(browser, url, "work", model="decisions", text="") as opened:
        opened.locator("#roll-out").press("Enter")
        opened.locator("#returns tbody tr").first.wait_for(timeout=30_000)
        shown = [float(row[1]) for row in cells(opened, "#returns tbody tr")]
        assert shown == pytest.approx([one["reached"]["mean"] for one in expected], abs=6e-4)


def test_a_history_outside_a_grid_is_a_table(browser: Any, tmp_path: Path) -> None:
    rows = [
        f"{episode},{step},{0.5 * step},{'left' if step % 2 else 'right'},1\n" for episode in range(12) for step in range(4)
    ]
    recipe = write_tiny_recipe("decisions", tmp_path)
    for name in ("episodes.csv", "test-episodes.csv"):
        (tmp_path / name).write_text("episode,step,place,action,reward\n" + "".join(rows))
    text = recipe.read_text().replace('"cell"', '"place"').replace('categorical = ["place"]\n', "").replace("world = 0\n", "")
    recipe.write_text(text)
    assert heed("train", recipe, "training.steps=2", "--run", tmp_path / "plain") == 0
    history = {"desired": 3, "states": [0, 0.5], "actions": ["right"], "rewards": [1]}
    (expected,) = heedful.DecisionMaker.load(tmp_path / "plain").predictions([history])
    with (
        run_server(tmp_path / "plain") as running,
        page(browser, running.url, "work", model="plain", text=json.dumps(history)) as opened,
    ):
        assert cells(opened, "#history tbody tr") == [["0", "right", "1"], ["0.5", "?", "–"]]
        assert bars(opened, "Probabilities of the actions") == rounded(expected.probabilities)
        assert opened.locator("#roll-out").count() == 0


@pytest.mark.parametrize(
    ("model", "text", "sentence"),
    [
        ("series_classification", "x,y\n1,\n", "expected a number"),
        ("nodes", '{"nodes": []}', "has no nodes"),
        ("nodes", "<img src=x onerror=alert(1)>", "JSON"),
        ("decisions", '{"states": "a1"}', "expected"),
        ("captions", "data:image/png;base64,AAAA", "is not an image in a known format"),
    ],
)
def test_an_unusable_input_is_answered_with_a_sentence(browser: Any, url: str, model: str, text: str, sentence: str) -> None:
    opened = browser.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(f"{url}/#/work?{urlencode({'model': model, 'text': text})}")
    playwright.expect(opened.get_by_role("alert").first).to_contain_text(sentence, timeout=15_000)
    assert opened.locator("img").count() == 0 and errors == []
    opened.close()


@pytest.mark.parametrize("model", MODELS)
def test_an_address_with_numbers_that_the_model_does_not_have_is_read_as_far_as_possible(
    browser: Any, url: str, model: str
) -> None:
    with page(browser, url, "work", model=model, text="", layer=9, head=9, step=99, mode="head", shown="-1,x,7") as opened:
        opened.locator(".bar, #values td, #candidates td").first.wait_for(state="attached")
        settle(opened)
        assert opened.get_by_role("alert").count() == 0


@pytest.mark.parametrize("model", MODELS)
def test_every_view_of_the_model_shows_numbers_or_says_why_not(browser: Any, url: str, model: str) -> None:
    """`page` asserts that no request fails."""
    with page(browser, url, "work", model=model, text="") as opened:
        for view in ("attention", "decoding", "inside", "heads", "positions", "cost"):
            opened.locator(f"#to-{view}").click()
            settle(opened)
            assert opened.get_by_role("alert").count() == 0 and len(opened.locator("#view").inner_text()) > 50
            assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("model", MODELS)
def test_data_views_fit_the_screen_and_axe_finds_no_serious_problem(browser: Any, url: str, model: str) -> None:
    """In light and dark colors, on a wide and on a small screen; images are not loaded by their address."""
    from axe_playwright_python.sync_playwright import Axe

    problems = []
    with page(browser, url, "work", model=model, text="") as opened:
        for theme, width in (("light", 1280), ("dark", 390), ("light", 390), ("dark", 1280)):
            if opened.evaluate("document.documentElement.dataset.theme") != theme:
                opened.get_by_role("button", name=f"Switch to {theme} colors").click()
            opened.set_viewport_size({"width": width, "height": 900})
            settle(opened)
            assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
            found = Axe().run(opened, context="html").response
            assert found["passes"]
            serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
            problems += [f"{theme} {width} {one['id']}: {one['nodes'][0]['html']:.150}" for one in serious]
        assert opened.locator("img").count() == 0 and opened.locator("#view canvas, #view svg").count() > 0
    assert "\n".join(problems) == ""
