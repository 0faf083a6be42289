"""A run folder: everything that a run is, in one place, used by one trainer at a time.

    config.toml  tokenizer.json  metrics.jsonl  README.md  run.json  checkpoints/

run.json holds the format version and the facts of the run (hashes of its data, versions of packages, the commit).
The lock is the kernel's, on the file .lock: it is gone when its process is, however that ended."""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.errors import CheckpointError
from heedful.storage.writing import replace_text
from heedful.training.checkpoint import clear_leftovers
from heedful.training.manifest import FORMAT, refuse_newer


@dataclass(frozen=True, slots=True)
class RunFolder:
    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def tokenizer(self) -> Path:
        return self.root / "tokenizer.json"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def card(self) -> Path:
        return self.root / "README.md"

    @property
    def facts(self) -> Path:
        return self.root / "run.json"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"


def write_facts(run: Path, facts: Mapping[str, Any]) -> None:
    """Record what the run was made from, with the format version in front."""
    replace_text(RunFolder(run).facts, json.dumps({"format": FORMAT} | dict(facts), indent=1) + "\n")


def read_facts(run: Path) -> dict[str, Any]:
    """The recorded facts; a folder without them, or of a later format, is refused."""
    path = RunFolder(run).facts
    try:
        facts = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(f"{run} is not a run folder: it has no {path.name}") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if not isinstance(facts, dict) or not isinstance(facts.get("format"), int):
        raise CheckpointError(f"{path} is damaged: it says no format")
    refuse_newer(facts, f"run folder {run}")
    return facts


@contextmanager
def lock(run: Path) -> Iterator[RunFolder]:
    """Be the only trainer of this run; leftovers of killed ones are cleared away first.

    Who fails before anything was written leaves no folder behind that was not there before."""
    new = not run.exists()
    try:
        run.mkdir(parents=True, exist_ok=True)
        file = (run / ".lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"cannot use {run} as a run folder: {error.strerror}") from error
    os.register_at_fork(after_in_child=file.close)  # or a forked worker would keep the lock of a killed trainer
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise CheckpointError(
                f"run folder {run} is in use by {holder}; only one trainer may write to it",
                hint="wait for it, stop it, or give this run a folder of its own with --run",
            ) from error
        except OSError as error:
            raise CheckpointError(f"cannot lock run folder {run}: {error.strerror}") from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}\n")
        file.flush()
        folder = RunFolder(run)
        clear_leftovers(folder.checkpoints)
        try:
            yield folder
        except BaseException:
            if new and run.is_dir() and [path.name for path in run.iterdir()] == [".lock"]:
                (run / ".lock").unlink()
                run.rmdir()
            raise
