from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from workshop import heed, obeying_permissions

import heedful.data.fetch
from heedful.data.catalog import Corpus, Download
from heedful.data.fetch import SUMS, get_corpus, list_corpora, locate
from heedful.errors import ConfigError, DataError
from heedful.storage.reading import sha256_of

TEXT = b"one\ntwo\nthree\n"
CHECKSUM = sha256(TEXT).hexdigest()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A local web server, and the folder that it serves."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "train.en.gz").write_bytes(gzip.compress(TEXT))
    (folder / "plain.txt").write_bytes(TEXT)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", folder
    server.shutdown()
    thread.join()
    server.server_close()


def list_one(patch: pytest.MonkeyPatch, checksums: dict[str, str], downloads: dict[str, Download]) -> None:
    """A catalog of one corpus, "small", and no HEED_DATA."""
    corpus = Corpus("translation", ("en",), {"train": 3}, "https://origin", "free", "as it is", checksums, downloads)
    patch.setattr(heedful.data.fetch, "CATALOG", {"small": corpus})
    patch.delenv("HEED_DATA", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        patch.delenv(name, raising=False)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def local_copy(root: Path) -> dict[str, str]:
    (root / "small").mkdir(parents=True)
    (root / "small/train.en.gz").write_bytes(gzip.compress(TEXT, mtime=0))
    return {"train.en.gz": CHECKSUM}


def test_a_corpus_is_copied_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_one(monkeypatch, local_copy(tmp_path / "local"), {})
    for source in (tmp_path / "local", tmp_path / "local/small"):
        fetched = get_corpus("small", tmp_path / "mine", source)
        assert fetched.folder == tmp_path / "mine/small"
        assert fetched.files == ("train.en.gz",)
        assert gzip.decompress((fetched.folder / "train.en.gz").read_bytes()) == TEXT
    assert names(tmp_path / "mine/small") == [SUMS, "train.en.gz"]


def test_heed_data_is_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_one(monkeypatch, local_copy(tmp_path / "local"), {})
    assert locate("small") is None
    monkeypatch.setenv("HEED_DATA", str(tmp_path / "local"))
    assert locate("small") == tmp_path / "local/small"
    assert [(row["name"], row["here"]) for row in list_corpora()] == [("small", f"{tmp_path}/local/small")]
    assert get_corpus("small", tmp_path / "mine").origin == f"{tmp_path}/local/small"


def test_a_changed_file_is_an_error_even_if_its_sha256sums_file_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_one(monkeypatch, local_copy(tmp_path / "local"), {})
    path = tmp_path / "local/small/train.en.gz"
    path.write_bytes(gzip.compress(TEXT.replace(b"two", b"2")))
    for place, name in ((tmp_path / "local/small", "train.en.gz"), (tmp_path / "local", "small/train.en.gz")):
        (place / SUMS).write_text(f"{sha256_of(path)}  {name}\n")
    with pytest.raises(DataError) as caught:
        get_corpus("small", tmp_path / "mine", tmp_path / "local")
    changed = sha256(TEXT.replace(b"two", b"2")).hexdigest()
    assert str(caught.value) == (
        f"{path} is not the file of the catalog: its text has SHA-256 {changed}, expected {CHECKSUM}\n\n"
        "hint: get it again from its origin: this one is damaged, edited or another version"
    )
    assert not (tmp_path / "mine").exists()


def test_nothing_is_copied_if_one_file_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checksums = local_copy(tmp_path / "local")
    (tmp_path / "local/small/train.xx").write_text("changed\n")
    list_one(monkeypatch, checksums | {"train.xx": CHECKSUM}, {})
    with pytest.raises(DataError, match=r"train\.xx is not the file of the catalog"):
        get_corpus("small", tmp_path / "mine", tmp_path / "local")
    assert not (tmp_path / "mine").exists()


def test_a_damaged_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_one(monkeypatch, local_copy(tmp_path / "local"), {})
    path = tmp_path / "local/small/train.en.gz"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match="is damaged"):
        get_corpus("small", tmp_path / "mine", tmp_path / "local")


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_one(monkeypatch, local_copy(tmp_path / "local"), {})
    path = tmp_path / "local/small/train.en.gz"
    path.rename(tmp_path / "local/small/real.gz")
    path.symlink_to("real.gz")
    assert get_corpus("small", tmp_path / "mine", tmp_path / "local").files == ("train.en.gz",)
    (tmp_path / "local/small/real.gz").rename(tmp_path / "elsewhere.gz")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere.gz")
    with pytest.raises(DataError, match="is a symbolic link out of its folder"):
        get_corpus("small", tmp_path / "other", tmp_path / "local")


def test_every_refused_corpus_is_an_error_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_one(monkeypatch, local_copy(tmp_path / "local"), {})
    path = tmp_path / "local/small/train.en.gz"
    command = ["data", "get", "small", "--from", str(tmp_path / "local"), "--to", str(tmp_path / "mine")]
    path.chmod(0)
    with obeying_permissions():
        assert heed(*command) == 3
    path.chmod(0o644)
    path.write_bytes(gzip.compress(b"another text"))
    assert heed(*command) == 3
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert heed(*command) == 3
    path.unlink()
    assert heed(*command) == 3
    assert not (tmp_path / "mine").exists()


def test_downloads_are_gzipped_and_can_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: tuple[str, Path]
) -> None:
    """The checksum is that of the text, independent of the gzip bytes."""
    url, _ = site
    downloads = {
        "train.en.gz": Download(f"{url}/train.en.gz", 3),
        "input.txt.gz": Download(f"{url}/plain.txt", 3),
    }
    list_one(monkeypatch, dict.fromkeys(downloads, CHECKSUM), downloads)
    fetched = get_corpus("small", tmp_path / "mine")
    assert fetched.origin == "https://origin"
    assert [gzip.decompress((fetched.folder / file).read_bytes()) for file in fetched.files] == [TEXT, TEXT]
    again = get_corpus("small", tmp_path / "other", tmp_path / "mine")
    assert again.files == fetched.files


