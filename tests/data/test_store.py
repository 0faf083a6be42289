from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import time
import tracemalloc
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heedful.data.encode
from heedful.data.encode import StoreOptions, cache_folder, open_store, without_dropped
from heedful.data.pairs import Pair
from heedful.data.sources import CorpusConfig
from heedful.data.store import JoinedStore, PairStore, row_lengths
from heedful.errors import DataError, WriteError
from heedful.storage.manifest import NAME


class Letters:
    """A tokenizer with one id per character that counts its texts and may be slow."""

    def __init__(self, vocab: int = 0x110000, seconds: float = 0.0) -> None:
        self.vocab = vocab
        self.seconds = seconds
        self.encoded = 0
        self.fingerprint = sha256(str(vocab).encode()).hexdigest()

    def __len__(self) -> int:
        return self.vocab

    def encode_many(self, texts: Sequence[str], /) -> list[list[int]]:
        time.sleep(self.seconds)
        self.encoded += len(texts)
        return [[ord(letter) % self.vocab for letter in text] for text in texts]


def write(folder: Path, pairs: Sequence[tuple[str, str]], name: str = "train") -> CorpusConfig:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs))
    return CorpusConfig(jsonl=str(path))


def numbered(count: int) -> list[tuple[str, str]]:
    return [(f"source {number}", f"the target of {number * 7}") for number in range(count)]


def content(store: PairStore | JoinedStore) -> list[tuple[list[int], list[int]]]:
    return [(store.source(index).tolist(), store.target(index).tolist()) for index in range(len(store))]


def ids(texts: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
    return [([ord(letter) for letter in source], [ord(letter) for letter in target]) for source, target in texts]


WORDS = st.text(min_size=1, max_size=12).filter(lambda text: text.strip() and "\0" not in text)


@settings(max_examples=25, deadline=None)
@given(texts=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=9), chunk=st.integers(1, 4))
def test_a_store_returns_ids_texts_and_lengths(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]], chunk: int
) -> None:
    folder = tmp_path_factory.mktemp("store")
    letters = Letters()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heedful.data.encode, "CHUNK", chunk)
        store = open_store(write(folder, texts), (letters, letters), StoreOptions(keep_text=True), cache=folder)
    assert content(store) == ids(texts)
    assert [store.text(index) for index in range(len(store))] == texts
    assert store.source_lengths.tolist() == [len(source) for source, _ in texts]
    assert store.target_lengths.tolist() == [len(target) for _, target in texts]
    assert store.lines.tolist() == [*range(1, len(texts) + 1)]


@pytest.mark.parametrize(("vocab", "kind"), [(65536, "uint16"), (65537, "uint32")])
def test_ids_are_as_small_as_the_vocabulary_allows(tmp_path: Path, vocab: int, kind: str) -> None:
    letters = Letters(vocab)
    store = open_store(write(tmp_path, [(chr(65535), "b")]), (letters, letters), cache=tmp_path)
    assert store.source(0).dtype == kind
    assert store.source(0).tolist() == [65535]


def test_overlong_pairs_are_left_out_and_their_lines_recorded(tmp_path: Path) -> None:
    texts = [("aaaa", "b"), ("aaaaa", "b"), ("a", "bbbb"), ("a", "bbbbb"), ("", "b")]
    letters = Letters()
    corpus = write(tmp_path, texts)
    store = open_store(corpus, (letters, letters), StoreOptions(max_length=4), cache=tmp_path)
    assert store.lines.tolist() == [1, 3]
    assert store.overlong.tolist() == [2, 4]
    complete = open_store(corpus, (letters, letters), StoreOptions(max_length=None), cache=tmp_path)
    assert complete.lines.tolist() == [1, 2, 3, 4]
    with pytest.raises(DataError, match=r"no pair of .* can be used: all 4 are longer than data.max_length = 0"):
        open_store(corpus, (letters, letters), StoreOptions(max_length=0), cache=tmp_path)


def test_dropped_lines_are_left_out(tmp_path: Path) -> None:
    letters = Letters()
    store = open_store(write(tmp_path, numbered(6)), (letters, letters), dropped=np.array([2, 5]), cache=tmp_path)
    assert store.lines.tolist() == [1, 3, 4, 6]
    assert len(store.overlong) == 0


