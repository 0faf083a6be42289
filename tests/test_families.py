"""The benchmark of model families: recipes with the same data, measurements, tables and headers."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import families
import pytest
from families import LONGEST, SHORTEST, Pair, by_length
from families_rows import families_head, families_rows, families_text, update_family_recipes

from heedful.models import MODELS
from heedful.runs.config import read_run
from heedful.runs.recipes import all_recipes, read_header, settings_digest

pytestmark = pytest.mark.benchmark

SMALL = (
    "training.steps=2",
    "training.validate_every=2",
    "data.counts={train=300, valid=5, test=30}",
    "model.dim=16",
    "search.max_extra=1",
)


def settings(name: str) -> dict[str, Any]:
    return tomllib.loads(all_recipes()[name].read_text())


def test_the_recipes_of_families_have_the_data_and_the_search_of_the_demo() -> None:
    """A family needs no recipe, so that not all of them are here."""
    assert families.families()
    for name, path in families.families().items():
        assert name in (*MODELS, "experts") and (name == "experts" or read_run(path).config.model.family == name)
        own, demo = settings(path.stem), settings("demo")
        for part in ("seed", "data", "search", "task"):
            assert own[part] == demo[part], f"{part} of {path.stem}"
        assert own["tokenizer"] | {"shared": False} == demo["tokenizer"]


def test_sentences_are_grouped_by_length_with_open_outer_groups() -> None:
    pairs = [Pair(" ".join("w" * length), f"{length}") for length in range(1, 20) for _ in range(3)]
    groups = by_length(pairs, most=4)
    assert [*groups] == [*range(SHORTEST, LONGEST + 1)]
    assert {pair.target for pair in groups[SHORTEST]} == {"1", "2"}  # four of the first nine
    assert [len(bucket) for bucket in groups.values()] == [4, *[3] * (LONGEST - SHORTEST - 1), 4]
    assert all(pair.target == str(length) for length in range(SHORTEST + 1, LONGEST) for pair in groups[length])


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One family, two steps, into a file that already has another."""
    folder = tmp_path_factory.mktemp("families")
    output = folder / "out.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(families, "GENERATED", 100)
        known = {name: families.families()[name] for name in ("bahdanau", "luong")}
        patch.setattr(families, "families", lambda: known)
        options = ["--output", str(output), "--picture", str(folder / "lines.png"), "--set", *SMALL]
        families.main(["--only", "luong", *options])
        before = output.read_text()
        families.main(options)
        results: dict[str, Any] = json.loads(output.read_text())
        assert json.loads(before)["luong"] == results["luong"]  # existing results are not measured again
        patch.setattr(families, "measure", lambda *_: pytest.fail("everything is measured"))
        families.main(options)
    return results


def test_a_result_has_scores_of_all_of_short_and_of_each_length(measured: dict[str, Any]) -> None:
    assert [*measured] == ["bahdanau", "luong"]
    for name, result in measured.items():
        assert (result["family"], result["steps"], result["threads"]) == (name, 2, 1)
        assert result["parameters"] > 1000 and result["seconds"] > 0
        assert result["test"]["sentences"] == 30 >= result["short"]["sentences"] > 0
        assert sum(score["sentences"] for score in result["lengths"].values()) > 90
        for score in (result["test"], result["short"], *result["lengths"].values()):
            assert 0 <= score["exact_match"]["value"] <= 100 and score["bleu"]["signature"]


def test_the_report_has_a_row_for_each_family(measured: dict[str, Any]) -> None:
    head, rows = families_head(measured), families_rows(measured)
    assert [len(row) for row in rows] == [len(head)] * 2
    row = dict(zip(head, rows[1], strict=True))
    assert (row["recipe"], row["steps"]) == ("`demo-luong`", "2")
    assert row["parameters"] == f"{measured['luong']['parameters']:,}"
    assert "30 unseen sentences" in families_text(measured)


def test_a_header_has_the_result_only_while_the_recipe_is_unchanged(
    measured: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("demo-bahdanau", "demo-luong"):
        shutil.copy(all_recipes()[name], tmp_path)
    monkeypatch.setattr("heedful.runs.recipes.recipe_folder", lambda: tmp_path)
    changed, same = tmp_path / "demo-luong.toml", tmp_path / "demo-bahdanau.toml"
    results = {name: result | {"overrides": [], "settings": settings_digest(path)} for name, result, path in (
        ("bahdanau", measured["bahdanau"], same), ("luong", measured["luong"], changed)
    )}  # fmt: skip
    assert len([*update_family_recipes(results)]) == 2
    assert read_header(changed)["result"] and read_header(same)["result"].startswith("exact match ")
    changed.write_text(changed.read_text().replace("steps = ", "steps = 9"))
    assert "other settings" in [*update_family_recipes(results)][1]
    assert not read_header(changed)["result"] and read_header(changed)["purpose"]
    assert read_header(same)["date"] == measured["bahdanau"]["date"]


def test_an_unknown_family_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        families.main(["--only", "bahdanau,elman"])
    assert "unknown family 'elman'; expected some of: sutskever," in capsys.readouterr().err
