"""Attention, Inside a head, Heads, Positions, Cost: the numbers of the page are those of Python, for several tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving.running_server import run_server
from studio.family_runs import train_family_runs
from studio.studio_pages import IN_BROWSER, TEXT, cells, page, settle

import heedful
from heedful import inspection
from heedful.inspection.analyses.alignment import find_heads
from heedful.inspection.measures.alignment_heads import Aligner

pytestmark = IN_BROWSER
TEXTS = {
    **dict.fromkeys(("translation", "alibi", "bahdanau"), TEXT),
    "language": "the cat sees",
    "rotary": "the cat",
    "bert": "a dog runs",
}


@pytest.fixture(scope="module")
def runs(tiny_runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    more = train_family_runs(tmp_path_factory.mktemp("families"), ["bert", "bahdanau", "rotary", "alibi", "gold"])
    return {"translation": tiny_runs["translation"], "language": tiny_runs["language"], **more}


@pytest.fixture(scope="module")
def predictors(runs: dict[str, Path]) -> dict[str, Any]:
    return {name: heedful.load(run) for name, run in runs.items()}


@pytest.fixture(scope="module")
def views(runs: dict[str, Path]) -> Iterator[str]:
    with run_server(*runs.values()) as running:
        yield running.url


def numbers(opened: Any, selector: str) -> list[list[float]]:
    """The numbers of a table without the labels of its rows; it is rendered after it has been opened."""
    opened.locator(f"{selector} tbody tr").first.wait_for()
    return [list(map(float, row[1:])) for row in cells(opened, f"{selector} tbody tr")]


def assert_close(shown: list[list[float]], expected: list[list[float]]) -> None:
    assert len(shown) == len(expected) > 0
    for row, other in zip(shown, expected, strict=True):
        assert row == pytest.approx(other, abs=7e-5)


@pytest.mark.parametrize(
    ("model", "kind", "by", "layer"),
    [
        ("translation", "cross", "weights", 1),
        ("translation", "encoder", "norms", 1),
        ("translation", "decoder", "rollout", 1),
        ("language", "within", "weights", 0),
        ("bert", "self", "norms", 1),
        ("bahdanau", "cross", "weights", 0),
    ],
)
def test_attention_shows_the_values_of_the_chosen_head(
    browser: Any, views: str, predictors: dict[str, Any], model: str, kind: str, by: str, layer: int
) -> None:
    text = TEXTS[model]
    with page(browser, views, "attention", model=model, text=text, kind=kind, by=by) as opened:
        head = 0 if by == "rollout" or model == "bahdanau" else 1
        opened.locator(f'button[data-layer="{layer}"][data-head="{head}"]').click()
        chosen = {} if by == "rollout" else {"head": head}
        result = inspection.attention(predictors[model], text, kind=kind, layer=layer, by=by, **chosen)  # type: ignore[arg-type]
        expected = result.to_dict()["map"]["values"]
        opened.get_by_label("One head").locator("summary").click()
        assert_close(numbers(opened, '[aria-label="One head"] table.numbers'), expected)
        opened.get_by_role("button", name="lines").click()
        assert opened.locator("svg.lines line").count() == sum(value > 0.02 for row in expected for value in row)
        summary = inspection.attention(predictors[model], text, kind=kind, by=by).heads()  # type: ignore[arg-type]
        one = next(row for row in summary if row.layer == layer and row.head in (head, None))
        assert opened.locator("#head-entropy").inner_text() == f"{one.entropy:.2f}"
        assert opened.locator("#head-largest").inner_text() == f"{one.largest:.2f}"


def test_attention_between_words_and_without_special_tokens(browser: Any, views: str, predictors: dict[str, Any]) -> None:
    with page(browser, views, "attention", kind="cross") as opened:
        result = inspection.attention(predictors["translation"], TEXT, kind="cross")
        (first, *_) = result.all_maps()["maps"]
        opened.get_by_label("One head").locator("summary").click()
        opened.locator("#hide-special").check()
        rows, columns = ([at for at, word in enumerate(first[side]) if word >= 0] for side in ("query_words", "key_words"))
        assert len(rows) < len(first["queries"]) and len(columns) < len(first["keys"])
        expected = [[first["values"][0][row][column] for column in columns] for row in rows]
        assert_close(numbers(opened, '[aria-label="One head"] table.numbers'), expected)
        opened.get_by_role("button", name="words", exact=True).click()
        settle(opened)
        (words, *_) = result.all_maps(words=True)["maps"]
        assert_close(numbers(opened, '[aria-label="One head"] table.numbers'), words["values"][0])


def test_words_are_aligned_and_the_error_rate_is_measured(browser: Any, views: str, predictors: dict[str, Any]) -> None:
    text, translator = "The girl sees the dog", predictors["gold"]
    target = translator.encode_example(text).target.text
    if not target.split():  # a model of two steps may generate nothing
        pytest.fail("the translation is empty, so that there is nothing to align")
    with page(browser, views, "attention", model="gold", text=text, kind="cross", layer=1, head=1) as opened:
        for button, heads in (("all heads", None), ("layer 1", "1"), ("head 1.1", "1.1")):
            opened.get_by_role("group", name="Heads of the alignment").get_by_role("button", name=button).click()
            settle(opened)
            aligner = Aligner(find_heads(translator, heads))
            expected = inspection.alignment(translator, [(text, target)], aligner=aligner)
            assert opened.locator("#pharaoh").inner_text() == expected.pharaoh()[0]
            links = sorted(expected.links[0], key=lambda link: (link[1], link[0]))
            weights = expected.weights[0]
            assert [row[2] for row in cells(opened, "#alignment tbody tr")] == [f"{weights[t][s]:.4f}" for s, t in links]
        opened.locator("#measure-alignment").click()
        settle(opened)
        measured = inspection.alignment(translator)
        assert measured.scores is not None
        assert opened.locator("#aer").inner_text() == f"{measured.scores.error_rate.value:.1%}"
        figures = measured.to_dict()
        for name in ("precision", "recall"):
            assert opened.locator(f"#{name}").inner_text() == f"{figures[name]:.1%}"
        shown = opened.locator("#aer-heads button b").all_inner_texts()
        assert shown == [f"{one.predict.value:.1%}" for one in measured.scores.heads] and shown
        selected = inspection.alignment(translator, [(text, target)], aligner=measured.aligner)
        assert opened.locator("#pharaoh").inner_text() == selected.pharaoh()[0]


@pytest.mark.parametrize(
    ("model", "kind", "steps"),
    [
        ("translation", "cross", 8),
        ("translation", "decoder", 8),
        ("alibi", "decoder", 8),
        ("language", "within", 8),
        ("rotary", "within", 8),
        ("bert", "self", 8),
        ("bahdanau", "cross", 3),
    ],
)
def test_inside_a_head_the_page_repeats_every_step(
    browser: Any, views: str, predictors: dict[str, Any], model: str, kind: str, steps: int
) -> None:
    text = TEXTS[model]
    with page(browser, views, "inside", model=model, text=text, kind=kind, step=1) as opened:
        stages = inspection.explain(predictors[model], text, kind=kind, token="#1").stages
        assert opened.locator("ol.stages > li h3").all_inner_texts() == [stage.title for stage in stages]
        for stage in stages:
            for matrix in stage.matrices:
                shown = cells(opened, f'[aria-label="{stage.title}"] table[data-matrix="{matrix.name}"] tbody tr')
                assert len(shown) == len(matrix.cells)
                for row, given in zip(shown, matrix.cells, strict=True):
                    for cell, value in zip(row[1:], given, strict=True):
                        if isinstance(value, float) and math.isfinite(value):
                            assert float(cell) == pytest.approx(value, abs=6e-5)
        checks = opened.locator("[data-check]").all_inner_texts()
        assert len(checks) == steps and all(text.startswith("✓") for text in checks), checks
        assert opened.locator("#absent").count() == (1 if model == "bahdanau" else 0)


def test_without_the_scale_the_entropy_is_that_of_python(browser: Any, views: str, predictors: dict[str, Any]) -> None:
    with page(browser, views, "inside", kind="encoder", layer=1, head=1, step=2) as opened:
        stages = inspection.explain(predictors["translation"], TEXT, kind="encoder", layer=1, head=1, token="#2").stages
        softmax = next(stage for stage in stages if stage.title == "Softmax")
        scaled, unscaled = (entropy(one.cells[0]) for one in (softmax.matrices[0], softmax.mistakes[0].matrices[0]))
        assert opened.locator("#entropy").inner_text() == f"{scaled:.3f}"
        opened.locator("#unscaled").check()
        assert opened.locator("#entropy").inner_text() == f"{unscaled:.3f}" != f"{scaled:.3f}"


def entropy(weights: Any) -> float:
    return float(-sum(weight * math.log2(weight) for weight in weights if weight > 0))


def roles_of(head: Any) -> str:
    """As in the table: position -1 93%, mostly rare 51%."""

    def name(one: Any) -> str:
        kinds = {"positional": "position", "syntactic": ""}
        return f"{kinds.get(one.role, one.role)} {one.what}".strip()

    shown = [f"{name(one)} {100 * one.value:.0f}%" for one in head.roles]
    return ", ".join([*shown, *(f"mostly {name(one)} {100 * one.value:.0f}%" for one in head.tendencies)])


@pytest.mark.parametrize(("model", "head"), [("translation", "cross.0.1"), ("language", "within.0.1"), ("bert", "self.1.0")])
def test_heads_are_listed_and_removed(browser: Any, views: str, predictors: dict[str, Any], model: str, head: str) -> None:
    predictor, text = predictors[model], TEXTS[model]
    with page(browser, views, "heads", model=model, text=text) as opened:
        result = inspection.heads(predictor, sentences=50)
        assert opened.locator("#heads-loss").inner_text() == f"{result.loss:.4f}"
        rows = cells(opened, "#heads tbody tr")
        assert [row[2] for row in rows] == [f"{one.confidence:.4f}" for one in result.heads]
        assert [row[3] for row in rows] == [f"{one.gradient:.4f}" for one in result.heads]
        assert [float(row[4]) for row in rows] == pytest.approx([one.ablation for one in result.heads], abs=6e-5)
        assert [row[5] for row in rows] == ["–" if one.relevance is None else f"{one.relevance:.4f}" for one in result.heads]
        assert [row[1] for row in rows] == [roles_of(one) or "–" for one in result.heads]
        opened.get_by_label(f"Remove {head}").click()
        settle(opened)
        ablated = inspection.ablate(predictor, text, [head])
        assert float(opened.locator("#change").inner_text()) == pytest.approx(ablated.change, abs=6e-5)
        if ablated.translation is not None:
            assert opened.locator("#without").inner_text() == ablated.translation
        opened.locator(f'tr[data-head="{head}"] a').click()  # to its attention, and back: the head is still removed
        settle(opened)
        assert opened.locator("#head-title").inner_text() == "{} · layer {} · head {}".format(*head.split("."))
        opened.go_back()
        settle(opened)
        assert float(opened.locator("#change").inner_text()) == pytest.approx(ablated.change, abs=6e-5)
        opened.get_by_role("button", name="Restore all heads").click()
        assert opened.locator("#change").count() == 0
        if model == "translation":
            opened.locator("#prune").click()
            settle(opened)
            curve = inspection.pruning_curve(predictor, sentences=100)
            shown = cells(opened, "#pruning tbody tr")
            assert [row[0] for row in shown] == [str(one.kept) for one in reversed(curve.points)]
            losses = [one.figures["loss"] for one in reversed(curve.points)]
            assert [float(row[1]) for row in shown] == pytest.approx(losses, rel=1e-3)


@pytest.mark.parametrize("model", ["translation", "alibi", "rotary", "bert"])
def test_positions_are_those_of_python(browser: Any, views: str, predictors: dict[str, Any], model: str) -> None:
    predictor = predictors[model]
    with page(browser, views, "positions", model=model, text=TEXTS[model]) as opened:
        options = {"sentences": 50} if predictor.has_source else {}
        schemes = inspection.positions(predictor, **options).to_dict()["schemes"]
        name, scheme = next(iter(schemes.items()))
        box = opened.locator(f'[data-scheme="{name}"]')
        checked = 0
        for part, values in {"encoding": scheme["encoding"], "scores": scheme["scores"], "cosines": scheme["cosines"]}.items():
            if values is None:
                continue
            expected = (
                [[math.sin(v) for v in row] for row in values] if (part, scheme["kind"]) == ("encoding", "angles") else values
            )
            box.locator(f'[data-part="{part}"] summary').click()
            assert_close(numbers(opened, f'[data-scheme="{name}"] [data-part="{part}"] table.numbers'), expected)
            checked += 1
        assert checked >= 2


@pytest.mark.parametrize("model", ["translation", "language", "bert"])
def test_the_cost_is_that_of_python(browser: Any, views: str, predictors: dict[str, Any], model: str) -> None:
    with page(browser, views, "cost", model=model, text=TEXTS[model]) as opened:
        cost = inspection.cost(predictors[model]).to_dict()
        assert opened.locator("#parameters").inner_text() == f"{cost['parameters']:,}"
        sizes = opened.locator("#memory dd [title]").evaluate_all("all => all.map(one => parseInt(one.title))")
        assert sizes == list(cost["memory"].values())
        for phase, parts in cost["phases"].items():
            table = f'table[data-phase="{phase}"] tbody'
            assert [row[0] for row in cells(opened, f"{table} tr")] == [one["part"] for one in parts]
            titles = opened.locator(f"{table} td[title]").evaluate_all("all => all.map(one => Number(one.title))")
            assert titles == [number for one in parts for number in (one["work"], one["traffic"])]
        assert cells(opened, "#kinds tbody tr")[0][0] == cost["kinds"][0]["kind"]


def test_the_keyboard_moves_over_heads_cells_and_views(browser: Any, views: str) -> None:
    with page(browser, views, "attention", kind="cross") as opened:
        opened.locator('button[data-layer="0"][data-head="0"]').focus()
        opened.keyboard.press("ArrowRight")
        opened.keyboard.press("ArrowDown")
        assert opened.locator("#head-title").inner_text() == "cross · layer 1 · head 1"
        assert "layer=1&head=1" in opened.url
        matrix = opened.locator("canvas[role=img]").first
        matrix.focus()
        opened.keyboard.press("ArrowDown")
        opened.keyboard.press("ArrowDown")
        assert "step=2" in opened.url
        opened.locator("#to-attention").focus()
        opened.keyboard.press("ArrowRight")
        assert opened.locator("#to-decoding").get_attribute("aria-selected") == "true" and "#/decoding" in opened.url
        opened.keyboard.press("ArrowRight")
        settle(opened)
        assert opened.locator("#inside-title").inner_text() == "Cross-attention, layer 1, head 1"
        assert opened.get_by_role("group", name="Query token").locator('[aria-pressed="true"]').count() == 1
