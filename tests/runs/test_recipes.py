"""Recipes: every one trains two steps at reduced size, headers are complete, and names resolve to the right file.

Recipes whose corpus is missing are skipped. The others train on its validation split, because learning a vocabulary from a
whole corpus takes minutes, and validate on a few sentences."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from workshop import heed, write_idx, write_pairs

from heedful.data.sources import files_of
from heedful.data.splits import splits_of
from heedful.errors import ConfigError
from heedful.runs.config import read_run
from heedful.runs.recipes import all_recipes, find_recipe
from heedful.text.tokenizer import OPTIONS

SMALL = ("training.steps=2", "training.validate_every=2", "task.validation_sentences=2", "data.batch_tokens=256")
NARROW = {"dim": 32, "feed_forward": 64, "channels": 32, "embedding": 32, "readout": 32}
VOCAB = 1000


@pytest.mark.parametrize("name", all_recipes())
def test_recipe_trains(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = read_run(all_recipes()[name]).config
    data = config.data
    if data.form != "pairs":
        checks = {
            "text": check_text_recipe,
            "labeled": check_labeled_recipe,
            "tagged": check_tagged_recipe,
            "dialogues": check_dialogue_recipe,
            "images": check_image_recipe,
            "captions": check_toy_recipe,
            "series": check_series_recipe,
            "graphs": check_toy_recipe,
            "trajectories": check_toy_recipe,
            "labeled_series": check_toy_recipe,
        }
        checks[data.form](name, tmp_path, capsys)
        return
    smaller = [f"model.{name}={size}" for name, size in NARROW.items() if name in type(config.model).model_fields]
    if "vocab" in OPTIONS[config.tokenizer.kind]:
        smaller.append(f"tokenizer.vocab={min(config.tokenizer.vocab, VOCAB)}")
    if data.builtin:
        smaller.append("data.counts={train=500, valid=5, test=5}")
    if data.folder is not None:
        if not os.environ.get("HEED_DATA"):
            pytest.skip(f"{name} requires the corpus {data.folder!r}: set HEED_DATA")
        assert all(file.is_file() for split in splits_of(data) for corpus in split for file in files_of(corpus))
        sides = ", ".join(f'"{language}"' for language in data.languages or ())
        smaller.append(f'data.train={{folder="{data.folder}", languages=[{sides}], split="valid"}}')
        smaller.append(f'data.valid={{tsv="{write_pairs(tmp_path / "few.tsv", 12)}"}}')
    if config.training.init:
        smaller.append('training.init=""')
    smaller.append("search.max_extra=3")
    assert heed("train", name, *SMALL, *smaller, "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def narrow(name: str) -> list[str]:
    """Overrides that make the model of a recipe small; heads divide its size."""
    model: Any = read_run(all_recipes()[name]).config.model
    sizes = {"dim": 8 * getattr(model, "heads", 2), "embedding": 16}
    smaller = [f"model.{option}={size}" for option, size in sizes.items() if option in type(model).model_fields]
    return smaller + (["model.layers=1"] if isinstance(getattr(model, "layers", None), int) else [])


def check_labeled_recipe(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train from scratch: the pre-trained run is not available."""
    if read_run(all_recipes()[name]).config.data.builtin:
        check_toy_recipe(name, tmp_path, capsys)
        return
    (tmp_path / "examples.tsv").write_text("".join(f"{number % 2}\tword{number} text\n" for number in range(60)))
    given = ("train", "test") if read_run(all_recipes()[name]).config.data.split else ("train", "valid", "test")
    files = [f'data.{split}={{ file = "{tmp_path / "examples.tsv"}" }}' for split in given]
    options = [*SMALL[:2], *files, *narrow(name), 'training.init=""']
    assert heed("train", name, *options, "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def check_tagged_recipe(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train from scratch: the pre-trained run is not available."""
    if read_run(all_recipes()[name]).config.data.builtin:
        check_toy_recipe(name, tmp_path, capsys)
        return
    (tmp_path / "tagged.tsv").write_text("some\tDET\nwords\tNOUN\n\nothers\tNOUN\n\n" * 20)
    files = [f'data.{split}={{ file = "{tmp_path / "tagged.tsv"}" }}' for split in ("train", "valid", "test")]
    options = [*SMALL[:2], *files, "data.column=label", *narrow(name), 'training.init=""']
    assert heed("train", name, *options, "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def check_dialogue_recipe(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "few.txt").write_text("".join(f"question {number}\tanswer {number}\tthanks\tbye\n" for number in range(30)))
    files = [f'data.{split}={{ file = "{tmp_path / "few.txt"}" }}' for split in ("train", "valid", "test")]
    config = read_run(all_recipes()[name]).config
    options = [*SMALL[:2], *files, *narrow(name), "tokenizer.vocab=200"]
    options += ["task.validation_replies=2"] if hasattr(config.task, "validation_replies") else []
    options += ["model.readout=16"] if hasattr(config.model, "readout") else []
    assert heed("train", name, *options, "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def check_image_recipe(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train on a few random images, in the IDX files of MNIST."""
    config = read_run(all_recipes()[name]).config
    if config.data.builtin:
        check_toy_recipe(name, tmp_path, capsys)
        return
    assert config.model.image_shape is not None
    height, width, _ = config.model.image_shape
    write_idx(tmp_path, (height, width), labels=len(config.data.class_names))
    options = [*SMALL[:2], f"data.folder={tmp_path}", *narrow(name)]
    assert heed("train", name, *options, "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def check_series_recipe(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train on a short table with the columns of the recipe."""
    config = read_run(all_recipes()[name]).config
    data: Any = config.data
    task: Any = config.task
    if data.builtin:
        check_toy_recipe(name, tmp_path, capsys)
        return
    rows = 4 * (task.look_back + task.horizon)
    names = list(task.variables)
    header = [[data.time, *names]] if data.header and data.time else [names] if data.header else []
    times = [[str(datetime(2020, 1, 1) + timedelta(hours=row))] if data.time else [] for row in range(rows)]
    table = [*header, *([*time, *(str((row * (at + 2)) % 7) for at in range(len(names)))] for row, time in enumerate(times))]
    (tmp_path / "table.csv").write_text("".join(",".join(line) + "\n" for line in table))
    options = [*SMALL[:2], *narrow(name), f'data.train={{file="{tmp_path / "table.csv"}"}}', "data.parts=[0.5, 0.25, 0.25]"]
    options += ["data.batch=4"]
    assert heed("train", name, *options, "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def check_toy_recipe(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    enough = 3000 if name == "toy-agreement" else 600  # to contain every label of the other splits
    few = f"data.counts={{train={enough}, valid=5, test=5}}"
    assert heed("train", name, *SMALL[:2], few, *narrow(name), "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def check_text_recipe(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("some words of text\n" * 200)
    text = f'{{file="{tmp_path / "text.txt"}"}}'
    config = read_run(all_recipes()[name]).config
    files = [f"data={{form='text', train={text}, valid={text}, block=8, batch=2}}".replace("'", '"')]
    options = [*SMALL[:2], *files, *narrow(name)]
    options += ["task.sample_length=4"] if hasattr(config.task, "sample_length") else []
    assert heed("train", name, *options, "--run", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def test_every_recipe_has_a_purpose_and_a_result_has_machine_minutes_and_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("recipes", "--json") == 0
    recipes = json.loads(capsys.readouterr().out)["recipes"]
    assert [recipe["name"] for recipe in recipes] == [*all_recipes()] and all(recipe["purpose"] for recipe in recipes)
    fields = ("result", "machine", "minutes", "date")
    assert not [recipe["name"] for recipe in recipes if len({bool(recipe[field]) for field in fields}) != 1]


@pytest.mark.parametrize("name", all_recipes())
def test_a_result_needs_no_option(name: str) -> None:
    """Its header names none that it was measured with, and none for another device."""
    comments = [line for line in all_recipes()[name].read_text().splitlines() if line.startswith("#")]
    assert comments and not [line for line in comments if line.startswith(("# options", "# on a GPU"))]
    assert not [line for line in comments if line.startswith("# on a CPU") and "=" in line]


def test_recipe_without_result_is_listed_as_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new.toml").write_text("# purpose: something new\n")
    (tmp_path / "old.toml").write_text("# purpose: something old\n# result: 12.3 BLEU\n# machine: a laptop\n")
    monkeypatch.setattr("heedful.runs.recipes.recipe_folder", lambda: tmp_path)
    assert heed("recipes") == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[:2] == ["new", "  something new"] and "not measured" in listed[2]
    assert listed[3:] == ["old", "  something old", "  12.3 BLEU", "  a laptop"]


@pytest.mark.parametrize("width", [80, 120])
def test_terminal_list_fits_the_width_and_is_complete(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert heed("recipes", "--json") == 0
    recipes = json.loads(capsys.readouterr().out)["recipes"]
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert heed("recipes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert [line for line in lines if not line.startswith(" ")] == [recipe["name"] for recipe in recipes]
    words = " ".join(" ".join(lines).split())
    fields = [
        recipe[field] for recipe in recipes for field in ("purpose", "result", "machine", "minutes", "date") if recipe[field]
    ]
    assert fields and not [text for text in fields if " ".join(text.split()) not in words]


def test_bare_name_is_a_recipe_and_path_is_a_file_or_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("demo").mkdir()
    Path("demo/config.toml").write_text("seed = 2\n")
    Path("mine").write_text("seed = 3\n")
    Path("small.toml").write_text("seed = 4\n")
    assert find_recipe("demo") == all_recipes()["demo"]
    assert find_recipe("./demo") == find_recipe("demo/") == Path("demo/config.toml")
    assert find_recipe("mine") == Path("mine")
    assert find_recipe("small.toml") == Path("small.toml")
    with pytest.raises(
        ConfigError, match=r"there is no recipe, file or run folder 'other'; the recipes are: anki-en-es, "
    ) as error:
        find_recipe("other")
    names = str(error.value.args[0]).partition("the recipes are: ")[2].split(", ")
    assert names == sorted(all_recipes())
    for path in ("other.toml", "./other", "folder/other"):
        with pytest.raises(
            ConfigError, match=rf"there is no file or run folder '{path}'; expected one of them, or the name of a recipe"
        ):
            find_recipe(path)


def test_command_reports_that_a_recipe_shadows_a_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert heed("config", "show", "demo") == 0
    assert capsys.readouterr().err == ""
    Path("demo").mkdir()
    Path("demo/config.toml").write_text("seed = 2\n")
    assert heed("config", "show", "demo") == 0
    output = capsys.readouterr()
    assert "./demo" in output.err and len(output.err.splitlines()) == 1
    assert output.out.startswith("seed = 1 ")
