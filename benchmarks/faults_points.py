"""Points inside a save: every operation that changes the disk, in the order of execution.

An audit hook (PEP 578) is called before each of them: mkdir, open for writing, rename, symlink, remove, rmdir, chmod. Two kinds
have no audit event and get one here: fsync, and the middle of a file, where half of it is written. A hook can end the process,
as SIGKILL does, or raise an OSError, as a failing disk does. Called in a child process, before the command (`Sandbox.fork`).
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults_workshop import patch

WRITES = os.O_WRONLY | os.O_RDWR
CHANGES = ("os.mkdir", "os.rename", "os.symlink", "os.remove", "os.rmdir", "os.chmod")
FLUSH, HALF = "heedful.fsync", "heedful.half"

Act = Callable[[int, str], None]  # (number of the point, its name)


def watch_save(save: int, act: Act) -> None:
    """Call act(number, name) before every change of the disk in the given save (1: the first) of this process, in the thread
    that writes."""
    from heedful.training.loop import Trainer

    saves, number, active, thread = 0, 0, False, 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal number, active
        if not active or threading.get_ident() != thread:
            return
        name = name_of(event, arguments)
        if name is not None:
            number, active = number + 1, False  # what `act` does is no point
            try:
                act(number, name)
            finally:
                active = True

    def watched(trainer: Any, *arguments: Any) -> Any:
        nonlocal saves, active, thread
        saves, thread = saves + 1, threading.get_ident()
        active = saves == save
        try:
            return own(trainer, *arguments)
        finally:
            active = False

    own = patch(Trainer, "write", watched)
    announce_flushes()
    announce_halves()
    sys.addaudithook(hook)


def name_of(event: str, arguments: tuple[Any, ...]) -> str | None:
    """A readable name of an operation that changes the disk; None for others."""
    if event == "open":
        path, _, flags = arguments
        return f"open {short(path)}" if flags & WRITES and path != os.devnull else None
    if event == "os.rename":
        return f"rename {short(arguments[0])} to {short(arguments[1])}"
    if event == "os.symlink":
        return f"symlink {short(arguments[1])}"
    if event in CHANGES:
        return f"{event.removeprefix('os.')} {short(arguments[0])}"
    if event == FLUSH:
        return f"fsync {short(arguments[0])}"
    if event == HALF:
        return f"middle of {short(arguments[0])}"
    return None


def short(path: Any) -> str:
    """The last two parts of a path, without the random part of a temporary name."""
    parts = Path(os.fsdecode(path)).parts[-2:] if not isinstance(path, int) else ()
    kept = parts if len(parts) == 2 and parts[0].startswith((".tmp-", "step-")) else parts[-1:]
    return re.sub(r"(\.tmp-.+?)-\d+-[0-9a-f]{8}", r"\1", "/".join(kept))


def announce_flushes() -> None:
    def fsync(descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        sys.audit(FLUSH, Path(f"/proc/self/fd/{number}").readlink())
        own(number)

    own = patch(os, "fsync", fsync)


def announce_halves() -> None:
    """Half of every file is written when its point is reached; the real writer writes all of it."""
    from safetensors import SafetensorError

    from heedful.storage import writing
    from heedful.training import checkpoint

    def write_in_halves(path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])
        sys.audit(HALF, path)
        write_bytes(path, content)

    def save_in_halves(tensors: Any, path: Path, **options: Any) -> None:
        save_file(tensors, path, **options)
        content = path.read_bytes()
        os.truncate(path, len(content) // 2)
        try:
            sys.audit(HALF, path)
        except OSError as error:  # as the library reports it
            raise SafetensorError(f"Error while serializing: I/O error: {error.strerror} (os error {error.errno})") from error
        path.write_bytes(content)

    write_bytes = patch(writing, "write_bytes", write_in_halves)
    save_file = patch(checkpoint, "save_file", save_in_halves)


def record_points(path: Path, save: int = 1) -> None:
    """Write the names of all points to a file."""
    watch_save(save, lambda number, name: append(path, name))


def append(path: Path, name: str) -> None:
    with path.open("a") as file:
        file.write(f"{name}\n")


def kill_at(point: int, save: int = 1) -> None:
    """SIGKILL at this point."""
    watch_save(save, lambda number, name: os.kill(os.getpid(), signal.SIGKILL) if number == point else None)


def fail_at(point: int, code: int, save: int = 1) -> None:
    """From this point on every operation that changes the disk fails with this errno, as on a disk that is full or gone."""

    def fail(number: int, name: str) -> None:
        if number >= point and not name.startswith(("remove", "rmdir")):  # temporary files can be removed from a full disk
            raise OSError(code, os.strerror(code), name)

    watch_save(save, fail)
