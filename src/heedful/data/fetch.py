"""Copy a corpus of the catalog from a folder, or download it from its origin.

Both are verified against the checksums of the catalog. A SHA256SUMS file is written for users (`sha256sum -c`) but never
read: anyone who can change a corpus can change the checksums next to it. Symbolic links out of the folder are not followed.
All files are written to a temporary folder and moved once the last one is complete and verified: all of them or none.
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
from heedful.storage.folders import new_folder
from heedful.storage.reading import content_sha256, read_bytes, sha256_of, unreadable
from heedful.storage.writing import create, sync_folder, write_bytes, write_error, write_text

SUMS = "SHA256SUMS"
TIMEOUT = 30  # seconds without a response


@dataclass(frozen=True)
class Fetched:
    folder: Path
    files: tuple[str, ...]
    origin: str  # the folder it was copied from, or the URL it was downloaded from


def list_corpora() -> list[dict[str, object]]:
    """Return one row per corpus, as in `heed data list`."""
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
    """Return the folder with the corpus's files: root/name or root itself; default root: $HEED_DATA."""
    corpus = lookup(name, CATALOG, "corpus")
    if root is None:
        if not os.environ.get("HEED_DATA"):
            return None
        root = Path(os.environ["HEED_DATA"])
    files = [*corpus.downloads] or [*corpus.checksums]
    return next((folder for folder in (root / name, root) if all((folder / file).is_file() for file in files)), None)


def get_corpus(name: str, destination: Path, source_folder: Path | None = None) -> Fetched:
    """Write the corpus to destination/name, from `source_folder`; default: from $HEED_DATA or its origin."""
    corpus = lookup(name, CATALOG, "corpus")
    local = locate(name, source_folder)
    if source_folder is not None and local is None:
        raise DataError(
            f"{source_folder} does not have the corpus {name!r}; expected the files {', '.join(corpus.checksums)} "
            f"in {source_folder / name} or in {source_folder}",
            hint="leave out --from to try $HEED_DATA and then a download",
        )
    folder = destination / name
    try:
        return copy_corpus(corpus, local, folder) if local else download_corpus(name, corpus, folder)
    except OSError as error:
        raise write_error(folder, error) from error


def copy_corpus(corpus: Corpus, source: Path, folder: Path) -> Fetched:
    """Copy the files; all are checked before the first one is written."""
    files = [file for file in corpus.checksums if (source / file).is_file()]
    for file in files:
        read_checked(source, file, corpus.checksums[file])
    with new_folder(folder.resolve(), move_files) as temporary:
        for file in files:
            write_bytes(temporary / file, read_checked(source, file, corpus.checksums[file]))  # again, in case it changed
        write_sums(temporary, files)
    return Fetched(folder, tuple(files), str(source))


def move_files(temporary: Path, folder: Path) -> None:
    """Move the files of a complete corpus into its folder, beside files of other names."""
    folder.mkdir(exist_ok=True)
    for path in temporary.iterdir():
        path.replace(folder / path.name)
    sync_folder(folder)


def read_checked(source: Path, file: str, checksum: str) -> bytes:
    """Return the bytes of a file after comparing the SHA-256 of its text."""
    refuse_outside(source / file, source)
    try:
        content = read_bytes(source / file)
    except OSError as error:
        raise unreadable(source / file, error) from error
    try:
        digest = content_sha256(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{source / file} is damaged: {error}", hint="copy or download it again") from error
    if digest != checksum:
        raise DataError(
            f"{source / file} is not the file of the catalog: its text has SHA-256 {digest}, expected {checksum}",
            hint="get it again from its origin: this one is damaged, edited or another version",
        )
    return content


def refuse_outside(path: Path, folder: Path) -> None:
    """Raise if a path leaves the folder: a symbolic link in it could point to any file of this machine."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(
            f"{path} is a symbolic link out of its folder, to {path.resolve()}; links are not followed",
            hint="replace the link with the file",
        )


def write_sums(folder: Path, files: list[str]) -> None:
    write_text(folder / SUMS, "".join(f"{sha256_of(folder / file)}  {file}\n" for file in sorted(files)))


def download_corpus(name: str, corpus: Corpus, folder: Path) -> Fetched:
    root = os.environ.get("HEED_DATA")
    tried = f"it is not in $HEED_DATA ({root})" if root else "HEED_DATA is not set"
    if not corpus.downloads:
        raise DataError(
            f"cannot get the corpus {name!r}: {tried}, and its files cannot be downloaded unchanged",
            hint=f"give --from FOLDER, or prepare it from {corpus.origin} ({corpus.form})",
        )
    with new_folder(folder.resolve(), move_files) as temporary:
        for file, download in corpus.downloads.items():
            failed = f"cannot get the corpus {name!r}: {tried}, and {download.url} failed"
            checksum = corpus.checksums.get(file) if download.verbatim else None
            with create(temporary / file) as stream, gzip.GzipFile("", "wb", 9, stream, mtime=0) as packed:
                lines, digest = 0, sha256()
                for block in download_blocks(download, failed):
                    lines += block.count(b"\n")
                    digest.update(block)
                    packed.write(block)
                check_download(download, lines, digest.hexdigest(), checksum)
        write_sums(temporary, [*corpus.downloads])
    return Fetched(folder, tuple(corpus.downloads), corpus.origin)


def download_blocks(download: Download, failed: str) -> Iterator[bytes]:
    """Yield the text at a URL, unpacked; failed: the start of the error message if that fails."""
    request = urllib.request.Request(download.url, headers={"User-Agent": "heedful"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            text = cast(IO[bytes], gzip.GzipFile(fileobj=response) if download.url.endswith(".gz") else response)
            yield from iter(lambda: text.read(1 << 20), b"")
    except (OSError, EOFError, zlib.error, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is also the response, and still open
        raise DataError(
            f"{failed}: {getattr(error, 'reason', error)}", hint="try again with a network, or give --from FOLDER"
        ) from error


def check_download(download: Download, lines: int, digest: str, checksum: str | None) -> None:
    hint = "try again; if the error persists, the file has changed at its origin"
    if lines != download.lines:
        raise DataError(f"{download.url} has {lines:,} lines, expected {download.lines:,}; it was not stored", hint=hint)
    if checksum is not None and digest != checksum:
        raise DataError(f"{download.url} has a text with SHA-256 {digest}, expected {checksum}; it was not stored", hint=hint)
