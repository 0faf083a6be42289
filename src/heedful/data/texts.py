"""Lines of text to work on one after the other: from files, or from a stream as they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from heedful.data.sources import find_path
from heedful.errors import DataError
from heedful.storage.reading import decode_line, read_lines

PATIENCE = 0.01  # seconds without another line after which those that came are worked on


def as_text(line: bytes, place: str) -> str:
    """The line without its end, or an error that names the place."""
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: byte {error.start + 1} is not UTF-8", hint="convert it, for example with iconv") from error


def read_texts(path: Path, *, may_be_empty: bool = False) -> Iterator[str]:
    """The lines of a file, plain or .gz."""
    found = find_path(str(path))
    for number, line in enumerate(read_lines(found, may_be_empty=may_be_empty), start=1):
        yield decode_line(line, found, number)


def arriving(stream: Iterable[bytes], most: int) -> Iterator[list[str]]:
    """As many lines at a time as have arrived: who types one line and waits is answered at once."""
    queue: SimpleQueue[bytes | None] = SimpleQueue()

    def pump() -> None:
        for line in stream:
            queue.put(line)
        queue.put(None)

    Thread(target=pump, daemon=True).start()
    number = 0
    chunk: list[str] = []
    while True:
        try:
            line = queue.get(timeout=PATIENCE if chunk else None)
        except Empty:
            yield chunk
            chunk = []
            continue
        if line is None:
            break
        number += 1
        chunk.append(as_text(line, f"standard input line {number}"))
        if len(chunk) == most:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
