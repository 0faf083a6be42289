"""A store that is built in shards by several processes has the bytes of one that is built at once, whatever interrupts it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, main_thread
from threading import enumerate as enumerate_threads

import numpy as np
import pytest
from workshop import reversed_pairs

from heedful.data import encode_shards
from heedful.data.encode import PairEncoder, StoreOptions, cut_shards, open_store
from heedful.data.encode_shards import Worker
from heedful.data.pairs import Pair
from heedful.data.sources import CorpusConfig
from heedful.errors import DataError
from heedful.storage.manifest import NAME
from heedful.text.tokenizer import Tokenizer, TokenizerConfig
from heedful.text.train import train_tokenizer

OPTIONS = StoreOptions(max_length=6, keep_text=True)  # some pairs are longer
LINES = 95


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusConfig:
    (tmp_path / "pairs.tsv").write_text(reversed_pairs(LINES, 3))
    return CorpusConfig(tsv=str(tmp_path / "pairs.tsv"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    lines = [cell for line in reversed_pairs(50, 1).splitlines() for cell in line.split("\t")]
    return train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), lines, [])


def files_of(folder: Path) -> dict[str, bytes]:
    (store,) = (path for path in (folder / "tokens").iterdir() if path.is_dir())
    return {path.name: path.read_bytes() for path in sorted(store.iterdir())}


def test_shards_are_concatenated_to_the_store_that_one_process_writes(
    tmp_path: Path, corpus: CorpusConfig, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = np.array([3, 40])
    whole = open_store(corpus, (tokenizer, tokenizer), OPTIONS, dropped=dropped, cache=tmp_path / "whole")
    monkeypatch.setattr("heedful.data.encode.SHARD", 20)
    store = open_store(corpus, (tokenizer, tokenizer), OPTIONS, dropped=dropped, cache=tmp_path / "shards")
    assert files_of(tmp_path / "shards") == files_of(tmp_path / "whole")
    assert NAME in files_of(tmp_path / "shards")
    assert len(store) == len(whole) and 0 < len(store) == LINES - 2 - len(store.overlong) < LINES - 2
    assert [store.text(at) for at in range(len(store))] == [whole.text(at) for at in range(len(whole))]


def test_a_build_that_was_interrupted_continues_with_the_missing_shards(
    tmp_path: Path, corpus: CorpusConfig, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.data.encode.SHARD", 20)
    monkeypatch.setattr(encode_shards, "cores", lambda: 1)
    encode = Worker.encode
    encoded: list[str] = []

    def killed(worker: Worker, folder: Path, pairs: list[Pair]) -> None:
        if len(encoded) == 2:
            os.kill(worker.process.pid, signal.SIGKILL)
        encode(worker, folder, pairs)
        encoded.append(folder.name)

    monkeypatch.setattr(Worker, "encode", killed)
    with pytest.raises(DataError, match=r"ended with signal 9, 3 times at the same 20 pairs, the first in line 41"):
        open_store(corpus, (tokenizer, tokenizer), OPTIONS, cache=tmp_path / "cache")
    (work,) = (tmp_path / "cache" / "tokens").glob("*.shards")
    damaged = work / "shard-00000001" / "lines"
    damaged.chmod(0o644)
    damaged.write_bytes(damaged.read_bytes()[:-8])  # detected, and encoded again
    encoded[:] = ["the third one is not killed again"] * 3
    open_store(corpus, (tokenizer, tokenizer), OPTIONS, cache=tmp_path / "cache")
    assert encoded[3:] == [f"shard-0000000{number}" for number in (1, 2, 3, 4)]
    assert not work.exists()
    monkeypatch.setattr("heedful.data.encode.SHARD", 1000)
    open_store(corpus, (tokenizer, tokenizer), OPTIONS, cache=tmp_path / "whole")
    assert files_of(tmp_path / "cache") == files_of(tmp_path / "whole")


def test_the_shard_of_a_killed_worker_is_encoded_by_a_new_one(
    tmp_path: Path,
    corpus: CorpusConfig,
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = tmp_path / "whole"
    open_store(corpus, (tokenizer, tokenizer), OPTIONS, cache=whole)
    monkeypatch.setattr("heedful.data.encode.SHARD", 20)
    monkeypatch.setattr(encode_shards, "cores", lambda: 2)
    send, moments = Worker._send, iter([True, False, True, True, *[False] * 50])

    def killed(worker: Worker, content: bytes) -> None:
        kill = next(moments)
        send(worker, content[: len(content) // 2] if kill else content)  # killed while it reads, or before it answers
        if kill:
            os.kill(worker.process.pid, signal.SIGKILL)

    monkeypatch.setattr(Worker, "_send", killed)
    open_store(corpus, (tokenizer, tokenizer), OPTIONS, cache=tmp_path / "shards")
    assert files_of(tmp_path / "shards") == files_of(whole)
    assert caplog.text.count("ended with signal 9; its shard is encoded again") >= 2


def test_a_worker_that_cannot_write_reports_the_cause(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "file").write_text("")
    shard = tmp_path / "file" / "shard", [Pair(1, "w1", "w2")]
    with pytest.raises(FileExistsError):
        encode_shards.encode_items(iter([shard]), PairEncoder((tokenizer, tokenizer), OPTIONS), processes=1)


def test_a_worker_ends_silently_if_its_parent_ends_in_mid_send() -> None:
    content = pickle.dumps(None) + pickle.dumps((Path("shard"), ["pair"] * 9))[:-5]
    done = subprocess.run([sys.executable, "-m", "heedful.data.encode_worker"], input=content, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupted_build_ends_after_the_shards_that_are_encoded_now(
    tmp_path: Path, corpus: CorpusConfig, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heedful.data.encode.SHARD", 5)
    monkeypatch.setattr(encode_shards, "cores", lambda: 1)
    encode, encoded, interrupted = Worker.encode, [], Event()

    def interrupt(worker: Worker, folder: Path, pairs: list[Pair]) -> None:
        encode(worker, folder, pairs)
        encoded.append(folder.name)
        if len(encoded) == 3:
            signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
            assert interrupted.wait(10)

    monkeypatch.setattr(Worker, "encode", interrupt)
    with pytest.raises(KeyboardInterrupt):
        open_store(corpus, (tokenizer, tokenizer), OPTIONS, cache=tmp_path / "cache")
    interrupted.set()
    for thread in [one for one in enumerate_threads() if one.name == "encode"]:
        thread.join(10)
    assert encoded == ["shard-00000000", "shard-00000001", "shard-00000002"]


def test_a_process_can_end_while_shards_are_encoded_in_the_background() -> None:
    program = """
import threading
from heedful.data.encode_shards import in_background

begun = threading.Event()
in_background(lambda: (begun.set(), threading.Event().wait()))
begun.wait()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_an_error_while_reading_is_raised_after_the_shards_before_it(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def broken() -> Iterator[Pair]:
        yield from (Pair(number, "w1", "w2") for number in range(1, 4))
        raise DataError("line 4 cannot be read")

    with pytest.raises(DataError, match="line 4 cannot be read"):
        shards, encoder = cut_shards(broken(), 2), PairEncoder((tokenizer, tokenizer), OPTIONS)
        encode_shards.write_shards(tmp_path / "work", shards, encoder, processes=1)
    assert (tmp_path / "work" / "shard-00000000").is_dir()
