"""heed runs prints what `heedful.runs.listing` returns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from workshop import heed

from heedful.runs.listing import compare_runs, list_runs


def test_every_run_is_one_line_with_its_figures(
    tiny_runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("translation", "language"):
        shutil.copytree(tiny_runs[name], tmp_path / "runs" / name, symlinks=True)
    monkeypatch.chdir(tmp_path)
    assert heed("runs") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "task", "family", "parameters", "best", "steps", "size", "date"]
    assert len(rows) == 2
    for row, run in zip(rows, list_runs(tmp_path / "runs").runs, strict=True):
        figures = (run.folder.name, run.task, run.family, f"{run.parameters:,}", run.metric, f"{run.value:.4g}", f"{run.step}")
        assert all(figure in row for figure in figures), row


def test_json_is_the_python_result(tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny_runs["translation"].parent
    assert heed("runs", folder, "--json") == 0
    assert json.loads(capsys.readouterr().out) == list_runs(folder).to_dict()
    pair = tiny_runs["translation"], folder / "other"
    assert heed("runs", *pair, "--json") == 0
    assert json.loads(capsys.readouterr().out) == compare_runs(*pair).to_dict()


def test_two_runs_are_compared_side_by_side(tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    other = tiny_runs["translation"].parent / "other"
    assert heed("runs", tiny_runs["translation"], other) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == [str(tiny_runs["translation"]), str(other)]
    assert ["training.steps", "2", "3"] in rows and ["seed", "1", "1"] not in rows
    for one in compare_runs(tiny_runs["translation"], other).metrics:
        assert [one.name, f"{one.first:.4g}", f"{one.second:.4g}"] in rows


def test_a_damaged_run_is_reported_and_the_others_are_listed(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bad", "good"):
        shutil.copytree(tiny_runs["translation"], tmp_path / name, symlinks=True)
    (tmp_path / "bad" / "run.json").unlink()
    assert heed("runs", tmp_path) == 0
    shown = capsys.readouterr()
    assert str(tmp_path / "good") in shown.out and "bad" not in shown.out
    assert f"damaged: {tmp_path / 'bad'}: " in shown.err and "run.json is missing" in shown.err


def test_wrong_folders_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("runs", tmp_path / "nothing") == 2
    assert "there is no folder" in capsys.readouterr().err
    assert heed("runs", tmp_path, tmp_path, tmp_path) == 2
    assert "3 folders given; expected one to list its runs, or two run folders to compare" in capsys.readouterr().err
    assert heed("runs", tmp_path, tmp_path) == 4
    assert heed("runs", tmp_path) == 0
    assert "there are no runs in" in capsys.readouterr().err