@given(dropped=st.sets(st.integers(1, 40)), lines=st.sets(st.integers(1, 50)))
def test_without_leaves_out_the_dropped_lines_and_no_others(dropped: set[int], lines: set[int]) -> None:
    kept = without_dropped(np.array(sorted(dropped), np.int64), (Pair(line, "a", "b") for line in sorted(lines)))
    assert [pair.line for pair in kept] == sorted(lines - dropped)


def test_dropping_a_million_lines_needs_one_byte_per_line() -> None:
    dropped = np.arange(1, 1_000_001)
    tracemalloc.start()
    assert list(without_dropped(dropped, [Pair(7, "a", "b"), Pair(1_000_001, "a", "b")])) == [Pair(1_000_001, "a", "b")]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3_000_000


def test_lengths_are_differences_of_offsets_of_any_size() -> None:
    offsets = np.array([0, 3, 3, 2**40, 2**40 + 7], np.int64)
    assert row_lengths(offsets[[0, 1, 2]]).tolist() == [3, 0]
    assert row_lengths(offsets[[3, 4]]).tolist() == [7]
    assert row_lengths(offsets[[3, 4]]).dtype == np.int32


def test_the_tag_is_part_of_the_source(tmp_path: Path) -> None:
    letters = Letters()
    corpus = write(tmp_path, [("a", "b")]).model_copy(update={"tag": "<2de>"})
    assert content(open_store(corpus, (letters, letters), cache=tmp_path)) == ids([("<2de> a", "b")])


def test_a_moved_corpus_is_not_encoded_again(tmp_path: Path) -> None:
    letters = Letters()
    first = open_store(write(tmp_path, numbered(5)), (letters, letters), cache=tmp_path)
    again = open_store(write(tmp_path, numbered(5), name="moved"), (letters, letters), cache=tmp_path)
    assert letters.encoded == 2 * 5
    assert content(first) == content(again) == ids(numbered(5))


def test_every_option_that_changes_the_store_leads_to_a_new_one(tmp_path: Path) -> None:
    letters = Letters()
    corpus = write(tmp_path, numbered(5))
    (tmp_path / "pairs.tsv").write_text("ab\tcd\tef\n")
    tsv = CorpusConfig(tsv=f"{tmp_path}/pairs.tsv")
    folders = [
        open_store(corpus, (letters, letters), cache=tmp_path).folder,
        open_store(corpus, (Letters(300), letters), cache=tmp_path).folder,
        open_store(corpus, (letters, Letters(300)), cache=tmp_path).folder,
        open_store(corpus, (letters, letters), StoreOptions(max_length=99), cache=tmp_path).folder,
        open_store(corpus, (letters, letters), StoreOptions(max_ratio=2.0), cache=tmp_path).folder,
        open_store(corpus, (letters, letters), StoreOptions(keep_text=True), cache=tmp_path).folder,
        open_store(corpus, (letters, letters), dropped=np.array([1]), cache=tmp_path).folder,
        open_store(corpus.model_copy(update={"tag": "<t>"}), (letters, letters), cache=tmp_path).folder,
        open_store(write(tmp_path, numbered(6)), (letters, letters), cache=tmp_path).folder,
        open_store(tsv, (letters, letters), cache=tmp_path).folder,
        open_store(tsv.model_copy(update={"columns": (1, 3)}), (letters, letters), cache=tmp_path).folder,
    ]
    assert len(set(folders)) == len(folders)
    weighted = tsv.model_copy(update={"weight": 3.0})
    assert open_store(weighted, (letters, letters), cache=tmp_path).folder == folders[-2]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda folder: flip(folder / "target.values"),
    "a cut file": lambda folder: (folder / "source.offsets").write_bytes(b"12345678"),
    "a lost file": lambda folder: (folder / "lines").unlink(),
    "a broken manifest": lambda folder: (folder / NAME).write_text("{"),
    "a manifest of something else": lambda folder: (folder / NAME).write_text("[]"),
    "no manifest": lambda folder: (folder / NAME).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_store_is_detected_and_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    letters = Letters()
    corpus = write(tmp_path, numbered(5))
    folder = open_store(corpus, (letters, letters), cache=tmp_path).folder
    DAMAGE[damage](folder)
    with caplog.at_level(logging.WARNING):
        store = open_store(corpus, (letters, letters), cache=tmp_path)
    assert letters.encoded == 2 * 2 * 5
    assert content(store) == ids(numbered(5))
    assert ("is damaged and will be rebuilt" in caplog.text) == (damage != "no manifest")


