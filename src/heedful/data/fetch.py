"""Get a corpus of the catalog: copied from a folder that has it, or downloaded from its origin.

The checksums of the catalog decide in both cases: a file whose text differs is refused. A SHA256SUMS file is written for
people (`sha256sum -c`) and never read: whoever can change a corpus can change the checksums beside it. A symbolic link that
leaves the folder is not followed. A file is moved to its place when it is complete and right.
"""

from __future__ import annotations

import gzip
import http.client
import os
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, cast

from heedful.data.catalog import CATALOG, Corpus, Download
from heedful.errors import DataError, lookup
from heedful.storage.reading import content_sha256, read_bytes, sha256_of
from heedful.storage.writing import output_bytes, replace_text, write_error

SUMS = "SHA256SUMS"
TIMEOUT = 30  # seconds without an answer


@dataclass(frozen=True)
class Fetched:
    folder: Path
    files: tuple[str, ...]
    origin: str  # the folder it was copied from, or the address it was downloaded from


def list_corpora() -> list[dict[str, object]]:
    """One row a corpus, as `heed data list` shows them."""
    return [
        {
            "name": name,
            "task": corpus.task,
            "languages": list(corpus.languages),
            "splits": corpus.splits,
            "origin": corpus.origin,
            "terms": corpus.terms,
            "form": corpus.form,
            "downloads": bool(corpus.downloads),
            "here": str(folder) if (folder := locate(name)) else None,
        }
        for name, corpus in CATALOG.items()
    ]


def locate(name: str, root: Path | None = None) -> Path | None:
    """The folder with the corpus's files: root/name or root itself; root is $HEED_DATA when not given."""
    corpus = lookup(name, CATALOG, "corpus")
    if root is None:
        if not os.environ.get("HEED_DATA"):
            return None
        root = Path(os.environ["HEED_DATA"])
    wanted = [*corpus.downloads] or [*corpus.checksums]
    return next((folder for folder in (root / name, root) if all((folder / file).is_file() for file in wanted)), None)


def get(name: str, destination: Path, source_folder: Path | None = None) -> Fetched:
    """Puts the corpus into destination/name, from `source_folder` or, without one, from $HEED_DATA or its origin."""
    corpus = lookup(name, CATALOG, "corpus")
    found = locate(name, source_folder)
    if source_folder is not None and found is None:
        raise DataError(
            f"{source_folder} does not have the corpus {name!r}; expected the files {', '.join(corpus.checksums)} "
            f"in {source_folder / name} or in {source_folder}",
            hint="leave out --from to look in $HEED_DATA and then to download",
        )
    folder = destination / name
    try:
        return copy(corpus, found, folder) if found else download(name, corpus, folder)
    except OSError as error:
        raise write_error(folder, error) from error


def copy(corpus: Corpus, source: Path, folder: Path) -> Fetched:
    """All files are checked before the first one is written, so that a refused corpus leaves nothing behind."""
    files = [file for file in corpus.checksums if (source / file).is_file()]
    for file in files:
        checked_content(source, file, corpus.checksums[file])
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        content = checked_content(source, file, corpus.checksums[file])  # again: it may have changed since
        with output_bytes(folder / file) as copied:
            copied.write(content)
    write_sums(folder, files)
    return Fetched(folder, tuple(files), str(source))


def checked_content(source: Path, file: str, checksum: str) -> bytes:
    """The bytes of a file whose text has this SHA-256."""
    refuse_outside(source / file, source)
    content = read_bytes(source / file)
    try:
        found = content_sha256(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source / file} is damaged: {error}", hint="copy or download it again") from error
    if found != checksum:
        raise DataError(
            f"{source / file} is not the file of the catalog: its text has SHA-256 {found}, expected {checksum}",
            hint="it is damaged, changed or another edition; get it again from where it came",
        )
    return content


def refuse_outside(path: Path, folder: Path) -> None:
    """A link in a folder from somebody else could name any file of this machine."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(
            f"{path} is a symbolic link out of its folder, to {path.resolve()}; links are not followed",
            hint="replace the link by the file",
        )


def write_sums(folder: Path, files: list[str]) -> None:
    replace_text(folder / SUMS, "".join(f"{sha256_of(folder / file)}  {file}\n" for file in sorted(files)))


def download(name: str, corpus: Corpus, folder: Path) -> Fetched:
    root = os.environ.get("HEED_DATA")
    tried = f"it is not in $HEED_DATA ({root})" if root else "HEED_DATA is not set"
    if not corpus.downloads:
        raise DataError(
            f"the corpus {name!r} cannot be got: {tried}, and its files cannot be downloaded as they stand",
            hint=f"give --from FOLDER, or make it from {corpus.origin} ({corpus.form})",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for file, wanted in corpus.downloads.items():
        failed = f"the corpus {name!r} cannot be got: {tried}, and {wanted.url} gave"
        checksum = corpus.checksums.get(file) if wanted.verbatim else None
        with output_bytes(folder / file) as stream, gzip.GzipFile("", "wb", 9, stream, mtime=0) as packed:
            lines, digest = 0, sha256()
            for block in blocks_of(wanted, failed):
                lines += block.count(b"\n")
                digest.update(block)
                packed.write(block)
            refuse_other_text(wanted, lines, digest.hexdigest(), checksum)
    write_sums(folder, [*corpus.downloads])
    return Fetched(folder, tuple(corpus.downloads), corpus.origin)


def blocks_of(wanted: Download, failed: str) -> Iterator[bytes]:
    """The text at an address, unpacked; failed: how the message begins if it cannot be had."""
    request = urllib.request.Request(wanted.url, headers={"User-Agent": "heedful"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            text = cast(IO[bytes], gzip.GzipFile(fileobj=answer) if wanted.url.endswith(".gz") else answer)
            yield from iter(lambda: text.read(1 << 20), b"")
    except (OSError, EOFError, zlib.error, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is also the answer, and still open
        raise DataError(
            f"{failed}: {getattr(error, 'reason', error)}", hint="try again with a network, or give --from FOLDER"
        ) from error


def refuse_other_text(wanted: Download, lines: int, found: str, checksum: str | None) -> None:
    hint = "try again; if it stays so, the origin has changed"
    if lines != wanted.lines:
        raise DataError(f"{wanted.url} gave {lines:,} lines, expected {wanted.lines:,}; it was not kept", hint=hint)
    if checksum is not None and found != checksum:
        raise DataError(f"{wanted.url} gave a text with SHA-256 {found}, expected {checksum}; it was not kept", hint=hint)
