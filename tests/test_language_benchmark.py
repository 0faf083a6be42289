"""Language models are trained and scored; the tables of language models and of families by direction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import directions
import language
import language_rows
import pytest

from heedful.runs.recipes import settings_digest

pytestmark = pytest.mark.benchmark

RECIPE = """
[data]
form = "text"
file = "{book}"
held_out = 0.2
block = 8
batch = 4

[tokenizer]
kind = "characters"

[model]
family = "gpt"
dim = 16
layers = 1
heads = 2
max_positions = 8

[task]
name = "language"
sample_length = 4

[training]
steps = 2
save_every = 2
validate_every = 2
"""


def test_runs_are_trained_scored_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second run is initialized from the first; the third fails with a message."""
    book, recipe, output, work = (tmp_path / name for name in ("book.txt", "recipe.toml", "results", "runs"))
    book.write_text("the cat sees the old house\n" * 40)
    recipe.write_text(RECIPE.format(book=book))
    first, second = f"first {recipe} seed=3", f"second {recipe} training.init={work / 'first'}"
    broken = f"broken {recipe} training.steps=none"
    options = [str(output), "--work", str(work), "--also", "training.threads=1"]
    assert language.main([*options, "--run", first, "--then", second, "--then", broken]) == 1
    assert "broken: no result" in capsys.readouterr().out
    assert sorted(path.stem for path in output.iterdir()) == ["first", "second"]
    result = json.loads((output / "second.json").read_text())
    assert result["scores"].keys() == {"valid"}, "there is no test data"
    assert (
        result["steps"] == 2 and not result["stopped"] and result["overrides"] == ["training.init=first", "training.threads=1"]
    )
    last = result["validations"][-1]
    assert result["scores"]["valid"]["loss"] == pytest.approx(last["loss"], abs=1e-4)
    rows = language_rows.language_rows(output)
    assert [row[0] for row in rows] == ["first", "second"] and all(len(row) == len(language_rows.HEAD) for row in rows)
    assert f"perplexity {result['scores']['valid']['perplexity']:.4g}" in rows[1][2] and rows[1][3] == ""


def test_the_header_of_a_recipe_has_the_results_of_its_current_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = {name: tmp_path / f"{name}.toml" for name in ("tale", "changed")}
    for path in book.values():
        path.write_text(f"# purpose: tales\n# result: an older one\n{RECIPE.format(book='b')}")
    monkeypatch.setattr(language_rows, "all_recipes", lambda: book)
    result = {
        "recipe": "tale", "settings": settings_digest(book["tale"]), "overrides": ["seed=3"], "train_seconds": 90,
        "scores": {"valid": {"loss": 1.25}}, "machine": "a machine", "date": "2026-01-02",
    }  # fmt: skip
    (tmp_path / "tale.json").write_text(json.dumps(result))
    (tmp_path / "tale-twice.json").write_text(
        json.dumps(result | {"date": "2027-01-02"})
    )  # with other options, as its name says
    (tmp_path / "changed.json").write_text(json.dumps(result | {"recipe": "changed", "settings": "another"}))
    assert len(list(language_rows.update_language_recipes(tmp_path))) == 2
    header = ["# purpose: tales", "# result: valid loss 1.25", "# machine: a machine", "# minutes: 1.5", "# date: 2026-01-02"]
    assert book["tale"].read_text().splitlines()[:6] == [*header, ""]
    assert book["changed"].read_text().splitlines()[:2] == ["# purpose: tales", ""]


def scored(lowered: float) -> dict[str, Any]:
    return {
        "scores": {"bleu": {"value": lowered - 1}},
        "lowercased": {"bleu": {"value": lowered}},
        "train_seconds": 90,
        "percent_of_the_chip": 10,
    }


def test_families_are_sorted_by_bleu(tmp_path: Path) -> None:
    for name, value in {"a-de-en-1": 30.0, "a-de-en-2": 32.0, "b-de-en-1": 40.0, "b-en-de-1": 20.0}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(scored(value)))
    assert directions.direction_rows(directions.gather(tmp_path)) == [
        ["b", "40.00 (39.00)", "20.00 (19.00)", "1.5", "10%", "1"],
        ["a", "31.00 (30.00, 30.0 to 32.0)", "", "1.5", "10%", "2"],
    ]


def test_the_header_of_a_family_recipe_has_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = {f"multi30k-de-en-{name}": tmp_path / f"{name}.toml" for name in ("a", "b")}
    for path in book.values():
        path.write_text("# purpose: a family\n[model]\ndim = 8\n\n[training]\nminutes = 2\n")
    monkeypatch.setattr(directions, "all_recipes", lambda: book)
    same = settings_digest(book["multi30k-de-en-a"])
    about = {"settings": same, "machine": "a GPU", "date": "2026-01-02"}
    one = scored(30.0) | about | {"overrides": ["seed=1", "training.minutes=2"]}
    one["scores"]["bleu"]["signature"] = "s"
    other = one | {"overrides": ["model.dropout=0.5"]}
    messages = list(
        directions.update_direction_recipes({"a": {"de-en": [one, other]}, "b": {"de-en": [other]}, "c": {"de-en": [one]}})
    )
    assert messages[0].endswith("a: 1 of 2 results match the current recipe") and len(messages) == 2
    assert "# result: 29.00 BLEU, 30.00 lowercased, one seed\n" in book["multi30k-de-en-a"].read_text()
    assert book["multi30k-de-en-b"].read_text().count("#") == 1
