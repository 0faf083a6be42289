"""Reading files. Each file is opened once, as a stream, so a pipe works wherever a file does.

gzip is recognized by the first bytes, whatever the name; a UTF-8 byte-order mark is removed; UTF-16 and UTF-32 are refused.
"-" is standard input.

A line ends at "\\n" and nowhere else: U+2028, U+0085, form feeds and a "\\r" inside a line are text, otherwise two
aligned files would get out of step. Lines are returned without "\\n" and without one "\\r" before it.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import partial
from hashlib import file_digest
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, cast

from heedful.errors import DataError, MissingFile, nearest

GZIP = b"\x1f\x8b"
ENCODINGS = {  # byte-order mark -> encoding; UTF-32 LE begins with the mark of UTF-16 LE, so it comes first
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
MARKS = (GZIP, codecs.BOM_UTF8, *ENCODINGS)
BUFFER = 1 << 16
SAMPLE = 4096  # bytes at the start of a file by which UTF-16 is recognized
MAX_FILE = 1 << 28  # bytes of a file that is read at once
MAX_LINE = 1 << 26  # bytes; a longer "line" is not text
SHOWN = 5  # file names in an error message
STDIN = "standard input"


class Stream(io.RawIOBase):
    """A raw stream whose first bytes, `head`, were already read; `sample` keeps what was read first."""

    def __init__(self, raw: io.RawIOBase, head: bytes) -> None:
        self.raw, self.head, self.sample = raw, head, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.head:
            count = min(len(buffer), len(self.head))
            buffer[:count], self.head = self.head[:count], self.head[count:]
        else:
            count = cast(int, self.raw.readinto(buffer))
        if len(self.sample) < SAMPLE:
            self.sample += bytes(buffer[: min(count, SAMPLE)])
        return count

    def close(self) -> None:
        self.raw.close()
        super().close()


def open_stream(path: Path) -> io.BufferedReader:
    """Open a text file: decompressed, after its byte-order mark. OSError passes."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a text file")
    raw: io.RawIOBase = open_raw(path)
    try:
        head = read_head(raw)
        if head.startswith(GZIP):
            packed = io.BufferedReader(Stream(raw, head), BUFFER)
            raw = cast(io.RawIOBase, Decompressed(fileobj=packed))
            head = read_head(raw)
            if head.startswith(GZIP):
                raise DataError(
                    f"{name_of(path)} is compressed twice; expected text or gzip of text", hint="decompress it once with gunzip"
                )
        elif path.suffix == ".gz" and head:
            raise DataError(f"{path} is not gzip, despite its suffix", hint="remove the suffix .gz if it is text")
        for mark, encoding in ENCODINGS.items():
            if head.startswith(mark):
                raise wrong_encoding(name_of(path), encoding)
        return io.BufferedReader(Stream(raw, head.removeprefix(codecs.BOM_UTF8)), BUFFER)
    except BaseException:
        raw.close()
        raise


class Decompressed(gzip.GzipFile):
    """A gzip stream that also closes the stream it reads from."""

    def close(self) -> None:
        source = cast(io.BufferedReader | None, self.fileobj)
        super().close()
        if source is not None:
            source.close()


class RawFile(io.FileIO):
    """A file that the garbage collector closes without a warning: after an error, it may find the file before the generator
    that reads and closes it."""

    def __del__(self) -> None:
        self.close()


def open_raw(path: Path) -> io.FileIO:
    if str(path) != "-":
        return RawFile(path)
    return io.FileIO(0, closefd=False)  # not sys.stdin: its lock would be held by a thread that waits for input


def read_head(raw: io.RawIOBase) -> bytes:
    """Read as few bytes as distinguish the marks: a terminal is not asked for more than was typed."""
    head = b""
    while any(mark.startswith(head) and mark != head for mark in MARKS):
        block = raw.read(1)
        if not block:
            break
        head += block
    return head


