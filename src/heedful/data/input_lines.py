"""Lines of text to work on one after the other: from files, or from a stream as they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

from heedful.data.sources import find_path
from heedful.errors import ConfigError, DataError
from heedful.storage.reading import decode_line, read_lines

PATIENCE = 0.01  # seconds without another line after which those that came are worked on
MAX_CHARACTERS = 10**6  # of one text for a model: tokenizing takes hundreds of bytes for each
STDIN = Path("-")
STDIN_NAMES = {"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}


def as_text(line: bytes, place: str) -> str:
    """The line without its end, or an error that names the place."""
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: byte {error.start + 1} is not UTF-8", hint="convert it, for example with iconv") from error


def read_texts(path: Path, *, may_be_empty: bool = False) -> Iterator[str]:
    """The lines of a file or a pipe, plain or .gz; "-" is standard input."""
    found = path if path == STDIN else find_path(str(path))
    for number, line in enumerate(read_lines(found, may_be_empty=may_be_empty), start=1):
        yield decode_line(line, found, number)


def is_interactive(path: Path) -> bool:
    """Whether the lines may be typed or computed while we wait: standard input, a pipe, a terminal."""
    if path == STDIN:
        return True
    found = find_path(str(path))
    return found.exists() and not found.is_file()


def refuse_two_readers(paths: Iterable[Path | None]) -> None:
    """Standard input can be read once."""
    readers = [str(path) for path in paths if str(path) in STDIN_NAMES]
    if len(readers) > 1:
        raise ConfigError(
            f"standard input was given {len(readers)} times ({', '.join(readers)}); it can be read once",
            hint="save it to a file and give the file",
        )


def refuse_too_long(text: str, place: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise DataError(
            f"{place} has {len(text):,} characters; expected at most {MAX_CHARACTERS:,}",
            hint="put every sentence on a line of its own",
        )


def chunks_as_they_arrive(lines: Iterable[str], most: int) -> Iterator[list[str]]:
    """As many lines at a time as have arrived: who types one line and waits is answered at once.

    A thread reads the lines, at most a few chunks ahead. An error there is raised here, after the lines before it."""
    queue: Queue[str | BaseException | None] = Queue(maxsize=2 * most)

    def pump() -> None:
        try:
            for line in lines:
                queue.put(line)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    Thread(target=pump, daemon=True).start()
    chunk: list[str] = []
    while True:
        try:
            line = queue.get(timeout=PATIENCE if chunk else None)
        except Empty:
            yield chunk
            chunk = []
            continue
        if not isinstance(line, str):
            break
        chunk.append(line)
        if len(chunk) == most:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
    if line is not None:
        raise line
