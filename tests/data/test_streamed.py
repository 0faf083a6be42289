"""A streamed corpus has the pairs of the whole store, within a limit on the disk, and continues at any batch."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from workshop import heed, reversed_pairs, write_recipe

from heedful.data import encode_shards, streamed
from heedful.data.encode import StoreOptions, open_store, write_store
from heedful.data.pairs import Pair
from heedful.data.sources import CorpusConfig
from heedful.data.streamed import StreamedStore, make_windows, open_streamed
from heedful.errors import ConfigError
from heedful.storage import folders
from heedful.storage.folders import new_folder
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer

OPTIONS = StoreOptions(max_length=8, keep_text=True)  # some pairs are longer
LINES, SHARD = 160, 20
DROPPED = np.array([2, 100])
Batches = list[list[tuple[list[int], list[int]]]]


def open_small(folder: Path, cache: str = "cache", windows: int = 4) -> StreamedStore:
    """A streamed store of about this many windows."""
    text = reversed_pairs(LINES, 3)
    if not (folder / "pairs.tsv").exists():
        (folder / "pairs.tsv").write_text(text)
    tokenizer = train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), text.split("\t"), [])
    corpus = CorpusConfig(tsv=str(folder / "pairs.tsv"))
    store = open_streamed(corpus, (tokenizer, tokenizer), OPTIONS, dropped=DROPPED, max_bytes=10**9, cache=folder / cache)
    return StreamedStore(store.folder, store.read, store.setup, store.facts, limit(store, windows))


def limit(store: StreamedStore, windows: int) -> int:
    sizes = [shard.size for shard in store.facts]
    return 3 * max(max(sizes), sum(sizes) // windows)


class Direct:
    """Encodes in this process, which is faster for so little text; `test_encode_shards.py` tests the processes."""

    def __init__(self, setup: bytes) -> None:
        self.setup = pickle.loads(setup)

    def encode(self, folder: Path, pairs: list[Pair]) -> None:
        with new_folder(folder) as temporary:
            write_store(temporary, pairs, *self.setup)

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "SHARD", SHARD)
    monkeypatch.setattr(encode_shards, "Worker", Direct)


def batches(store: StreamedStore, epoch: int, start: int = 0, watch: Callable[[], None] = lambda: None) -> Batches:
    found = []
    plan = store.plan(epoch, budget=60, seed=3, pad_to_multiple_of=1)
    for at in range(start, len(plan)):
        found.append([(store.source(i).tolist(), store.target(i).tolist()) for i in plan[at].tolist()])
        watch()
    return found


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("shard-*/*"))


def test_an_epoch_has_every_pair_once_and_the_disk_stays_within_the_limit(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    assert len(store.windows) >= 4
    assert not list(store.folder.glob("shard-*")), "the first pass leaves only the index"
    peak: list[int] = []

    def watch() -> None:
        assert store.ahead is not None
        store.ahead[1].result()
        peak.append(bytes_in(store.folder))

    epochs = [batches(store, epoch, watch=watch) for epoch in (0, 1)]
    assert sum(shard.size for shard in store.facts) > limit(store, 4) >= max(peak) > 0
    (encoder, _), corpus = store.setup[0], CorpusConfig(tsv=str(tmp_path / "pairs.tsv"))
    whole = open_store(corpus, (encoder, encoder), OPTIONS, dropped=DROPPED, cache=tmp_path / "whole")
    expected = sorted((whole.source(at).tolist(), whole.target(at).tolist()) for at in range(len(whole)))
    for epoch in epochs:
        assert sorted(pair for batch in epoch for pair in batch) == expected
    assert epochs[0] != epochs[1]
    assert (len(store), store.overlong) == (len(whole), len(whole.overlong))
    assert sorted(map(store.text, range(len(store)))) == sorted(map(whole.text, range(len(whole))))


def test_any_batch_can_be_the_first_and_nothing_before_its_window_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = batches(open_small(tmp_path), 1)
    encoded: list[str] = []
    encode = Direct.encode

    def recording(worker: Direct, folder: Path, pairs: list[Pair]) -> None:
        encoded.append(folder.name)
        encode(worker, folder, pairs)

    monkeypatch.setattr(Direct, "encode", recording)
    fresh = open_small(tmp_path, "other")  # as on another machine, without a cache
    encoded.clear()
    last = len(fresh.windows) - 1
    start = int(fresh.batch_counts(60, 1)[:last].sum()) + 1
    assert batches(fresh, 1, start) == whole[start:]
    assert fresh.ahead is not None
    fresh.ahead[1].result()
    needed = {fresh.path(number).name for window in (last, 0) for number in fresh.windows[window]}
    assert set(encoded) == needed and len(encoded) == len(needed)


def test_two_processes_that_share_the_folder_have_the_same_batches(tmp_path: Path) -> None:
    """Two stores take the place of the processes: their locks are on different open files. One is a window behind."""
    stores = open_small(tmp_path), open_small(tmp_path)
    plans = [store.plan(0, budget=60, seed=3, pad_to_multiple_of=1) for store in stores]
    behind = int(plans[0].ends[0]) + 1
    found: tuple[Batches, Batches] = [], []
    for step in range(len(plans[0]) + behind):
        for store, plan, at, rows in zip(stores, plans, (step, step - behind), found, strict=True):
            if 0 <= at < len(plan):
                rows.append([(store.source(i).tolist(), store.target(i).tolist()) for i in plan[at].tolist()])
    assert found[0] == found[1] == batches(open_small(tmp_path), 0)


def test_a_limit_below_three_shards_is_an_error() -> None:
    assert make_windows([4, 5, 3, 9, 1], 30) == [range(2), range(2, 3), range(3, 5)]
    with pytest.raises(ConfigError, match=r"max_store_megabytes: given 3e-05, expected at least"):
        make_windows([4, 11], 30)


def test_a_streamed_run_that_continues_from_a_checkpoint_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed, "WINDOWS", 400)  # of 1 MB: three in an epoch, each of a shard
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    options = ["data.max_store_megabytes=1", "data.batch_tokens=64", "training.steps=8", "training.save_every=3"]
    weights = []
    for cache in ("first", "second"):
        monkeypatch.setenv("HEED_CACHE", str(tmp_path / cache))
        assert heed("train", recipe, *options, "--run", run) == 0
        weights.append((run / "checkpoints" / "step-8" / "model.safetensors").read_bytes())
        for name in ("step-6", "step-8", "best"):
            folders.remove(run / "checkpoints" / name)
    assert weights[0] == weights[1]
