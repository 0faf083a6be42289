from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import pytest

from heedful.data.catalog import CATALOG
from heedful.storage.reading import content_sha256

HERE = os.environ.get("HEED_DATA")


@pytest.mark.parametrize("name", CATALOG)
def test_every_entry_is_complete(name: str) -> None:
    corpus = CATALOG[name]
    assert corpus.origin.startswith("https://")
    assert corpus.terms
    assert corpus.form
    assert corpus.checksums
    assert all(re.fullmatch(r"[0-9a-f]{64}", checksum) for checksum in corpus.checksums.values())
    assert set(corpus.downloads) <= set(corpus.checksums)
    assert all(download.url.startswith("https://") and download.lines > 0 for download in corpus.downloads.values())


@pytest.mark.skipif(HERE is None, reason="HEED_DATA is not set: the corpora are not here")
@pytest.mark.parametrize("name", CATALOG)
def test_the_catalog_matches_the_local_files(name: str) -> None:
    corpus = CATALOG[name]
    folder = Path(str(HERE)) / name
    for file, checksum in corpus.checksums.items():
        assert content_sha256((folder / file).read_bytes()) == checksum
    for file, download in corpus.downloads.items():
        assert gzip.decompress((folder / file).read_bytes()).count(b"\n") == download.lines
    if corpus.task == "translation":
        for split, count in corpus.splits.items():
            for language in corpus.languages:
                assert gzip.decompress((folder / f"{split}.{language}.gz").read_bytes()).count(b"\n") == count
