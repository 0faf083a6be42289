"""The benchmark of families: every one has a recipe, all the same data, and what is measured is what was said."""

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

from heedful.config import read_run
from heedful.models import MODELS
from heedful.recipe_files import all_recipes, read_header, settings_digest

SMALL = (
    "training.steps=2",
    "training.validate_every=2",
    "data.counts={train=300, valid=5, test=30}",
    "model.dim=16",
    "search.max_extra=1",
)


def settings(name: str) -> dict[str, Any]:
    return tomllib.loads(all_recipes()[name].read_text())


def test_every_family_has_a_recipe_with_the_data_and_the_search_of_the_demo() -> None:
    assert {read_run(path).config.model.family for path in families.families().values()} == MODELS.keys()
    for path in families.families().values():
        ours, theirs = settings(path.stem), settings("demo")
        for part in ("seed", "data", "search", "task"):
            assert ours[part] == theirs[part], f"{part} of {path.stem}"
        assert ours["tokenizer"] | {"shared": False} == theirs["tokenizer"]


def test_sentences_are_gathered_by_length_and_the_outermost_with_those_beyond() -> None:
    pairs = [Pair(" ".join("w" * length), f"{length}") for length in range(1, 20) for _ in range(3)]
    found = by_length(pairs, most=4)
    assert [*found] == [*range(SHORTEST, LONGEST + 1)]
    assert {pair.target for pair in found[SHORTEST]} == {"1", "2"}  # four of the first nine
    assert [len(bucket) for bucket in found.values()] == [4, *[3] * (LONGEST - SHORTEST - 1), 4]
    assert all(pair.target == str(length) for length in range(SHORTEST + 1, LONGEST) for pair in found[length])


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One family, two steps, into a file that holds another already."""
    folder = tmp_path_factory.mktemp("families")
    output = folder / "out.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(families, "DRAWN", 100)
        known = {name: families.families()[name] for name in ("bahdanau", "luong")}
        patch.setattr(families, "families", lambda: known)
        options = ["--output", str(output), "--picture", str(folder / "lines.png"), "--set", *SMALL]
        families.main(["--only", "luong", *options])
        before = output.read_text()
        families.main(options)
        found: dict[str, Any] = json.loads(output.read_text())
        assert json.loads(before)["luong"] == found["luong"]  # what is there is not measured again
        patch.setattr(families, "measure", lambda *_: pytest.fail("everything is there"))
        families.main(options)
    return found


def test_a_run_notes_what_it_trained_and_scores_all_and_the_short_and_each_length(measured: dict[str, Any]) -> None:
    assert [*measured] == ["bahdanau", "luong"]
    for name, one in measured.items():
        assert (one["family"], one["steps"], one["threads"]) == (name, 2, 1)
        assert one["parameters"] > 1000 and one["seconds"] > 0
        assert one["test"]["sentences"] == 30 >= one["short"]["sentences"] > 0
        assert sum(score["sentences"] for score in one["lengths"].values()) > 90
        for score in (one["test"], one["short"], *one["lengths"].values()):
            assert 0 <= score["exact_match"]["value"] <= 100 and score["bleu"]["signature"]


def test_the_report_has_a_row_for_each_with_the_figures_under_their_heads(measured: dict[str, Any]) -> None:
    head, rows = families_head(measured), families_rows(measured)
    assert [len(row) for row in rows] == [len(head)] * 2
    told = dict(zip(head, rows[1], strict=True))
    assert (told["recipe"], told["steps"]) == ("`demo-luong`", "2")
    assert told["weights"] == f"{measured['luong']['parameters']:,}"
    assert "30 unseen sentences" in families_text(measured)


def test_a_header_tells_what_was_measured_of_the_recipe_as_it_stands(
    measured: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("demo-bahdanau", "demo-luong"):
        shutil.copy(all_recipes()[name], tmp_path)
    monkeypatch.setattr("heedful.recipe_files.recipe_folder", lambda: tmp_path)
    changed, same = tmp_path / "demo-luong.toml", tmp_path / "demo-bahdanau.toml"
    found = {name: one | {"overrides": [], "settings": settings_digest(path)} for name, one, path in (
        ("bahdanau", measured["bahdanau"], same), ("luong", measured["luong"], changed)
    )}  # fmt: skip
    assert len([*update_family_recipes(found)]) == 2
    assert read_header(changed)["result"] and read_header(same)["result"].startswith("exact match ")
    changed.write_text(changed.read_text().replace("steps = ", "steps = 9"))
    assert "other settings" in [*update_family_recipes(found)][1]
    assert not read_header(changed)["result"] and read_header(changed)["purpose"]
    assert read_header(same)["date"] == measured["bahdanau"]["date"]


def test_a_family_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        families.main(["--only", "bahdanau,elman"])
    assert "unknown family 'elman'; expected some of: sutskever," in capsys.readouterr().err
