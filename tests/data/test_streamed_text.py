"""Streamed text has the tokens of a whole store, within a limit on the disk, and continues at any batch."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
from ranked import command, exit_codes, start_ranks

from heedful.data import encode_shards, streamed_text
from heedful.data.corpus_text import Passage
from heedful.data.streamed_text import StreamedPassage, StreamedText, open_streamed
from heedful.data.text_blocks import BlockShape
from heedful.data.text_store import TextStore, open_text
from heedful.storage import folders
from heedful.storage.folders import new_folder
from heedful.text import Tokenizer, TokenizerConfig, train_tokenizer

SHAPE, ROWS = BlockShape(width=9, stride=8), 4
LINES, SHARD = 240, 150  # characters
Batches = list[list[list[int]]]


def words(lines: int, first: int) -> str:
    """Lines of one to eight words, which differ from those of another `first`."""
    draw = Random(lines)
    return "".join(" ".join(f"w{first + draw.randrange(9)}" for _ in range(draw.randint(1, 8))) + "\n" for _ in range(lines))


def passage(folder: Path, lines: int = LINES) -> Passage:
    file = folder / f"{lines}.txt"
    if not file.exists():
        file.write_text(words(lines, 0 if lines == LINES else 20))
    return Passage(file)


def tokenizer() -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind="spaces", min_frequency=1), [words(LINES, 0), words(LINES, 20)])


def open_corpus(folder: Path, cache: str = "cache", lines: int = LINES) -> StreamedPassage:
    return open_streamed(passage(folder, lines), tokenizer(), folder / cache)


def open_one(folder: Path, cache: str = "cache") -> StreamedText:
    corpus = open_corpus(folder, cache)
    return StreamedText([corpus], SHAPE, [1.0], 1.0, limit(corpus, 4))


def open_mixed(folder: Path, cache: str = "cache") -> StreamedText:
    """Half of a small corpus and all of a large one: every window has the small one, and a part of the other."""
    small, large = open_corpus(folder, cache, 40), open_corpus(folder, cache)
    return StreamedText([small, large], SHAPE, [0.55, 1.0], 1.0, limit(large, 2))


def limit(corpus: StreamedPassage, windows: int) -> int:
    sizes = [shard.size for shard in corpus.facts]
    return 3 * max(max(sizes), sum(sizes) // windows)


class Direct:
    """Encodes in this process, which is faster for so little text; `test_encode_shards.py` tests the processes."""

    def __init__(self, encoder: bytes) -> None:
        self.encoder = pickle.loads(encoder)

    def encode(self, folder: Path, lines: Sequence[str]) -> None:
        with new_folder(folder) as temporary:
            self.encoder.write(temporary, lines)

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_text, "SHARD", SHARD)
    monkeypatch.setattr(encode_shards, "Worker", Direct)


def batches(text: StreamedText, epoch: int, start: int = 0, watch: Callable[[], None] = lambda: None) -> Batches:
    found = []
    for starts in text.plan(epoch, rows=ROWS, seed=3)[start:]:
        found.append(text.rows(starts, SHAPE.width).tolist())
        watch()
    return found


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("shard-*/*"))


def open_whole(folder: Path, lines: int = LINES) -> TextStore:
    return open_text([passage(folder, lines)], tokenizer(), folder / "whole")


def test_an_epoch_has_the_blocks_of_the_text_and_the_disk_stays_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = open_one(tmp_path)
    (corpus,) = text.corpora
    assert len(text.windows) >= 4
    left = {path.name for path in corpus.files.folder.iterdir()}
    assert left == {".lock", "index.json", "lengths"}, "what the first pass leaves"
    peak: list[int] = []

    def watch() -> None:
        assert text.windows.ahead is not None
        text.windows.ahead[1].result()
        peak.append(bytes_in(corpus.files.folder))

    cut, read = corpus.files.cut, list[int]()

    def recording() -> Iterator[Sequence[str]]:
        read.append(1)
        return cut()

    monkeypatch.setattr(corpus.files, "cut", recording)
    epochs = [batches(text, epoch, watch=watch) for epoch in (0, 1)]
    assert len(read) == 3, "an epoch reads the text once, and then its beginning for the next one"
    assert sum(shard.size for shard in corpus.facts) > limit(corpus, 4) >= max(peak) > 0
    assert epochs[0] != epochs[1] and batches(text, 0) == epochs[0]
    whole = open_whole(tmp_path)
    assert (text.sizes, text.lines, text.characters) == ([len(whole.ids)], whole.lines, whole.characters)
    for epoch, found in enumerate(epochs):
        starts = np.concatenate(text.plan(epoch, rows=ROWS, seed=3)[:])
        assert [row for batch in found for row in batch] == whole.ids[starts[:, None] + np.arange(SHAPE.width)].tolist()
        in_window = np.searchsorted(text.begins, starts, side="right") - 1
        assert np.array_equal(in_window, np.searchsorted(text.begins, starts + SHAPE.width - 1, side="right") - 1)
        for window, (size,) in enumerate(map(text.tokens_in, range(len(text.windows)))):
            own = starts[in_window == window]
            assert len(set((own - text.begins[window]) % SHAPE.stride)) == 1 and len(set(own.tolist())) == len(own)
            assert 0 <= (size - SHAPE.stride) // SHAPE.stride - len(own) < ROWS, "only blocks that fill no batch are left out"
            assert own.tolist() != sorted(own.tolist())


def test_corpora_are_mixed_by_weight_and_a_small_one_is_in_every_window(tmp_path: Path) -> None:
    text = open_mixed(tmp_path)
    windows = len(text.windows)
    assert windows >= 3 and text.windows.is_in_all == [True, False]
    blocks = (text.sizes[0] - SHAPE.stride) // SHAPE.stride
    parts = [(text.tokens_in(window)[1] - SHAPE.stride) // SHAPE.stride for window in range(windows)]
    assert text.counts() == [windows * round(0.55 * blocks / windows), sum(parts)]
    drawn: Counter[int] = Counter()
    for window in range(windows):
        starts = text.draw(window, seed=3, epoch=0)
        own = starts[starts < text.sizes[0]]
        assert [len(own), len(starts) - len(own)] == text.counts_in(window)
        drawn.update(own.tolist())
    assert drawn.total() == text.counts()[0] and max(drawn.values()) == 1, "each window has other blocks of the small corpus"
    small = set(open_whole(tmp_path, 40).ids.tolist())
    kinds = [len(small & set(row[:-1])) for batch in batches(text, 0) for row in batch]
    assert abs(sum(kind > 1 for kind in kinds) - text.counts()[0]) < windows * ROWS


@pytest.mark.parametrize("opened", [open_one, open_mixed])
def test_any_batch_can_be_the_first_and_nothing_before_its_window_is_encoded(
    opened: Callable[..., StreamedText], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = batches(opened(tmp_path), 1)
    encoded: list[Path] = []
    encode = Direct.encode

    def recording(worker: Direct, folder: Path, lines: Sequence[str]) -> None:
        encoded.append(folder)
        encode(worker, folder, lines)

    monkeypatch.setattr(Direct, "encode", recording)
    fresh = opened(tmp_path, "other")  # as on another machine, without a cache
    encoded.clear()
    last = len(fresh.windows) - 1
    start = int(fresh.plan(1, rows=ROWS, seed=3).ends[last - 1]) + 1
    assert batches(fresh, 1, start) == whole[start:] and start < len(whole)
    assert fresh.windows.ahead is not None
    fresh.windows.ahead[1].result()
    needed = {
        corpus.files.path(number)
        for window in (last, 0)
        for corpus, shards in zip(fresh.corpora, fresh.windows.windows[window], strict=True)
        for number in shards
    }
    assert set(encoded) == needed and len(encoded) == len(needed)


@pytest.mark.parametrize("opened", [open_one, open_mixed])
def test_two_processes_that_share_the_folder_have_the_same_batches(opened: Callable[..., StreamedText], tmp_path: Path) -> None:
    """Two texts take the place of the processes: their locks are on different open files. One is a window behind."""
    texts = opened(tmp_path), opened(tmp_path)
    plans = [text.plan(0, rows=ROWS, seed=3) for text in texts]
    behind = int(plans[0].ends[0]) + 1
    found: tuple[Batches, Batches] = [], []
    for step in range(len(plans[0]) + behind):
        for text, plan, at, rows in zip(texts, plans, (step, step - behind), found, strict=True):
            if 0 <= at < len(plan):
                rows.append(text.rows(plan[at], SHAPE.width).tolist())
    assert found[0] == found[1] == batches(opened(tmp_path), 0)


RECIPE = """\
[data]
form = "text"
train = [{{ file = "{folder}/240.txt" }}, {{ file = "{folder}/60.txt", weight = 0.5 }}]
valid = {{ file = "{folder}/60.txt" }}
block = 16
batch = 8
max_store_megabytes = 1

