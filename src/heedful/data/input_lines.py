"""Lines of input text: from files, or from a stream in chunks of the lines available so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TypeVar

from heedful.data.sources import find_path
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.storage.reading import decode_line, read_lines

Given = TypeVar("Given")  # an input
Checked = TypeVar("Checked")  # and what is made of it
CHUNK_TIMEOUT = 0.01  # seconds to wait for another line before a chunk is processed
MAX_CHARACTERS = 10**6  # of one input text: tokenizing needs hundreds of bytes for each
CHUNK_LINES = 2048  # lines that are processed together
STDIN = Path("-")
STDIN_NAMES = {"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}


def as_text(line: bytes, place: str) -> str:
    """Decode a line without its newline; DataError with the place if it is not UTF-8."""
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{place}: byte {error.start + 1} is not UTF-8; expected UTF-8 text", hint="convert it, for example with iconv"
        ) from error


def read_texts(path: Path, *, may_be_empty: bool = False) -> Iterator[str]:
    """Yield the lines of a file or a pipe, plain or .gz; "-" is standard input."""
    file = path if path == STDIN else find_path(str(path))
    for number, line in enumerate(read_lines(file, may_be_empty=may_be_empty), start=1):
        yield decode_line(line, file, number)


def is_interactive(path: Path) -> bool:
    """Return whether lines may come with delays: standard input, a pipe, a terminal."""
    if path == STDIN:
        return True
    file = find_path(str(path))
    return file.exists() and not file.is_file()


def refuse_two_readers(paths: Iterable[Path | None]) -> None:
    """Raise if standard input, which can be read only once, is given more than once."""
    readers = [str(path) for path in paths if str(path) in STDIN_NAMES]
    if len(readers) > 1:
        raise ConfigError(
            f"standard input is given {len(readers)} times ({', '.join(readers)}); expected at most once",
            hint="save it to a file and give the file name",
        )


def refuse_too_long(text: str, place: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise DataError(
            f"{place} has {len(text):,} characters; expected at most {MAX_CHARACTERS:,}",
            hint="put each sentence on its own line",
        )


def chunk_lines(lines: Iterable[Given]) -> Iterator[list[Given]]:
    """Yield lists of `CHUNK_LINES` lines, or other inputs; if reading fails, those before the error are yielded first."""
    chunk: list[Given] = []
    try:
        for line in lines:
            chunk.append(line)
            if len(chunk) == CHUNK_LINES:
                yield chunk
                chunk = []
    except HeedfulError:
        yield chunk
        raise
    if chunk:
        yield chunk


def checked_chunks(
    chunks: Iterable[Sequence[Given]], check: Callable[[Given, int], Checked], first: int = 1
) -> Iterator[tuple[int, list[Checked]]]:
    """Yield for each chunk of inputs the number of its first one, and the inputs as `check` returns them, given an input and
    its number. Before the error of an invalid input is raised, the inputs of its chunk before it are yielded.

    first: the number of the first input"""
    for chunk in chunks:
        checked: list[Checked] = []
        try:
            for number, given in enumerate(chunk, start=first):
                checked.append(check(given, number))
        except HeedfulError:
            if checked:
                yield first, checked
            raise
        yield first, checked
        first += len(chunk)


def read_available(lines: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield chunks of the lines available so far, at most `most`, so that interactive input is processed at once.

    A thread reads the lines, at most a few chunks ahead. Its errors are raised here, after the lines before them."""
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
            line = queue.get(timeout=CHUNK_TIMEOUT if chunk else None)
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
