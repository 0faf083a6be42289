"""Encode a large corpus in shards, in several processes, and continue after an interruption.

    text -> shards -> worker processes -> <key>.shards/shard-00000000, shard-00000001, … -> one store

This process reads and checks the text; each worker (`encode_worker.py`) encodes a shard and writes it as a store of its own,
which is complete or absent. Shards that are there are not encoded again. In the end they are concatenated: the store has the
bytes that one process would have written. Memory is that of two shards for each worker, whatever the size of the corpus.
The shard of a worker that was killed is encoded by a new one; a shard whose workers end ATTEMPTS times is an error.

What a shard consists of, sentence pairs or lines, only its `ShardEncoder` knows.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from threading import Lock, Thread
from typing import IO, Protocol, TypeVar, cast

from heedful.data.prefetch import prefetch
from heedful.errors import DataError
from heedful.storage.manifest import Damaged, checked_manifest

ATTEMPTS = 3  # to encode a shard

Item = TypeVar("Item")  # of a shard
Given = TypeVar("Given", contravariant=True)

log = logging.getLogger(__name__)


class ShardEncoder(Protocol[Given]):
    """Encodes items into stores. It is pickled and sent to the workers."""

    def write(self, folder: Path, items: Sequence[Given], /) -> None:
        """Write the store of these items; its manifest is written last."""

    def concatenate(self, shards: Sequence[Path], folder: Path, /) -> None:
        """Write the store of the items of all shards, with the bytes that `write` would write."""

    def describe(self, items: Sequence[Given], /) -> str:
        """What a shard consists of, for messages."""


class WorkerEnded(Exception):
    """A worker ended without an answer; the message says how."""


class Worker:
    """A process that encodes shards. It is not a child of `multiprocessing`, which would run the user's script again."""

    def __init__(self, encoder: bytes) -> None:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "RAYON_NUM_THREADS": "1",  # the tokenizers of all workers share the cores
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "heedful.data.encode_worker"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.input, self.output = cast(IO[bytes], self.process.stdin), cast(IO[bytes], self.process.stdout)
        self._send(encoder)

    def encode(self, folder: Path, items: Sequence[object]) -> None:
        """Write the store of a shard; an error of the worker is raised here."""
        self._send(pickle.dumps((folder, items), pickle.HIGHEST_PROTOCOL))
        try:
            error: BaseException | None = pickle.load(self.output)
        except (EOFError, pickle.UnpicklingError):
            error = self._ended()
        if error is not None:
            raise error

    def _send(self, content: bytes) -> None:
        try:
            self.input.write(content)
            self.input.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _ended(self) -> WorkerEnded:
        code = self.process.wait()
        return WorkerEnded(f"ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}")

    def close(self) -> None:
        self.output.close()
        with suppress(BrokenPipeError):
            self.input.close()  # ends the worker
        self.process.wait()


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def write_in_shards(folder: Path, work: Path, shards: Iterable[Sequence[Item]], encoder: ShardEncoder[Item]) -> None:
    """Write a store, by several processes if there is more than one shard; work: the folder of the shards."""
    remaining = iter(shards)
    first, second = next(remaining, []), next(remaining, None)
    if second is None:
        encoder.write(folder, first)
    else:
        encoder.concatenate(write_shards(work, chain((first, second), remaining), encoder), folder)


def write_shards(
    work: Path, shards: Iterable[Sequence[Item]], encoder: ShardEncoder[Item], processes: int | None = None
) -> list[Path]:
    """Write a store for each shard that is not in the folder yet; return the folders of all shards, in order."""
    work.mkdir(parents=True, exist_ok=True)
    folders: list[Path] = []

    def missing() -> Iterator[tuple[Path, Sequence[Item]]]:
        for number, shard in enumerate(shards):
            folders.append(shard_path(work, number))
            if not is_complete(folders[-1]):
                yield folders[-1], shard

    encode_items(missing(), encoder, processes)
    return folders


def shard_path(work: Path, number: int) -> Path:
    return work / f"shard-{number:08d}"


def encode_items(
    items: Iterator[tuple[Path, Sequence[Item]]],
    encoder: ShardEncoder[Item],
    processes: int | None = None,
    finish: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Write a store of the items to each folder, in several processes; finish: called with each folder, in a thread."""
    packed = pickle.dumps(encoder, pickle.HIGHEST_PROTOCOL)
    lock, stopped = Lock(), False
    with closing(prefetch(items, depth=1)) as shards:

        def work_off() -> None:
            nonlocal stopped
            worker: Worker | None = None
            try:
                while True:
                    with lock:
                        item = None if stopped else next(shards, None)
                    if item is None:
                        return
                    worker = encode_shard(packed, worker, *item, describe=encoder.describe)
                    finish(item[0])
            except BaseException:
                stopped = True
                raise
            finally:
                if worker is not None:
                    worker.close()

        threads = [in_background(work_off) for _ in range(processes or cores())]
        try:
            errors = [error for error in [thread.exception() for thread in threads] if error is not None]
        finally:  # also where this thread is interrupted: the others end after their current shard
            with lock:
                stopped = True
        if errors:
            raise errors[0]


def encode_shard(
    packed: bytes, worker: Worker | None, folder: Path, items: Sequence[Item], *, describe: Callable[[Sequence[Item]], str]
) -> Worker:
    """Write the store of a shard, by this worker or by a new one; return the worker, for the next shard."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            worker = worker or Worker(packed)
            worker.encode(folder, items)
            return worker
        except WorkerEnded as ended:
            if worker is not None:
                worker.close()
            worker = None
            message = f"a process that encodes the data {ended}"
            if attempt == ATTEMPTS:
                raise DataError(
                    f"{message}, {ATTEMPTS} times at the same {describe(items)}",
                    hint="run the command again: it continues with the shards that are not encoded yet; signal 9 may mean that "
                    "the memory was full",
                ) from None
            log.warning("%s; its shard is encoded again", message)
        except BaseException:
            if worker is not None:
                worker.close()
            raise
    raise AssertionError("the last attempt returns or raises")


def in_background(function: Callable[[], None]) -> Future[None]:
    """Run a function in a thread that does not keep the process from ending, unlike those of a ThreadPoolExecutor."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            function()
            future.set_result(None)
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="encode", daemon=True).start()
    return future


def is_complete(folder: Path) -> bool:
    try:
        checked_manifest(folder)
    except (OSError, Damaged):
        return False
    return True
