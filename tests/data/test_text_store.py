"""Encoded text has the same bytes whether one process writes it or several, whatever interrupts them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest

from heedful.data.corpus_text import Passage, read_passage
from heedful.data.encode_shards import Worker
from heedful.data.text_store import TextStore, cut_lines, decode_text, open_text
from heedful.errors import DataError
from heedful.storage.manifest import NAME
from heedful.text import Tokenizer, TokenizerConfig, train_tokenizer

LINES = ["It was a dark night .", "", "Two men , one of them über 80 , ran to the river .", "The end ."]
SHARD = 200  # characters


@pytest.fixture
def books(tmp_path: Path) -> list[Passage]:
    for name, times in (("first", 9), ("second", 4)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in LINES * times))
    return [Passage(tmp_path / "first"), Passage(tmp_path / "second")]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="bpe", vocab=60), LINES)


def files_of(cache: Path) -> dict[str, bytes]:
    (store,) = (path for path in (cache / "text").iterdir() if path.is_dir())
    return {path.name: path.read_bytes() for path in sorted(store.iterdir())}


def test_shards_are_concatenated_to_the_text_that_one_process_writes(
    tmp_path: Path, books: list[Passage], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Worker] = []
    start = Worker.__init__

    def recording(worker: Worker, encoder: bytes) -> None:
        started.append(worker)
        start(worker, encoder)

    monkeypatch.setattr(Worker, "__init__", recording)
    whole = open_text(books, tokenizer, tmp_path / "whole")
    assert not started, "a text of one shard is encoded by this process"
    monkeypatch.setattr("heedful.data.text_store.SHARD", SHARD)
    text = open_text(books, tokenizer, tmp_path / "shards")
    assert started and files_of(tmp_path / "shards") == files_of(tmp_path / "whole")
    assert set(files_of(tmp_path / "shards")) == {"ids", NAME}
    assert text[1:] == whole[1:] and decode_text(tokenizer, text.ids) == "".join(f"{line}\n" for line in LINES * 13)


def test_shards_have_whole_lines_and_at_least_the_given_characters(books: list[Passage]) -> None:
    lines = list(chain.from_iterable(map(read_passage, books)))
    shards = list(cut_lines(lines, SHARD))
    assert list(chain.from_iterable(shards)) == lines and len(shards) > 3
    for shard in shards[:-1]:
        assert sum(len(line) + 1 for line in shard) >= SHARD > sum(len(line) + 1 for line in shard[:-1])
    assert list(cut_lines([], SHARD)) == []


def test_an_encoding_that_was_interrupted_continues_with_the_missing_shards(
    tmp_path: Path, books: list[Passage], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = open_text(books, tokenizer, tmp_path / "whole")
    monkeypatch.setattr("heedful.data.text_store.SHARD", SHARD)
    monkeypatch.setattr("heedful.data.encode_shards.cores", lambda: 1)
    encode, encoded = Worker.encode, list[str]()

    def killed(worker: Worker, folder: Path, lines: Sequence[object]) -> None:
        if len(encoded) == 2:
            os.kill(worker.process.pid, signal.SIGKILL)
        encode(worker, folder, lines)
        encoded.append(folder.name)

    monkeypatch.setattr(Worker, "encode", killed)
    with pytest.raises(
        DataError, match=r"ended with signal 9, 3 times at the same \d+ lines, the first of which begins with '"
    ):
        open_text(books, tokenizer, tmp_path / "cache")
    (work,) = (tmp_path / "cache" / "text").glob("*.shards")
    damaged = work / "shard-00000001" / "ids"
    damaged.chmod(0o644)
    damaged.write_bytes(damaged.read_bytes()[:-2])  # detected, and encoded again
    encoded[:] = ["the third one is not killed again"] * 3
    text: TextStore = open_text(books, tokenizer, tmp_path / "cache")
    shards = len(list(cut_lines(chain.from_iterable(map(read_passage, books)), SHARD)))
    assert encoded[3:] == [f"shard-0000000{number}" for number in range(1, shards)] and shards > 4
    assert not work.exists()
    assert files_of(tmp_path / "cache") == files_of(tmp_path / "whole") and text[1:] == whole[1:]
