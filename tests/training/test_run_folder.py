"""A run folder: one training process at a time, a checked format, no temporary files of killed processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from workshop import start

from heedful.errors import CheckpointError
from heedful.training import facts
from heedful.training.checkpoint import load, save
from heedful.training.facts import FORMAT
from heedful.training.run_folder import RunFolder, lock, read_facts, write_facts


def hold(run: Path, kind: str) -> None:
    with lock(run):
        child = os.fork() if kind == "fork" else 0
        if child or kind == "alone":
            print(child, flush=True)
        time.sleep(60)


@contextmanager
def holder(run: Path, kind: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that holds the lock, and its forked child, if any."""
    process = start(lambda: hold(run, kind), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        yield process, child
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        if child:
            os.kill(child, signal.SIGKILL)


def test_the_error_names_the_process_that_holds_the_lock_and_a_kill_releases_it(tmp_path: Path) -> None:
    with holder(tmp_path / "run", "alone") as (process, _):
        with pytest.raises(CheckpointError, match=f"in use by process {process.pid} on"), lock(tmp_path / "run"):
            pass
        process.kill()
        process.wait()
        with lock(tmp_path / "run"):
            pass


def test_a_forked_worker_does_not_keep_the_lock_of_its_killed_parent(tmp_path: Path) -> None:
    with holder(tmp_path / "run", "fork") as (process, child):
        process.kill()
        process.wait()
        os.kill(child, 0)  # it is still running
        with lock(tmp_path / "run") as run:
            assert run == RunFolder(tmp_path / "run")


def test_the_lock_is_released_even_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock(tmp_path):
        with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()} on"), lock(tmp_path):
            pass
        raise ZeroDivisionError
    with lock(tmp_path) as run:
        assert run == RunFolder(tmp_path)


def test_a_file_is_not_a_run_folder(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot use .* as a run folder: "), lock(tmp_path / "run"):
        pass


def test_a_new_folder_is_removed_after_a_failure_before_the_first_write(tmp_path: Path) -> None:
    for failure in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(failure), lock(tmp_path / "new"):
            raise failure
        assert list(tmp_path.iterdir()) == []


def test_an_existing_or_non_empty_folder_is_kept_after_a_failure(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(ZeroDivisionError), lock(tmp_path / "old"):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), lock(tmp_path / "new") as run:
        run.metrics.touch()
        raise ZeroDivisionError
    with lock(tmp_path / "idle"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["idle", "new", "old"]
    assert run.metrics.exists()


def test_locking_removes_temporary_files_of_killed_processes(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    for step in (1, 2, 3):
        save(checkpoints, step, {"model": {"weight": torch.zeros(2)}}, {"step": step})
    (checkpoints / ".tmp-step-4-1-ab").mkdir()
    (checkpoints / ".tmp-step-4-1-ab" / "state.json").write_text("half")
    (checkpoints / ".tmp-best-1-ab").symlink_to("step-3")
    (checkpoints / "step-2").rename(checkpoints / "step-2.replaced")  # killed before the new one was renamed
    (checkpoints / "step-3.replaced").mkdir()  # killed after it
    (checkpoints / "step-1.damaged").mkdir()
    with lock(tmp_path):
        assert sorted(path.name for path in checkpoints.iterdir()) == ["step-1", "step-1.damaged", "step-2", "step-3"]
    assert load(checkpoints / "step-2")[1] == {"step": 2}


def test_a_replaced_checkpoint_is_kept_while_the_new_one_does_not_verify(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    save(checkpoints, 1, {"model": {"weight": torch.zeros(2)}}, {}).rename(checkpoints / "step-1.replaced")
    (checkpoints / "step-1").mkdir()
    with lock(tmp_path):
        assert sorted(path.name for path in checkpoints.iterdir()) == ["step-1", "step-1.replaced"]


def test_facts_are_restored_with_the_format(tmp_path: Path) -> None:
    write_facts(tmp_path, {"environment": {"commit": "abc"}, "data": {"train.en": "sha"}})
    assert read_facts(tmp_path) == {"format": FORMAT, "environment": {"commit": "abc"}, "data": {"train.en": "sha"}}


def test_facts_that_are_missing_damaged_or_newer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"is not a run folder: run\.json is missing"):
        read_facts(tmp_path)
    for text in ("{", "[]", "{}", "\x00"):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"run\.json is damaged"):
            read_facts(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(CheckpointError, match=f"has format {FORMAT + 1}") as caught:
        read_facts(tmp_path)
    assert caught.value.hint == "install a newer version of heedful"


def test_a_fingerprint_that_does_not_match_the_listed_files_is_refused(tmp_path: Path) -> None:
    """Even if run.json was sealed again: checkpoints store the fingerprint, so it must be that of the files."""
    (tmp_path / "config.toml").write_text("a = 1\n")
    (tmp_path / "tokenizer.json").write_text("{}")
    facts.write_facts(tmp_path, {"data": {"train": "0"}, "environment": {}})
    facts.record_files(tmp_path)
    known = facts.read_facts(tmp_path)
    facts.replace_config(tmp_path, "a = 2\n")  # replace_config keeps the fingerprint
    assert facts.read_facts(tmp_path)["fingerprint"] == known["fingerprint"]
    facts.write_facts(tmp_path, known | {"data": {"train": "1"}})
    with pytest.raises(CheckpointError, match="its fingerprint does not match the files it lists"):
        facts.read_facts(tmp_path)
