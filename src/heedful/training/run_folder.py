"""A run folder: all files of a run, written by one process at a time.

    config.toml  tokenizer.json  metrics.jsonl  README.md  run.json  checkpoints/

run.json (facts.py) has the fingerprint that identifies the config, the tokenizers and the checkpoints of the run.
Every file is complete or absent. A write that fails (full disk, file limit) ends training with exit code 4, even if it is only
a line of metrics.jsonl: nothing more is saved then, because that would need more space; the last checkpoint is unchanged,
and the same command continues from it.
The lock on the file .lock is released by the kernel when its process ends, even if it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from heedful.errors import CheckpointError, ConfigError
from heedful.storage.folders import clear_temporary
from heedful.storage.locks import LockHeld, locked
from heedful.storage.reading import reason_of
from heedful.training.checkpoint import clear_leftovers
from heedful.training.facts import check_files, read_facts, write_facts

LOCK = ".lock"

__all__ = ["RunFolder", "check_files", "lock", "read_facts", "refuse_name", "write_facts"]


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


@contextmanager
def lock(run: Path) -> Iterator[RunFolder]:
    """Lock the run folder, creating it if needed, and remove temporary files of killed processes.

    If the block fails before anything was written, a folder created here is removed."""
    refuse_name(run)
    new = not run.exists()
    with ExitStack() as stack:
        try:
            run.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(run / LOCK, wait=False))
        except LockHeld as error:
            raise CheckpointError(
                f"run folder {run} is in use by {error.holder}; expected one training process at a time",
                hint="wait for it, stop it, or choose another folder with --run",
            ) from error
        except OSError as error:
            raise CheckpointError(f"cannot use {run} as a run folder: {reason_of(error)}") from error
        folder = RunFolder(run)
        try:
            clear_leftovers(folder.checkpoints)
            clear_temporary(run)
            yield folder
        except BaseException:
            if new and run.is_dir() and [path.name for path in run.iterdir()] == [LOCK]:
                (run / LOCK).unlink()
                run.rmdir()
            raise


def refuse_name(folder: Path) -> None:
    """Raise ConfigError for a name that is not UTF-8, which JSON and the model card cannot hold."""
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"the folder name {str(folder)!r} is not UTF-8", hint="choose another name") from error