@pytest.mark.parametrize("verbatim", [True, False])
def test_a_download_with_another_checksum_is_an_error_if_the_catalog_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: tuple[str, Path], verbatim: bool
) -> None:
    url, _ = site
    list_one(monkeypatch, {"train.en.gz": "0" * 64}, {"train.en.gz": Download(f"{url}/train.en.gz", 3, verbatim)})
    if verbatim:
        with pytest.raises(DataError, match=f"has a text with SHA-256 {CHECKSUM}, expected 0000"):
            get_corpus("small", tmp_path / "mine")
        assert names(tmp_path / "mine") == []
    else:
        assert names(get_corpus("small", tmp_path / "mine").folder) == [SUMS, "train.en.gz"]


@pytest.mark.parametrize("case", ["not found", "too short", "not gzip", "cut off", "no server"])
def test_a_failed_download_reports_what_was_tried_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: tuple[str, Path], case: str
) -> None:
    url, folder = site
    (folder / "page.gz").write_bytes(b"<html>")
    (folder / "cut.gz").write_bytes(gzip.compress(TEXT)[:-4])
    tried = "cannot get the corpus 'small': HEED_DATA is not set, and"
    address, lines, message = {
        "not found": (f"{url}/nothing.gz", 3, f"{tried} {url}/nothing.gz failed: File not found"),
        "too short": (f"{url}/plain.txt", 4, f"{url}/plain.txt has 3 lines, expected 4; it was not stored"),
        "not gzip": (f"{url}/page.gz", 3, f"{tried} {url}/page.gz failed: Not a gzipped file (b'<h')"),
        "cut off": (f"{url}/cut.gz", 3, f"{tried} {url}/cut.gz failed: Compressed file ended before"),
        "no server": ("http://127.0.0.1:9/x.gz", 3, f"{tried} http://127.0.0.1:9/x.gz failed: [Errno"),
    }[case]
    list_one(monkeypatch, {"train.en.gz": "0" * 64}, {"train.en.gz": Download(address, lines)})
    with pytest.raises(DataError) as caught:
        get_corpus("small", tmp_path / "mine")
    assert str(caught.value).startswith(message)
    assert names(tmp_path / "mine") == []


def test_a_download_that_fails_at_its_second_file_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: tuple[str, Path]
) -> None:
    url, _ = site
    downloads = {"a.gz": Download(f"{url}/train.en.gz", 3), "b.gz": Download(f"{url}/plain.txt", 3)}
    list_one(monkeypatch, {"a.gz": CHECKSUM, "b.gz": "0" * 64}, downloads)
    folder = tmp_path / "mine/small"
    folder.mkdir(parents=True)
    (folder / "notes").write_text("of the user")
    for before in (["notes"], ["a.gz", "notes"]):
        with pytest.raises(DataError, match="has a text with SHA-256"):
            get_corpus("small", tmp_path / "mine")
        assert names(tmp_path / "mine") == ["small"] and names(folder) == before
        (folder / "a.gz").write_text("an older version")
    assert (folder / "a.gz").read_text() == "an older version"
    list_one(monkeypatch, dict.fromkeys(downloads, CHECKSUM), downloads)
    assert names(get_corpus("small", tmp_path / "mine").folder) == [SUMS, "a.gz", "b.gz", "notes"]
    assert gzip.decompress((folder / "a.gz").read_bytes()) == TEXT


def test_a_file_that_changes_while_it_is_copied_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checksums = local_copy(tmp_path / "local")
    (tmp_path / "local/small/valid.en").write_bytes(TEXT)
    list_one(monkeypatch, checksums | {"valid.en": CHECKSUM}, {})
    read, reads = heedful.data.fetch.read_checked, []

    def change_after_the_check(source: Path, file: str, checksum: str) -> bytes:
        reads.append(file)
        if len(reads) == 4:
            (source / file).write_text("changed\n")
        return read(source, file, checksum)

    monkeypatch.setattr(heedful.data.fetch, "read_checked", change_after_the_check)
    with pytest.raises(DataError, match="is not the file of the catalog"):
        get_corpus("small", tmp_path / "mine", tmp_path / "local")
    assert len(reads) == 4 and names(tmp_path / "mine") == []


def test_a_corpus_without_downloads_reports_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_one(monkeypatch, {"train.en.gz": "0" * 64}, {})
    with pytest.raises(DataError) as caught:
        get_corpus("small", tmp_path)
    assert str(caught.value) == (
        "cannot get the corpus 'small': HEED_DATA is not set, and its files cannot be downloaded unchanged\n\n"
        "hint: give --from FOLDER, or prepare it from https://origin (as it is)"
    )


def test_a_folder_without_the_corpus_and_an_unknown_name_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_one(monkeypatch, {"train.en.gz": "0" * 64}, {})
    with pytest.raises(DataError, match="does not have the corpus 'small'; expected the files train"):
        get_corpus("small", tmp_path / "mine", tmp_path)
    with pytest.raises(ConfigError, match="did you mean 'small'"):
        get_corpus("smal", tmp_path / "mine")


@pytest.mark.skipif("HEED_DATA" not in os.environ, reason="HEED_DATA is not set: Multi30k is not here")
def test_multi30k_is_copied_from_heed_data(tmp_path: Path) -> None:
    assert len(get_corpus("multi30k", tmp_path).files) == 9
