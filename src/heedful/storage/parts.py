"""Output in parts, committed one by one: a process that is killed loses at most the part that it was working on.

    FILE.parts/
      JOB.json             what the output depends on, and the number of inputs; every process must agree with it
      part-00000000        the output for the inputs 1 to `every`; the first line is {"part": 0, "size": …, "sha256": …}
      part-00000001        …
      shard-3-of-8.lock    held by the process that works on this shard

A part is written under a temporary name, flushed and renamed, so that it is complete or absent, and its number is its name, so
that it exists once, however often and by however many processes it is written. Which part has which inputs does not depend on
the number of shards: a shard is only a range of parts, and another number of shards can finish what some left undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from heedful.errors import CheckpointError, ConfigError, DataError, MissingFile, WriteError
from heedful.storage.folders import clear_temporary
from heedful.storage.locks import LockHeld, locked
from heedful.storage.manifest import Damaged, seal
from heedful.storage.reading import MAX_FILE, read_bytes, reason_of
from heedful.storage.writing import output_bytes, replace_bytes, replace_text, require_folder, write_error

JOB = "JOB.json"
MAX_HEAD = 1024  # bytes of the first line of a part
LISTED = 4  # missing ranges or shards in a message


@dataclass(frozen=True)
class Shard:
    """One of `shards` shards, counted from 1."""

    number: int
    shards: int

    def __str__(self) -> str:
        return f"{self.number}/{self.shards}"

    def share(self, total: int) -> range:
        """The parts of this shard: sizes differ by at most one, and every part is in one shard."""
        return range(total * (self.number - 1) // self.shards, total * self.number // self.shards)


@dataclass(frozen=True)
class Parts:
    """The folder of an output; see the head of this file."""

    folder: Path
    inputs: int
    every: int  # inputs of a part; the last one may have fewer

    @property
    def total(self) -> int:
        """The number of parts."""
        return -(-self.inputs // self.every)

    def size(self, number: int) -> int:
        """The number of inputs of a part."""
        return min(self.every, self.inputs - number * self.every)

    def commit(self, number: int, content: bytes) -> None:
        """Write a part; it is on the disk when this returns."""
        if len(content) >= MAX_FILE - MAX_HEAD:
            raise ConfigError(
                f"the output for {self.every:,} inputs has {len(content):,} bytes; expected fewer than {MAX_FILE:,} in a part",
                hint="use a smaller --commit-every, with another --output",
            )
        head = {"part": number, "size": len(content), "sha256": sha256(content).hexdigest()}
        replace_bytes(self._path(number), json.dumps(head).encode() + b"\n" + content)

    def read(self, number: int) -> bytes:
        """The output of a part; OSError if it is not there, Damaged if it differs from its first line."""
        name = self._path(number).name
        head, newline, content = read_bytes(self._path(number)).partition(b"\n")
        expected = {"part": number, "size": len(content), "sha256": sha256(content).hexdigest()}
        try:
            if newline and json.loads(head) == expected:
                return content
        except (ValueError, RecursionError):
            pass
        raise Damaged(f"{name} is damaged: it differs from the size and SHA-256 in its first line")

    def is_done(self, number: int) -> bool:
        try:
            self.read(number)
        except (OSError, Damaged):
            return False
        return True

    def todo(self, numbers: range) -> Iterator[range]:
        """The parts that are missing or damaged, in runs without a gap; a run ends where a part is done."""
        start: int | None = None
        for number in numbers:
            if self.is_done(number):
                if start is not None:
                    yield range(start, number)
                start = None
            elif start is None:
                start = number
        if start is not None:
            yield range(start, numbers.stop)

    @contextmanager
    def hold(self, shard: Shard) -> Iterator[None]:
        """Hold the lock of a shard; ConfigError if another process works on it."""
        name = f"shard-{shard.number}-of-{shard.shards}.lock"
        try:
            with locked(self.folder / name, wait=False):
                yield
        except LockHeld as held:
            raise ConfigError(
                f"shard {shard} of {self.folder} is being written by {held.holder}", hint="wait until that process has ended"
            ) from held

    def equal(self, output: Path) -> bool:
        """Whether a file has the content of all parts, in order."""
        try:
            with output.open("rb") as file:
                return all(file.read(len(part)) == part for part in map(self.read, range(self.total))) and not file.read(1)
        except (OSError, Damaged):
            return False

    def missing(self) -> str | None:
        """What is not done yet, as the end of a sentence; None if the output is complete."""
        runs = list(self.todo(range(self.total)))
        if not runs:
            return None
        shards = self._unfinished(runs)
        if shards:
            listed = ", ".join(map(str, shards[:LISTED])) + (", …" if len(shards) > LISTED else "")
            return f"shard{'s' * (len(shards) != 1)} {listed} {'are' if len(shards) != 1 else 'is'} missing or incomplete"
        ranges = [f"{run.start * self.every + 1:,} to {min(run.stop * self.every, self.inputs):,}" for run in runs]
        return f"the inputs {', '.join(ranges[:LISTED])}{', …' * (len(ranges) > LISTED)} are missing"

    def _unfinished(self, runs: Sequence[range]) -> list[Shard]:
        """The shards that have missing parts; none if shards of different numbers were started."""
        counts = {path.stem.rpartition("-")[2] for path in self.folder.glob("shard-*-of-*.lock")}
        if len(counts) != 1 or not (found := counts.pop()).isdecimal():
            return []
        shards = [Shard(number, int(found)) for number in range(1, int(found) + 1)]
        parts = {number for run in runs for number in run}
        return [shard for shard in shards if not parts.isdisjoint(shard.share(self.total))]

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:08d}"


def parts_folder(output: Path) -> Path:
    """The folder of the parts of an output file; an error if that is a folder itself."""
    if output.is_dir():
        raise WriteError(f"{output} is a folder; expected the name of a file", hint="choose another --output")
    return output.with_name(f"{output.name}.parts")


def check_output(output: Path, inputs: Iterable[Path]) -> None:
    """Raise an error, before any work, for an output that cannot be written, is an input, or exists and is another file."""
    require_folder(output)
    if output.exists() and any(path.exists() and path.samefile(output) for path in inputs):
        raise ConfigError(f"--output: given {output}, which is an input; expected another file", hint="choose another --output")
    refuse_other_file(output, load_parts(output) if (parts_folder(output) / JOB).exists() else None)


def refuse_other_file(output: Path, parts: Parts | None) -> None:
    """Raise an error for an output that exists, unless it has the content of these parts."""
    if output.is_file() and (parts is None or not parts.equal(output)):
        raise ConfigError(
            f"{output} exists already, with other content than this command writes; expected a new file",
            hint=f"choose another --output, or remove {output}",
        )


def open_parts(output: Path, job: Mapping[str, Any], inputs: int, every: int, labels: Mapping[str, str] | None = None) -> Parts:
    """The parts of an output file; a new folder, or one of the same job.

    job: what the output depends on, as JSON values; any difference is an error; labels: names of these values in the error"""
    folder = parts_folder(output)
    wanted = json.loads(json.dumps({**job, "inputs": inputs, "every": every}))
    try:
        folder.mkdir(exist_ok=True)
        with locked(folder / ".lock", wait=True):
            if not (folder / JOB).exists():
                replace_text(folder / JOB, seal(wanted))
    except OSError as error:
        raise write_error(folder, error) from error
    given = _read_job(folder)
    different = [name for name in {**wanted, **given} if given.get(name) != wanted.get(name)]
    if "files" in different and "inputs" in different:
        different.remove("inputs")  # it follows
    if different:
        changed = []
        for name in different:
            before, now = given.get(name), wanted.get(name)
            values = f" (was {before!r}, given {now!r})" if isinstance(before, int | str) else ""
            changed.append(f"{(labels or {}).get(name, name)}{values}")
        raise ConfigError(
            f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed since {folder} was begun; "
            "expected the same inputs, run and options",
            hint=f"choose another --output, or remove {folder} to begin again",
        )
    return Parts(folder, inputs, every)


def load_parts(output: Path) -> Parts:
    """The parts of an output file that was begun before."""
    folder = parts_folder(output)
    if not folder.is_dir():
        raise MissingFile(
            f"there is no folder {str(folder)!r}; expected the parts of {output}", folder, "begin with heed predict --output"
        )
    job = _read_job(folder)
    return Parts(folder, job["inputs"], job["every"])


def _read_job(folder: Path) -> dict[str, Any]:
    try:
        text = read_bytes(folder / JOB).decode()
        job: dict[str, Any] = json.loads(text)
        del job["sha256"]
        if seal(job) == text and isinstance(job["inputs"], int) and isinstance(job["every"], int):
            return job
    except OSError as error:
        raise CheckpointError(f"{folder / JOB} cannot be read: {reason_of(error)}") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise CheckpointError(f"{folder / JOB} is damaged", hint=f"remove {folder} and begin again")


class Joined(NamedTuple):
    """The size of a joined file."""

    bytes: int
    lines: int


def join_parts(parts: Parts, output: Path) -> Joined:
    """Write all parts in order to one file, which is complete or unchanged. A missing part is an error."""
    missing = parts.missing()
    if missing is not None:
        raise DataError(
            f"{output} cannot be joined: {missing}", hint="run these shards again; --shard 1/1 does all that is missing"
        )
    refuse_other_file(output, parts)
    size = lines = 0
    with output_bytes(output) as file:
        for number in range(parts.total):
            try:
                content = parts.read(number)
            except Damaged as damage:
                raise DataError(f"{output} cannot be joined: {damage}", hint="run the command of its shard again") from damage
            file.write(content)
            size, lines = size + len(content), lines + content.count(b"\n")
    clear_temporary(parts.folder)  # what killed processes left; nobody needs to write a part any more
    return Joined(size, lines)
