"""Get a corpus of the catalogue: copied from a folder that has it, or downloaded from its origin.

A copy is compared with the checksums of the catalogue, or with the SHA256SUMS that lies beside it. A download is
compared by its number of lines; then its checksums are written into SHA256SUMS, so that copies of it can be verified in
their turn. A file is moved to its place when it is complete and right: what is there is whole.
"""

from __future__ import annotations

import gzip
import http.client
import os
import shutil
import urllib.error
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from heedful.data.catalogue import CATALOGUE, Corpus, Download
from heedful.errors import DataError, lookup
from heedful.storage.reading import sha256_of

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
        for name, corpus in CATALOGUE.items()
    ]


def locate(name: str, root: Path | None = None) -> Path | None:
    """The folder with the corpus's files: root/name or root itself; root is $HEED_DATA when not given."""
    corpus = lookup(name, CATALOGUE, "corpus")
    if root is None:
        if not os.environ.get("HEED_DATA"):
            return None
        root = Path(os.environ["HEED_DATA"])
    wanted = [*corpus.downloads] or [*corpus.checksums]
    return next((folder for folder in (root / name, root) if all((folder / file).is_file() for file in wanted)), None)


def get(name: str, destination: Path, source_folder: Path | None = None) -> Fetched:
    """Puts the corpus into destination/name, from `source_folder` or, without one, from $HEED_DATA or its origin."""
    corpus = lookup(name, CATALOGUE, "corpus")
    found = locate(name, source_folder)
    if source_folder is not None and found is None:
        raise DataError(
            f"{source_folder} does not have the corpus {name!r}; expected the files {', '.join(corpus.checksums)} "
            f"in {source_folder / name} or in {source_folder}",
            hint="leave out --from to look in $HEED_DATA and then to download",
        )
    folder = destination / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return copy(corpus, found, folder) if found else download(name, corpus, folder)
    except OSError as error:
        raise DataError(f"{folder} cannot be filled: {error.strerror or error}") from error


def copy(corpus: Corpus, source: Path, folder: Path) -> Fetched:
    listed = listed_sums(source)
    files = [file for file in corpus.checksums if (source / file).is_file()]
    for file in files:
        partial = folder / f".{file}.partial"
        shutil.copyfile(source / file, partial)
        found = sha256_of(partial)
        if found not in (corpus.checksums[file], listed.get(file)):
            partial.unlink()
            raise DataError(
                f"{source / file} is not the file that it should be: SHA-256 {found}, "
                f"expected {listed.get(file, corpus.checksums[file])}",
                hint="it is damaged or another edition; get it again from where it came",
            )
        partial.replace(folder / file)
    write_sums(folder, files)
    return Fetched(folder, tuple(files), str(source))


def listed_sums(folder: Path) -> dict[str, str]:
    """What SHA256SUMS in the folder, or in the one above, says of the folder's files."""
    sums: dict[str, str] = {}
    for file, prefix in ((folder.parent / SUMS, f"{folder.name}/"), (folder / SUMS, "")):
        for line in file.read_text().splitlines() if file.is_file() else ():
            checksum, _, name = line.partition("  ")
            if name.startswith(prefix):
                sums[name.removeprefix(prefix)] = checksum
    return sums


def write_sums(folder: Path, files: list[str]) -> None:
    (folder / SUMS).write_text("".join(f"{sha256_of(folder / file)}  {file}\n" for file in sorted(files)))


def download(name: str, corpus: Corpus, folder: Path) -> Fetched:
    root = os.environ.get("HEED_DATA")
    tried = f"it is not in $HEED_DATA ({root})" if root else "HEED_DATA is not set"
    if not corpus.downloads:
        raise DataError(
            f"the corpus {name!r} cannot be got: {tried}, and its files cannot be downloaded as they stand",
            hint=f"give --from FOLDER, or make it from {corpus.origin} ({corpus.form})",
        )
    for file, wanted in corpus.downloads.items():
        partial = folder / f".{file}.partial"
        try:
            lines = fetch(wanted, partial)
        except (OSError, EOFError, zlib.error, http.client.HTTPException) as error:
            partial.unlink(missing_ok=True)
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it is also the answer, and still open
            raise DataError(
                f"the corpus {name!r} cannot be got: {tried}, and {wanted.url} gave: {getattr(error, 'reason', error)}",
                hint="try again with a network, or give --from FOLDER",
            ) from error
        if lines != wanted.lines:
            partial.unlink()
            raise DataError(
                f"{wanted.url} gave {lines:,} lines, expected {wanted.lines:,}; it was not kept",
                hint="try again; if it stays so, the origin has changed",
            )
        partial.replace(folder / file)
    write_sums(folder, [*corpus.downloads])
    return Fetched(folder, tuple(corpus.downloads), corpus.origin)


def fetch(wanted: Download, path: Path) -> int:
    """Downloads into a gzip file, whether it comes packed or plain, and counts its lines."""
    request = urllib.request.Request(wanted.url, headers={"User-Agent": "heedful"})
    lines = 0
    with (
        urllib.request.urlopen(request, timeout=TIMEOUT) as answer,
        path.open("wb") as stream,
        gzip.GzipFile("", "wb", 9, stream, mtime=0) as packed,
    ):
        text = cast(IO[bytes], gzip.GzipFile(fileobj=answer) if wanted.url.endswith(".gz") else answer)
        while block := text.read(1 << 20):
            lines += block.count(b"\n")
            packed.write(block)
    return lines
