"""Logs of a run folder: incomplete lines are removed, damaged ones reported, and a full disk loses no checkpoint."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
from workshop import heed, run_heed, write_recipe

from heedful.errors import CheckpointError
from heedful.training.metrics_log import append_metrics, read_metrics, truncate_metrics
from heedful.training.update import SplitLog


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    assert heed("train", write_recipe(folder), "training.steps=2", "--run", folder / "run") == 0
    return folder


@pytest.fixture
def run(workshop: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(workshop / "run", tmp_path / "run", symlinks=True))


def test_an_incomplete_last_line_of_the_splits_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "splits.jsonl"
    SplitLog(path).record(3, 2)
    whole = path.read_text()
    for incomplete in ("{", '{"ste', '{"step": 4, "parts": 2}'):
        path.write_text(whole + incomplete)
        assert SplitLog(path).parts == {3: 2}
        assert path.read_text() == whole
    path.write_text('{"ste')
    assert SplitLog(path).parts == {}


@pytest.mark.parametrize("line", ["[]", "{}", '{"step": "a", "parts": 2}', '{"step": 1, "parts": 0}', "[" * 9999, "\x00"])
def test_the_error_names_a_damaged_line_of_the_splits(line: str, tmp_path: Path) -> None:
    path = tmp_path / "splits.jsonl"
    path.write_text(f'{{"step": 3, "parts": 2}}\n{line}\n')
    with pytest.raises(CheckpointError, match=r"splits\.jsonl line 2 is damaged"):
        SplitLog(path)


def test_an_incomplete_splits_file_does_not_prevent_resuming(run: Path) -> None:
    (run / "splits.jsonl").write_text('{"ste')
    assert heed("train", run, "training.steps=3") == 0


@pytest.mark.parametrize("line", ['{"step": "two"}', '{"step": null}', '{"step": [1]}', "[" * 9999, "\xff"])
def test_a_record_whose_step_is_not_a_number_is_removed(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    append_metrics(path, {"step": 1})
    with path.open("ab") as file:
        file.write(line.encode("latin-1") + b"\n")
    truncate_metrics(path, 5)
    assert read_metrics(path) == [{"step": 1}]
    assert path.read_text() == '{"step": 1}\n'


@pytest.mark.parametrize("name", ["metrics.jsonl", "splits.jsonl", "README.md"])
def test_a_folder_in_the_place_of_a_file_is_a_clear_error(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).mkdir()
    (run / name / "something").touch()
    assert heed("train", run, "training.steps=3") == 4
    stderr = capsys.readouterr().err
    assert name in stderr and "Traceback" not in stderr


@pytest.mark.parametrize("name", ["run.json", "config.toml", "tokenizer.json", "README.md"])
def test_a_full_disk_is_a_clear_error_and_leaves_no_temporary_file(
    name: str, workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = os.fsync

    def full(descriptor: int) -> None:
        if name in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    run = tmp_path / "run"
    assert heed("train", workshop / "recipe.toml", "training.steps=2", "--run", run) == 4
    stderr = capsys.readouterr().err
    assert f"{name} cannot be written: No space left on device" in stderr and "Traceback" not in stderr
    assert not list(run.rglob(".tmp-*"))
    monkeypatch.setattr(os, "fsync", real)
    assert heed("train", workshop / "recipe.toml", "training.steps=2", "--run", run) == 0


def test_a_file_size_limit_stops_the_run_and_keeps_its_checkpoint(run: Path, workshop: Path) -> None:
    """The log is the largest file, so only it reaches the limit."""
    limit = 1 << 20
    with (run / "metrics.jsonl").open("a") as file:
        line = json.dumps({"step": 1, "note": "x" * 1000}) + "\n"
        file.write(line * (limit // len(line)))
    before = (run / "checkpoints" / "step-2" / "model.safetensors").read_bytes()

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = run_heed("train", run, "training.steps=6", "training.save_every=6", before=limited, timeout=120)
    assert done.returncode == 4, done.stderr
    assert "metrics.jsonl cannot be written: File too large" in done.stderr and "Traceback" not in done.stderr
    assert (run / "checkpoints" / "step-2" / "model.safetensors").read_bytes() == before
    assert not list(run.rglob(".tmp-*"))
    whole = workshop / "whole"
    options: list[Any] = ["training.steps=6", "training.save_every=6"]
    assert heed("train", run, *options) == heed("train", workshop / "recipe.toml", *options, "--run", whole) == 0
    theirs = (whole / "checkpoints" / "step-6" / "model.safetensors").read_bytes()
    assert (run / "checkpoints" / "step-6" / "model.safetensors").read_bytes() == theirs


def test_temporary_files_of_killed_processes_are_removed(run: Path) -> None:
    (run / ".tmp-config.toml-1-abcd").touch()
    (run / ".tmp-tokenizer.json-1-abcd").touch()
    assert heed("train", run, "training.steps=3") == 0
    assert not list(run.glob(".tmp-*"))


def test_a_folder_name_that_is_not_utf8_is_refused_at_once(workshop: Path, tmp_path: Path) -> None:
    done = run_heed("train", workshop / "recipe.toml", "--run", os.fsencode(tmp_path) + b"/\xff")
    assert done.returncode == 2, done.stderr
    assert "is not UTF-8" in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