def make_in_a_process(folder: Path, seconds: float) -> None:
    letters = Letters(seconds=seconds)
    store = open_store(CorpusConfig(jsonl=f"{folder}/train.jsonl"), (letters, letters), cache=folder)
    (folder / f"encoded.{os.getpid()}").write_text(f"{letters.encoded} {content(store) == ids(numbered(40))}")


def test_a_store_is_rebuilt_after_a_killed_process(tmp_path: Path) -> None:
    corpus = write(tmp_path, numbered(40))
    process = multiprocessing.get_context("spawn").Process(target=make_in_a_process, args=(tmp_path, 60.0))
    process.start()
    for _ in range(400):
        if list((tmp_path / "tokens").glob(".tmp-*/lines")):
            break
        time.sleep(0.05)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert list((tmp_path / "tokens").glob(".tmp-*/lines")), "it was killed in the middle"
    letters = Letters()
    store = open_store(corpus, (letters, letters), cache=tmp_path)
    assert content(store) == ids(numbered(40))
    assert not list((tmp_path / "tokens").glob(".tmp-*"))


def test_of_two_processes_one_encodes_and_both_have_the_store(tmp_path: Path) -> None:
    write(tmp_path, numbered(40))
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=make_in_a_process, args=(tmp_path, 0.3)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    results = sorted(path.read_text() for path in tmp_path.glob("encoded.*"))
    assert results == ["0 True", "80 True"]


def test_an_error_while_reading_leaves_no_partial_store(tmp_path: Path) -> None:
    letters = Letters()
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("eins\n")
    with pytest.raises(DataError, match="has 2 lines, but"):
        open_store(CorpusConfig(source=f"{tmp_path}/a", target=f"{tmp_path}/b"), (letters, letters), cache=tmp_path)
    assert [path.suffix for path in (tmp_path / "tokens").iterdir()] == [".lock"]


def test_a_missing_file_and_an_unwritable_cache_are_errors(tmp_path: Path) -> None:
    letters = Letters()
    with pytest.raises(DataError, match="nowhere does not exist"):
        open_store(CorpusConfig(jsonl=f"{tmp_path}/nowhere"), (letters, letters), cache=tmp_path)
    corpus = write(tmp_path, numbered(2))
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError) as caught:
        open_store(corpus, (letters, letters), cache=tmp_path / "file")
    assert str(caught.value) == (
        f"the token store cannot be written to {tmp_path}/file/tokens: Not a directory\n\n"
        "hint: set HEED_CACHE to a writable folder with enough free space"
    )


def test_heed_cache_sets_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEED_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.delenv("HEED_CACHE")
    assert cache_folder() == Path.home() / ".cache/heedful"


def test_joined_stores_are_their_concatenation(tmp_path: Path) -> None:
    letters = Letters()
    texts = [numbered(3), [("x", "yy")], numbered(5)]
    stores = [
        open_store(write(tmp_path, part), (letters, letters), StoreOptions(keep_text=True), cache=tmp_path) for part in texts
    ]
    joined = JoinedStore(stores)
    everything = [pair for part in texts for pair in part]
    assert joined.sizes == (3, 1, 5)
    assert content(joined) == ids(everything)
    assert [joined.text(index) for index in range(len(joined))] == everything
    assert joined.source_lengths.tolist() == [len(source) for source, _ in everything]
    assert joined.target_lengths.tolist() == [len(target) for _, target in everything]


@pytest.mark.skipif("HEED_DATA" not in os.environ, reason="HEED_DATA is not set: Multi30k is not here")
def test_multi30k_is_stored_unchanged(tmp_path: Path) -> None:
    letters = Letters()
    corpus = CorpusConfig(folder="multi30k", languages=("en", "de"), split="valid")
    store = open_store(corpus, (letters, letters), StoreOptions(keep_text=True, max_length=None), cache=tmp_path)
    assert len(store) == 1014
    assert ids([store.text(1013)]) == content(store)[1013:]
