"""Streamed corpora have the pairs of whole stores, within a limit on the disk, and continue at any batch."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ranked import command, exit_codes, start_ranks
from workshop import heed, reversed_pairs, write_pairs, write_recipe

from heedful.data import encode_shards, streamed
from heedful.data.encode import StoreOptions, open_store
from heedful.data.encode_shards import in_background
from heedful.data.pairs import Pair
from heedful.data.sources import CorpusConfig
from heedful.data.store import JoinedStore, PairStore
from heedful.data.streamed import StreamedCorpus, StreamedStore, open_streamed
from heedful.data.windows import make_windows
from heedful.errors import ConfigError
from heedful.storage import folders
from heedful.storage.folders import new_folder
from heedful.storage.locks import locked
from heedful.text.tokenizer import Tokenizer, TokenizerConfig
from heedful.text.train import train_tokenizer

OPTIONS = StoreOptions(max_length=8, keep_text=True)  # some pairs are longer
LINES, SHARD = 160, 20
DROPPED = np.array([2, 100])
Batches = list[list[tuple[list[int], list[int]]]]


def tokenizers() -> tuple[Tokenizer, Tokenizer]:
    lines = reversed_pairs(LINES, 3).split("\t")
    tokenizer = train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), lines, [])
    return tokenizer, tokenizer


def open_corpus(folder: Path, cache: str = "cache", lines: int = LINES) -> StreamedCorpus:
    file, text = folder / f"{lines}.tsv", reversed_pairs(lines, 3)
    if not file.exists():
        file.write_text(text)
    corpus = CorpusConfig(tsv=str(file))
    return open_streamed(corpus, tokenizers(), OPTIONS, dropped=DROPPED, cache=folder / cache)


def open_small(folder: Path, cache: str = "cache", windows: int = 4) -> StreamedStore:
    """A streamed store of about this many windows."""
    corpus = open_corpus(folder, cache)
    return StreamedStore([corpus], [1.0], limit(corpus, windows))


def open_mixed(folder: Path, cache: str = "cache") -> StreamedStore:
    """Half of a small corpus and all of a large one: every window has the small one, and a part of the other."""
    small, large = open_corpus(folder, cache, 40), open_corpus(folder, cache)
    return StreamedStore([small, large], [0.55, 1.0], limit(large, 2))


def limit(corpus: StreamedCorpus, windows: int) -> int:
    sizes = [shard.size for shard in corpus.facts]
    return 3 * max(max(sizes), sum(sizes) // windows)


class Direct:
    """Encodes in this process, which is faster for so little text; `test_encode_shards.py` tests the processes."""

    def __init__(self, encoder: bytes) -> None:
        self.encoder = pickle.loads(encoder)

    def encode(self, folder: Path, pairs: list[Pair]) -> None:
        with new_folder(folder) as temporary:
            self.encoder.write(temporary, pairs)

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


def open_whole(folder: Path, lines: int = LINES) -> PairStore:
    corpus = CorpusConfig(tsv=str(folder / f"{lines}.tsv"))
    return open_store(corpus, tokenizers(), OPTIONS, dropped=DROPPED, cache=folder / "whole")


def ids_of(whole: PairStore) -> Counter[tuple[tuple[int, ...], tuple[int, ...]]]:
    return Counter((tuple(whole.source(at).tolist()), tuple(whole.target(at).tolist())) for at in range(len(whole)))


def test_an_epoch_has_every_pair_once_and_the_disk_stays_within_the_limit(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    (corpus,) = store.corpora
    assert len(store.windows) >= 4
    assert {path.name for path in corpus.files.folder.iterdir()} == {".lock", "index.json", "lengths"}, (
        "what the first pass leaves"
    )
    peak: list[int] = []

    def watch() -> None:
        assert store.windows.ahead is not None
        store.windows.ahead[1].result()
        peak.append(bytes_in(corpus.files.folder))

    epochs = [batches(store, epoch, watch=watch) for epoch in (0, 1)]
    assert sum(shard.size for shard in corpus.facts) > limit(corpus, 4) >= max(peak) > 0
    whole = open_whole(tmp_path)
    expected = sorted((whole.source(at).tolist(), whole.target(at).tolist()) for at in range(len(whole)))
    for epoch in epochs:
        assert sorted(pair for batch in epoch for pair in batch) == expected
    assert epochs[0] != epochs[1]
    assert (len(store), store.overlong) == (len(whole), len(whole.overlong))
    assert sorted(map(store.text, range(len(store)))) == sorted(map(whole.text, range(len(whole))))


def test_corpora_are_mixed_by_weight_and_a_small_one_is_in_every_window(tmp_path: Path) -> None:
    store = open_mixed(tmp_path)
    (small, large), windows = store.corpora, len(store.windows)
    assert windows >= 3 and store.windows.is_in_all == [True, False]
    assert store.epoch_counts() == [windows * round(0.55 * len(small) / windows), len(large)]
    tokens = [sum(shard.target_tokens for shard in corpus.facts) for corpus in store.corpora]
    assert store.epoch_tokens() == round(tokens[0] * store.epoch_counts()[0] / len(small) + tokens[1])
    drawn: Counter[int] = Counter()
    for epoch in range(4):
        for window in range(windows):
            part = store.draw(window, seed=3, epoch=epoch)
            of_small = part[part < len(small)].tolist()
            assert len(of_small) == round(0.55 * len(small) / windows)
            drawn.update(of_small)
            rest = store.sizes_in(window)[1]
            assert sorted(part[part >= len(small)].tolist()) == list(range(len(small), len(small) + rest))
    assert len(drawn) == len(small) and max(drawn.values()) - min(drawn.values()) <= 1
    seen = Counter((tuple(source), tuple(target)) for batch in batches(store, 0) for source, target in batch)
    assert seen.total() == sum(store.epoch_counts())
    of_large = ids_of(open_whole(tmp_path))
    assert of_large <= seen and seen - of_large <= ids_of(open_whole(tmp_path, 40))


@pytest.mark.parametrize("opened", [open_small, open_mixed])
def test_any_batch_can_be_the_first_and_nothing_before_its_window_is_encoded(
    opened: Callable[..., StreamedStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = batches(opened(tmp_path), 1)
    encoded: list[Path] = []
    encode = Direct.encode

    def recording(worker: Direct, folder: Path, pairs: list[Pair]) -> None:
        encoded.append(folder)
        encode(worker, folder, pairs)

    monkeypatch.setattr(Direct, "encode", recording)
    fresh = opened(tmp_path, "other")  # as on another machine, without a cache
    encoded.clear()
    last = len(fresh.windows) - 1
    start = int(fresh.batch_counts(1, budget=60, seed=3, pad_to_multiple_of=1)[:last].sum()) + 1
    assert batches(fresh, 1, start) == whole[start:]
    assert fresh.windows.ahead is not None
    fresh.windows.ahead[1].result()
    needed = {
        corpus.files.path(number)
        for window in (last, 0)
        for corpus, shards in zip(fresh.corpora, fresh.windows.windows[window], strict=True)
        for number in shards
    }
    assert set(encoded) == needed and len(encoded) == len(needed)


@pytest.mark.parametrize("opened", [open_small, open_mixed])
def test_two_processes_that_share_the_folder_have_the_same_batches(
    opened: Callable[..., StreamedStore], tmp_path: Path
) -> None:
    """Two stores take the place of the processes: their locks are on different open files. One is a window behind."""
    stores = opened(tmp_path), opened(tmp_path)
    plans = [store.plan(0, budget=60, seed=3, pad_to_multiple_of=1) for store in stores]
    behind = int(plans[0].ends[0]) + 1
    found: tuple[Batches, Batches] = [], []
    for step in range(len(plans[0]) + behind):
        for store, plan, at, rows in zip(stores, plans, (step, step - behind), found, strict=True):
            if 0 <= at < len(plan):
                rows.append([(store.source(i).tolist(), store.target(i).tolist()) for i in plan[at].tolist()])
    assert found[0] == found[1] == batches(opened(tmp_path), 0)


def test_a_window_that_is_on_the_disk_is_opened_while_another_process_encodes(tmp_path: Path) -> None:
    ahead, behind = open_small(tmp_path), open_small(tmp_path)
    ahead.open_window(0)
    assert ahead.windows.ahead is not None
    ahead.windows.ahead[1].result()
    with locked(ahead.corpora[0].files.folder / ".lock", wait=False):
        opened: list[int] = []
        in_background(lambda: opened.append(len(behind.open_window(0)))).result(10)
    assert opened == behind.sizes_in(0)


def test_windows_are_few_and_fit_into_a_third_of_the_limit() -> None:
    assert make_windows([[4, 5, 3, 9, 1]], 30, "a shard") == [(range(1),), (range(1, 3),), (range(3, 5),)]
    assert make_windows([[2], [4, 4, 4, 4]], 30, "a shard") == [(range(1), range(2)), (range(1), range(2, 4))]
    assert make_windows([[6], [4, 4, 4, 4]], 30, "a shard")[:2] == [(range(0), range(1)), (range(0), range(1, 2))]
    assert make_windows([[2], [3]], 30, "a shard") == [(range(1), range(1))]


def test_the_least_size_of_the_store_is_whole_megabytes_and_is_enough() -> None:
    for sizes, given, least in (([[4, 11]], 8, 33), ([[1] * 4, [9] * 4], 21, 39), ([[0.1]], 0.1, 1)):
        shards = [[round(size * 10**6) for size in corpus] for corpus in sizes]
        with pytest.raises(
            ConfigError, match=rf"given {given}, expected at least {least}, because 3 windows are on the disk at a time, "
        ):
            make_windows(shards, round(given * 10**6), "a shard")
        assert make_windows(shards, least * 10**6, "a shard")


def test_a_streamed_run_that_continues_from_a_checkpoint_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two corpora, on one process and on two."""
    monkeypatch.setattr("heedful.data.windows.WINDOWS", 250)  # of 1 MB: three in an epoch, each of a shard of either corpus
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    corpora = (tmp_path / "pairs.tsv", 1), (write_pairs(tmp_path / "more.tsv", 30, 2), 0.5)
    mixed = "data.train=[" + ", ".join(f"{{tsv='{path}', weight={weight}}}" for path, weight in corpora) + "]"
    options = [mixed, "data.max_store_megabytes=1", "data.batch_tokens=64", "training.steps=8", "training.save_every=3"]
    weights, losses = [], []
    for cache, processes in (("first", 1), ("second", 1), ("third", 2)):
        monkeypatch.setenv("HEED_CACHE", str(tmp_path / cache))
        train = command("train", recipe, *options, "model.dropout=0", "--run", run)
        assert exit_codes(start_ranks(processes, train)) == [0] * processes
        weights.append((run / "checkpoints" / "step-8" / "model.safetensors").read_bytes())
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses.append([record["loss"] for record in records if record["kind"] == "train"])
        for name in ("step-6", "step-8", "best"):
            folders.remove(run / "checkpoints" / name)
    assert weights[0] == weights[1] != weights[2]
    assert losses[0] == losses[1] == pytest.approx(losses[2], rel=1e-4)


def test_a_continued_run_opens_no_window_before_that_of_its_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.data.windows.WINDOWS", 250)  # of 1 MB: four in an epoch
    monkeypatch.setenv("HEED_CACHE", str(tmp_path / "cache"))
    opened: list[int] = []
    open_window = StreamedStore.open_window

    def recording(store: StreamedStore, window: int) -> JoinedStore:
        opened.append(window)
        return open_window(store, window)

    monkeypatch.setattr(StreamedStore, "open_window", recording)
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    options = ["data.max_store_megabytes=1", "data.batch_tokens=64", "data.prefetch=0", "training.schedule.name=constant"]
    windows = []
    for steps in (3, 5):
        opened.clear()
        assert heed("train", recipe, *options, f"training.steps={steps}", "--run", run) == 0
        windows.append(list(opened))
    assert windows[0][0] == 0 < windows[1][0] and windows[1][0] in (windows[0][-1], windows[0][-1] + 1)