def read_lines(path: Path, *, may_be_empty: bool = False) -> Iterator[bytes]:
    """Yield every line; DataError for a file that cannot be read to its end, or that is empty unless `may_be_empty`."""
    number, name = 0, name_of(path)
    try:
        with open_stream(path) as stream:
            for number, line in enumerate(iter(partial(stream.readline, MAX_LINE), b""), start=1):
                if len(line) == MAX_LINE and not line.endswith(b"\n"):
                    raise DataError(
                        f"{name} line {number} has more than {MAX_LINE >> 20} MiB; expected lines of text",
                        hint="check that it is a text file",
                    )
                if number <= 2:  # UTF-16 may begin with the byte of a newline, read before all others
                    refuse_utf16(name, cast(Stream, stream.raw).sample)
                if number == 1:
                    refuse_carriage_returns(name, line)
                yield line.removesuffix(b"\n").removesuffix(b"\r")
    except EOFError as error:
        where = f"after line {count_complete_lines(path)}" if path.is_file() else f"near line {number}"
        raise DataError(f"{name} is truncated: its gzip stream ends {where}", hint="copy or download it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        reason = f"cannot be read ({error})"
        if str(error).startswith("Not a gzipped file"):  # the first bytes were gzip
            where = f"after line {count_complete_lines(path)}" if path.is_file() else f"near line {number}"
            reason = f"continues {where} with bytes that are not gzip"
        raise DataError(f"{name} is damaged: its gzip stream {reason}", hint="copy or download it again") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if number == 0 and not may_be_empty:
        raise DataError(f"{name} is empty; expected at least one line")


def decode_line(line: bytes, path: Path, number: int) -> str:
    """Decode a line of UTF-8 without NUL bytes; the DataError names the command that converts the file."""
    if b"\0" in line:
        raise DataError(
            f"{name_of(path)} line {number}: the text contains a NUL byte; expected text without NUL bytes",
            hint=r"remove them: tr -d '\0' < FILE > CLEANED",
        )
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name_of(path)} line {number}: byte {error.start + 1} is not UTF-8",
            hint=f"convert it: {convert_command(name_of(path), likely_encoding(line))}",
        ) from error


def name_of(path: Path) -> str:
    """The name of the file in messages."""
    return STDIN if str(path) == "-" else str(path)


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """Read a small file; a pipe, a device or more than `limit` bytes (default: MAX_FILE) are an OSError, which the caller
    explains."""
    limit = MAX_FILE if limit is None else limit
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise OSError(errno.EFBIG, f"it has more than {limit >> 20} MiB")
        return file.read()


