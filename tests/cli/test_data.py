"""heed data check: it refuses the same data as training."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Thread

import pytest
from workshop import CLASSIFICATION, GPT, LANGUAGE, heed, time_limit, write_recipe


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("a", "b"):
        (tmp_path / name).write_text("".join(f"{name}{number}\n" for number in range(100)))
    return tmp_path / "a", tmp_path / "b"


def test_files_that_training_would_refuse_are_reported_with_exit_code_3(
    sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("data", "check", *sides) == 0
    with sides[0].open("ab") as source, sides[1].open("ab") as target:
        source.write("é\n".encode("latin-1") * 20)
        target.write(b"e\n" * 20)
    capsys.readouterr()
    assert heed("data", "check", *sides) == 3
    shown = capsys.readouterr()
    assert "20 lines that are not UTF-8, skipped" in shown.out
    assert "20 of 120 lines are unusable" in shown.err and "iconv -f ISO-8859-1" in shown.err
    assert heed("data", "check", *sides, "--json") == 3
    report = json.loads(capsys.readouterr().out)
    assert report["corpora"][0]["unusable"] == 20 / 120 and report["refused"].startswith(str(sides[0]))


def test_a_header_is_refused_or_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("source\ttarget\none\teins\n")
    assert heed("data", "check", path) == 3
    capsys.readouterr()
    assert heed("data", "check", path, "--header") == 0
    assert "1 line, 1 pair kept" in capsys.readouterr().out


def test_a_fifo_is_checked_in_one_pass(sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    fifo = sides[0].with_name("fifo")
    os.mkfifo(fifo)
    Thread(target=fifo.write_bytes, args=(sides[0].read_bytes(),), daemon=True).start()
    with time_limit(20):  # a second open of the FIFO waits forever
        assert heed("data", "check", fifo, sides[1]) == 0
    assert "100 lines, 100 pairs kept" in capsys.readouterr().out


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Path, str]]:
    """A recipe of each task with its training file, and the line of the report on it."""
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path)
    for name, lines in {"train.tsv": "yes\tgood\nno\tbad\n", "book.txt": "the cat\na dog\n"}.items():
        for file in (name, f"valid{Path(name).suffix}"):
            Path(file).write_text(lines * 30)
    for task, recipe in {"labeled": CLASSIFICATION + GPT, "text": LANGUAGE + GPT}.items():
        Path(f"{task}.toml").write_text(recipe.format(folder="."))
    return {
        "recipe.toml": (tmp_path / "pairs.tsv", "train  60 lines, 60 pairs kept"),
        "labeled.toml": (tmp_path / "train.tsv", f"train  60 lines, 60 examples kept  {tmp_path}/train.tsv (no: 30, yes: 30)"),
        "text.toml": (tmp_path / "book.txt", f"train  60 lines, 60 lines kept  {tmp_path}/book.txt (420 characters)"),
    }


@pytest.mark.parametrize("recipe", ["recipe.toml", "labeled.toml", "text.toml"])
def test_the_data_of_a_recipe_of_any_task_is_checked_as_in_training(
    recipe: str, recipes: dict[str, tuple[Path, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    file, line = recipes[recipe]
    assert heed("data", "check", recipe) == 0
    assert capsys.readouterr().out.startswith(line)
    with file.open("ab") as stream:
        stream.write(b"citt\xe0\tx\n" * 10)
    assert heed("data", "check", recipe) == 3
    shown = capsys.readouterr()
    assert "10 lines that are not UTF-8, skipped" in shown.out and f"{file} line 61: byte 5 is not UTF-8" in shown.out
    assert "10 of 70 lines are unusable; expected at most the fraction data.max_unusable = 0.05" in shown.err
    assert f"iconv -f ISO-8859-1 -t UTF-8 {file} > {file}.utf8" in shown.err
    assert heed("train", recipe, "--run", "run") == 3
    assert capsys.readouterr().err.endswith(shown.err)
    assert heed("data", "check", recipe, "data.max_unusable=0.2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["corpora"][0]["unusable"] == 10 / 70


def test_a_run_folder_and_a_recipe_by_name_are_checked_like_recipes(
    tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for run, unit in (("classification", "examples"), ("language", "lines"), ("translation", "pairs")):
        assert heed("data", "check", tiny_runs[run]) == 0
        assert f"{unit} kept" in capsys.readouterr().out
    assert heed("data", "check", "demo", "data.counts.train=20") == 0
    assert "20 pairs kept  built-in train" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["strict", "header"])
def test_options_of_files_are_refused_with_a_recipe(
    option: str, recipes: dict[str, tuple[Path, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("data", "check", "labeled.toml", f"--{option}") == 2
    assert f"hint: remove --{option}; the options of the data are in [data] of the recipe" in capsys.readouterr().err
