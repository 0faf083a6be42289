"""Data preparation of `heed train` against the number of pairs; each corpus in its own process.

    python benchmarks/scaling_data.py PAIRS.tsv           one corpus: seconds and peak memory of each stage, as JSON

    learn     train a BPE tokenizer on at most a million pairs
    check     read every line, find duplicates and leaks
    encode    text -> token store
    open      open the finished store and verify it against its manifest
    plan      plan one epoch of batches of 4096 tokens

The peak is that of the whole process with torch loaded, as in training. `core_seconds` is the CPU time of all cores, which is
more reliable than wall time on a shared machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import memory
import torch  # noqa: F401  (part of the memory of training)

from heedful.data.batching import Index, Lengths, plan_epoch
from heedful.data.check import check_corpora
from heedful.data.encode import open_store
from heedful.data.grammar import generate
from heedful.data.mixing import mix_corpora
from heedful.data.pairs import pairs
from heedful.data.sources import CorpusConfig
from heedful.data.splits import Splits
from heedful.data.store import PairStore
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer

VOCAB, BUDGET, TOKENIZER_PAIRS = 8000, 4096, 1_000_000
PAIRS = (10_000, 100_000, 1_000_000, 10_000_000)
QUICK_PAIRS = 500
Result = TypeVar("Result")


def against_pairs(most: int, corpora: Path) -> dict[str, Any]:
    """Corpora of up to `most` pairs; each is a prefix of the next, whose later sentences are longer."""
    points = []
    for count in [count for count in PAIRS if count < most] + [most]:
        path = corpora / f"pairs-{count}.tsv"
        generated = None if path.exists() else write_pairs(path, count)
        child = subprocess.run([sys.executable, __file__, path], stdout=subprocess.PIPE, check=True, text=True)
        results = json.loads(child.stdout)
        stages = results["stages"]
        results["generate_core_seconds"] = generated
        results["sentences_per_second"] = round(2 * count / stages["encode"]["core_seconds"], 1)
        results["peak_bytes"] = max(stage["peak_bytes"] for stage in stages.values())
        points.append({"value": count, **results})
        stage_texts = "  ".join(
            f"{name} {one['core_seconds']:.1f} s, {one['peak_bytes'] / 1e6:.0f} MB" for name, one in stages.items()
        )
        print(f"data: {count:,} pairs  {stage_texts}", file=sys.stderr)
    return {"points": points}


def write_pairs(path: Path, count: int) -> float:
    """Generate pairs and return the CPU seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    started = time.process_time()
    with unfinished.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{pair.source}\t{pair.target}\n" for pair in generate("train", count))
    unfinished.rename(path)
    return round(time.process_time() - started, 2)


def prepare(corpus: CorpusConfig) -> dict[str, Any]:
    stages: dict[str, dict[str, float]] = {}
    start = memory.reset_peak()

    def timed(name: str, work: Callable[[], Result]) -> Result:
        memory.reset_peak()
        started, began_core = time.perf_counter(), time.process_time()
        result = work()
        seconds, core_seconds = time.perf_counter() - started, time.process_time() - began_core
        stages[name] = {"seconds": round(seconds, 4), "core_seconds": round(core_seconds, 4), "peak_bytes": memory.peak()}
        return result

    def text() -> Iterator[str]:
        for pair in islice(pairs(corpus), TOKENIZER_PAIRS):
            yield from (pair.source, pair.target)

    tokenizer = timed("learn", lambda: train_tokenizer(TokenizerConfig(vocab=VOCAB), text()))
    report = timed("check", lambda: check_corpora(Splits((corpus,), (), ())))
    with tempfile.TemporaryDirectory() as folder:

        def store() -> PairStore:
            return open_store(corpus, (tokenizer, tokenizer), dropped=report.dropped("train")[0], cache=Path(folder))

        timed("encode", store)
        encoded = timed("open", store)
        lengths = encoded.source_lengths, encoded.target_lengths
        batches = timed("plan", lambda: plan(*lengths))
    tokens = sum(int(side.sum()) for side in lengths)
    return {"start_bytes": start, "stages": stages, "tokens": tokens, "batches": len(batches)}


def plan(source_lengths: Lengths, target_lengths: Lengths) -> Sequence[Index]:
    everything = mix_corpora([len(source_lengths)], [1.0], seed=1, epoch=0)
    return plan_epoch(source_lengths, target_lengths, budget=BUDGET, seed=1, epoch=0, indices=everything)


if __name__ == "__main__":
    print(json.dumps(prepare(CorpusConfig(tsv=sys.argv[1]))))