def open_plain(path: Path) -> io.BufferedReader:
    """Open a regular file of bytes; a pipe could block, and a device may never end."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def read_package_text(package: str, name: str) -> str:
    """Read a text file that is part of a package of ours."""
    return package_files(package).joinpath(name).read_text(encoding="utf-8")


def read_package_files(package: str) -> dict[str, bytes]:
    """Read the files of a package of ours: {name: content}."""
    entries = sorted(package_files(package).iterdir(), key=lambda entry: entry.name)
    return {entry.name: entry.read_bytes() for entry in entries if entry.is_file()}


def sha256_of(path: Path) -> str:
    with open_plain(path) as file:
        return file_digest(file, "sha256").hexdigest()


def content_sha256(content: bytes) -> str:
    """SHA-256 of the content, decompressed if it is gzip: the same text can be compressed in many ways."""
    raw = io.BytesIO(content)
    return file_digest(gzip.GzipFile(fileobj=raw) if content.startswith(GZIP) else raw, "sha256").hexdigest()


def is_rereadable(path: Path) -> bool:
    """Whether the content can be read twice: a regular file, not a pipe or a terminal."""
    return str(path) != "-" and stat.S_ISREG(path.stat().st_mode)


def refuse_utf16(place: str, sample: bytes) -> None:
    """Raise DataError for UTF-16 without a byte-order mark."""
    if b"\0" not in sample or has_valid_utf8(sample):
        return
    for encoding, high, low in (("UTF-16LE", sample[1::2], sample[0::2]), ("UTF-16BE", sample[0::2], sample[1::2])):
        if is_utf16_of_latin(high, low) or is_utf16_of_any_script(high, low):
            raise wrong_encoding(place, encoding)


def has_valid_utf8(sample: bytes) -> bool:
    """Whether this is UTF-8 with other characters than ASCII; the last one may be incomplete."""
    try:
        return not codecs.getincrementaldecoder("utf-8")().decode(sample).isascii()
    except UnicodeDecodeError:
        return False


def is_utf16_of_latin(high: bytes, low: bytes) -> bool:
    """Whether these are the high and low bytes of Latin text in UTF-16: every high byte is 0."""
    return high.count(0) >= max(4, 0.8 * len(high)) and not low.count(0)


def is_utf16_of_any_script(high: bytes, low: bytes) -> bool:
    """Whether these are the high and low bytes of text in UTF-16.

    Two bytes of another encoding may be a Chinese or Korean character, so three conditions must hold: most newlines and spaces
    have the high byte 0, nine in ten characters belong to a script, and one in four is not a pair of ASCII characters."""
    characters = list(zip(high, low, strict=False))
    spaces = [first for first, second in characters if second in b"\n "]
    in_scripts = sum(byte <= 0x20 or 0x30 <= byte <= 0x9F or 0xAC <= byte <= 0xD7 or byte == 0xFF for byte in high)
    not_ascii = sum(0 < first < 0x20 or not 0x20 <= second < 0x7F for first, second in characters)
    return spaces.count(0) > len(spaces) / 2 and in_scripts >= 0.9 * len(high) and not_ascii >= max(4, 0.25 * len(high))


def refuse_carriage_returns(place: str, line: bytes) -> None:
    """Raise DataError for lines that end in carriage returns alone: the file would be read as one line."""
    if not line.endswith(b"\n") and line.rstrip(b"\r").count(b"\r") > 1:
        raise DataError(
            f"{place} ends its lines with carriage returns; expected line feeds",
            hint=r"convert it: tr '\r' '\n' < FILE > CONVERTED",
        )


def wrong_encoding(place: str, encoding: str) -> DataError:
    return DataError(f"{place} is {encoding}; expected UTF-8", hint=f"convert it: {convert_command(place, encoding)}")


def convert_command(place: str, encoding: str) -> str:
    """The shell command that converts the file to UTF-8."""
    if place == STDIN:
        return f"pipe it through iconv -f {encoding} -t UTF-8"
    if place.endswith(".gz"):
        return f"zcat {place} | iconv -f {encoding} -t UTF-8 | gzip > {place.removesuffix('.gz')}.utf8.gz"
    return f"iconv -f {encoding} -t UTF-8 {place} > {place}.utf8"


def likely_encoding(sample: bytes) -> str:
    """Guess the encoding of text that is not UTF-8: bytes 0x80 to 0x9f are letters only in Windows-1252."""
    return "WINDOWS-1252" if any(0x80 <= byte <= 0x9F for byte in sample) else "ISO-8859-1"


def count_complete_lines(path: Path) -> int:
    """Count the lines of a truncated gzip file before its end; buffered readers lose some of them."""
    decompressor = zlib.decompressobj(wbits=31)
    with io.FileIO(path) as stream:
        return sum(decompressor.decompress(block).count(b"\n") for block in iter(lambda: stream.read(BUFFER) or b"", b""))


def reason_of(error: OSError) -> str:
    """Why a file cannot be read or written; libraries raise an OSError without number and reason, only with a text."""
    return error.strerror or str(error) or type(error).__name__


def similar_file(name: str, names: Sequence[str]) -> str | None:
    """The file whose name without its suffix is close; of several, the one whose whole name is closest. A suffix in common
    makes no two names close."""
    stems = {other: stem_of(other) for other in names}
    close = nearest(stem_of(name), stems.values())
    alike = [other for other, stem in stems.items() if stem == close]
    return max(alike, key=lambda other: SequenceMatcher(None, name, other).ratio(), default=None)


def stem_of(name: str) -> str:
    return Path(name.removesuffix(".gz")).stem


def unreadable(path: Path, error: OSError) -> DataError:
    if not isinstance(error, FileNotFoundError):
        return DataError(f"{name_of(path)} cannot be read: {reason_of(error)}")
    folder = path.parent
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    neighbors = [name for name in names if not name.startswith(".")]  # hidden folders hold no corpus
    close = f"{path.name}.gz" if f"{path.name}.gz" in neighbors else similar_file(path.name, neighbors)
    what = f"{path} does not exist" if folder.is_dir() else f"{path} does not exist, nor does the folder {folder}"
    if close:
        return MissingFile(what, path, hint=f"did you mean {str(folder / close)!r}?")
    if folder.is_dir():
        shown = ", ".join([*neighbors[:SHOWN], *(["…"] if len(neighbors) > SHOWN else [])])
        return MissingFile(what, path, hint=f"check the name; {folder.resolve()} contains: {shown or 'nothing'}")
    return MissingFile(what, path, hint=f"check the name, relative to {Path.cwd()}")