[tokenizer]
kind = "characters"

[model]
family = "gpt"
dim = 16
layers = 1
heads = 2
position = "rotary"
dropout = 0.0

[task]
name = "language"
samples = 0

[training]
steps = 16
save_every = 3
validate_every = 8
report_every = 1
"""


def test_a_streamed_run_that_continues_from_a_checkpoint_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two corpora, on one process and on two; the second run has no cache, as on another machine."""
    monkeypatch.setattr("heedful.data.windows.WINDOWS", 330)  # of 1 MB, so that a window has few shards
    monkeypatch.setattr(streamed_text, "SHARD", 500)
    passage(tmp_path), passage(tmp_path, 60)
    recipe, run = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(RECIPE.format(folder=tmp_path))
    weights, losses = [], []
    for cache, processes in (("first", 1), ("second", 1), ("third", 2)):
        monkeypatch.setenv("HEED_CACHE", str(tmp_path / cache))
        assert exit_codes(start_ranks(processes, command("train", recipe, "--run", run))) == [0] * processes
        weights.append((run / "checkpoints" / "step-16" / "model.safetensors").read_bytes())
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses.append([record["loss"] for record in records if record["kind"] == "train"])
        indexes = {path.parent: len(json.loads(path.read_text())) for path in (tmp_path / cache).glob("streams/*/index.json")}
        large = max(indexes, key=lambda folder: indexes[folder])
        assert len(list(large.glob("shard-*"))) < indexes[large], "an epoch has more than three windows"
        for step in (15, 16):
            folders.remove(run / "checkpoints" / f"step-{step}")
        folders.remove(run / "checkpoints" / "best")
    assert weights[0] == weights[1] != weights[2]
    assert losses[0] == losses[1] == pytest.approx(losses[2], rel=1e-4)
