"""The lines of a text file, one at a time, as bytes; the file is never held in memory.

A line ends at "\\n" and nowhere else: U+2028, U+0085, form feeds and a "\\r" inside a line are text, otherwise two
aligned files would fall out of step. Left out are the "\\n", one "\\r" at the end of a line, and a byte-order mark at
the start of the file. A name that ends in .gz is read through gzip, any other as it stands.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from heedful.errors import DataError, nearest

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
SHOWN = 5  # names of a folder in an error


def read_lines(path: Path, *, may_be_empty: bool = False) -> Iterator[bytes]:
    """Yields every line; a file that cannot be read to its end is a DataError, and so is one without a line, unless it may."""
    number = 0
    try:
        with open_bytes(path) as stream:
            for number, line in enumerate(stream, start=1):
                text = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
                yield text.removesuffix(b"\n").removesuffix(b"\r")
    except EOFError as error:
        raise DataError(
            f"{path} is cut off: its gzip stream stops after line {whole_lines(path)}", hint="copy or download it again"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path} is damaged: its gzip stream cannot be read past line {number} ({error})",
            hint="copy or download it again",
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error
    if number == 0 and not may_be_empty:
        raise DataError(f"{path} is empty; expected at least one line")


def open_bytes(path: Path) -> BinaryIO:
    """A stream of the file's bytes, unpacked when its name ends in .gz; iterating over it gives lines."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; expected a text file")
    with path.open("rb") as stream:
        magic = stream.read(len(GZIP_MAGIC))
    if path.suffix != ".gz":
        if magic == GZIP_MAGIC:
            raise DataError(f"{path} is gzip, but its name does not end in .gz", hint=f"rename it to {path.name}.gz")
        return path.open("rb")
    if magic and magic != GZIP_MAGIC:
        raise DataError(f"{path} is named .gz, but it is not gzip", hint="rename it without .gz if it is plain text")
    # BufferedReader cuts lines in C; GzipFile does it in Python, several times slower.
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, gzip.open(path, "rb")), 1 << 16))


def whole_lines(path: Path) -> int:
    """How many lines a gzip stream has before it breaks off; readers with a buffer lose some of them."""
    unpack = zlib.decompressobj(wbits=31)
    with path.open("rb") as stream:
        return sum(unpack.decompress(block).count(b"\n") for block in iter(lambda: stream.read(1 << 16), b""))


def unreadable(path: Path, error: OSError) -> DataError:
    if not isinstance(error, FileNotFoundError):
        return DataError(f"{path} cannot be read: {error.strerror or error}")
    folder = path.parent
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    neighbours = [name for name in names if not name.startswith(".")]  # nobody keeps a corpus in .git
    close = f"{path.name}.gz" if f"{path.name}.gz" in neighbours else nearest(path.name, neighbours)
    what = f"{path} does not exist" if folder.is_dir() else f"{path} does not exist, nor does the folder {folder}"
    if close:
        return DataError(what, hint=f"did you mean {str(folder / close)!r}?")
    if folder.is_dir():
        shown = ", ".join([*neighbours[:SHOWN], *(["…"] if len(neighbours) > SHOWN else [])])
        return DataError(what, hint=f"check the name; in {folder.resolve()} there is: {shown or 'nothing'}")
    return DataError(what, hint="`heed data list` names the public corpora, `heed data get NAME` fetches one")
