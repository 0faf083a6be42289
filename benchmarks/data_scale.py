"""Data preparation at scale: generated pairs from raw text to the first update of a model.

    python benchmarks/data_scale.py --pairs 250000 1000000 10000000 --text /tmp/pairs.tsv

For each number of pairs, in a process of its own: seconds of each stage, the processor time of the process and its workers,
and the peak of its memory in that stage, sampled every 20 ms from /proc. Anonymous memory (RssAnon) is what the process needs;
mapped pages of files (RssFile) are a cache that the system takes back when memory is short. Encoding is also measured on one
core, and `data.max_store_megabytes` with the number of bytes on the disk. Bytes per pair are the slope of the peaks; figures
for 100 million pairs are extrapolated.

--text: a file of generated pairs, which is written if it does not exist; each measurement reads its first lines
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
from peers.machine import machine_info

VOCABULARY, BLOCK = 30_000, 100_000
GOAL = 100_000_000
STREAMED_PAIRS, STREAMED_MEGABYTES = 1_000_000, 30
PEAKS = ("peak_anonymous_bytes", "peak_mapped_file_bytes", "peak_anonymous_bytes_of_a_worker")
RECIPE = """\
[data]
train = {{ tsv = "{folder}/train.tsv" }}
valid = {{ tsv = "{folder}/valid.tsv" }}
batch_tokens = 2048
[tokenizer]
kind = "bpe"
vocab = 8000
[model]
dim = 64
layers = 2
heads = 2
feed_forward = 128
"""


def write_pairs(path: Path, count: int, seed: int) -> None:
    """Sentences of 5 to 25 words with Zipfian frequencies, and the same words spelled backwards in reverse order."""
    draw = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(draw.choice(letters, draw.integers(2, 10))) for _ in range(VOCABULARY)]
    backwards = [word[::-1] for word in words]
    shares = 1 / np.arange(1, VOCABULARY + 1)
    edges = np.cumsum(shares / shares.sum())
    with path.open("w") as file:
        for start in range(0, count, BLOCK):
            lengths = draw.integers(5, 26, min(BLOCK, count - start))
            chosen = np.minimum(np.searchsorted(edges, draw.random(lengths.sum())), VOCABULARY - 1).tolist()
            at = 0
            for length in lengths.tolist():
                row = chosen[at : at + length]
                at += length
                source, target = " ".join([words[i] for i in row]), " ".join([backwards[i] for i in reversed(row)])
                file.write(f"{source}\t{target}\n")


def cpu_seconds() -> float:
    """Processor time of this process and of the workers that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def memory_of(process: str) -> tuple[int, int]:
    """RssAnon and RssFile of a process, in bytes; zeros if it has ended."""
    found = dict(re.findall(r"(RssAnon|RssFile):\s+(\d+) kB", read(Path(f"/proc/{process}/status"))))
    return int(found.get("RssAnon", 0)) << 10, int(found.get("RssFile", 0)) << 10


def workers() -> list[str]:
    """The processes that encode."""
    tasks = Path("/proc/self/task").glob("*/children")
    return [child for path in tasks for child in read(path).split() if "encode_worker" in read(Path(f"/proc/{child}/cmdline"))]


def read(path: Path) -> str:
    """The text of a file in /proc; nothing if its process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


class Peaks:
    """Peaks while a block runs: memory of this process, anonymous memory of its largest worker, bytes in a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder, self.ended = folder, Event()
        self.anonymous = self.mapped = self.worker = self.disk = 0
        self.thread = Thread(target=self.sample)

    def sample(self) -> None:
        while True:
            anonymous, mapped = memory_of("self")
            self.anonymous, self.mapped = max(self.anonymous, anonymous), max(self.mapped, mapped)
            self.worker = max([self.worker, *(memory_of(child)[0] for child in workers())])
            if self.folder is not None:
                self.disk = max(self.disk, bytes_in(self.folder))
            if self.ended.wait(0.02):
                return

    def __enter__(self) -> Peaks:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()


def bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # just removed
            continue
    return total


class Stages:
    """Seconds, processor time and peak memory of each stage."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, float]] = {}

    def measure(self, name: str, function: Callable[[], Any]) -> Any:
        ctypes.CDLL(None).malloc_trim(0)  # memory that is allocated again is counted again
        before, cpu, started = memory_of("self")[0], cpu_seconds(), time.monotonic()
        with Peaks() as peaks:
            result = function()
        seconds, used = time.monotonic() - started, cpu_seconds() - cpu
        self.rows[name] = {
            "seconds": round(seconds, 2),
            "cpu_seconds": round(used, 2),
            "cores_used": round(used / seconds, 2),
            "anonymous_bytes_before": before,
            "peak_anonymous_bytes": peaks.anonymous,
            "peak_mapped_file_bytes": peaks.mapped,
            "peak_anonymous_bytes_of_a_worker": peaks.worker,
        }
        return result


def prepare(folder: Path, pairs: int) -> dict[str, Any]:
    """Raw text to the first update, in this process; the cache of token stores is empty."""
    import torch

    from heedful.data.encode_shards import cores
    from heedful.runs.build import data_of, make_model, make_task, make_tokenizers
    from heedful.runs.config import read_run

    torch.set_num_threads(1)
    run = read_run(folder / "recipe.toml").config
    data, stages = data_of(run), Stages()
    started, start_bytes = time.monotonic(), memory_of("self")[0]
    report = stages.measure("check", data.check)
    tokenizers = stages.measure("tokenizer", lambda: make_tokenizers(run, folder, data))
    corpora = stages.measure("encode", lambda: data.prepare(tokenizers, report))
    model = make_model(run, len(tokenizers[0]), len(tokenizers[1]))
    task = make_task(run, model, tokenizers, corpora)

    def first_update() -> None:
        stream = task.stream(0, 0)
        objective = task.loss(model, next(stream).batch)
        (objective.minimize.total / objective.minimize.count).backward()  # type: ignore[no-untyped-call]
        stream.close()

    stages.measure("first_update", first_update)
    return {
        "pairs": pairs,
        "text_bytes": (folder / "train.tsv").stat().st_size,
        "seconds": round(time.monotonic() - started, 1),
        "workers": cores(),
        "pairs_per_cpu_second": round(pairs / sum(row["cpu_seconds"] for row in stages.rows.values())),
        "pairs_per_cpu_second_encoding": round(pairs / stages.rows["encode"]["cpu_seconds"]),
        "pairs_per_second_encoding": round(pairs / stages.rows["encode"]["seconds"]),
        "anonymous_bytes_at_start": start_bytes,
        **{peak: max(row[peak] for row in stages.rows.values()) for peak in PEAKS},
        "store_bytes": bytes_in(Path(os.environ["HEED_CACHE"])),
        "stages": stages.rows,
    }


def stream(folder: Path, pairs: int) -> dict[str, Any]:
    """An epoch of batches with `data.max_store_megabytes`: peaks of memory and of bytes on the disk."""
    from heedful.data.streamed import StreamedStore
    from heedful.runs.build import data_of, make_tokenizers
    from heedful.runs.config import read_run

    run = read_run(folder / "recipe.toml", [f"data.max_store_megabytes={STREAMED_MEGABYTES}"]).config
    data = data_of(run)
    report = data.check()
    tokenizers = make_tokenizers(run, folder, data)
    started = time.monotonic()
    store = data.prepare(tokenizers, report).train
    assert isinstance(store, StreamedStore)
    indexed, used = time.monotonic() - started, 0
    cache = Path(os.environ["HEED_CACHE"])
    ctypes.CDLL(None).malloc_trim(0)
    before = memory_of("self")[0]
    with Peaks(cache) as peaks:
        for batch in store.plan(0, budget=run.data.batch_tokens, seed=1, pad_to_multiple_of=1):
            used += sum(len(store.target(index)) > 0 for index in batch.tolist())
    return {
        "pairs": pairs,
        "pairs_in_batches": used,
        "max_store_megabytes": STREAMED_MEGABYTES,
        "bytes_of_all_shards": sum(shard.size for corpus in store.corpora for shard in corpus.facts),
        "windows": len(store.windows),
        "seconds_of_index": round(indexed, 1),
        "seconds_of_epoch": round(time.monotonic() - started - indexed, 1),
        "peak_bytes_on_disk": peaks.disk,
        "anonymous_bytes_before": before,
        "peak_anonymous_bytes": peaks.anonymous,
        "peak_mapped_file_bytes": peaks.mapped,
    }


def measure(text: Path, pairs: int, *, one_core: bool = False, streamed: bool = False) -> dict[str, Any]:
    """`prepare` or `stream` in a new process, with all cores or with one."""
    with tempfile.TemporaryDirectory(dir=text.parent) as name:
        folder = Path(name)
        with text.open() as lines, (folder / "train.tsv").open("w") as file:
            file.writelines(islice(lines, pairs))
        write_pairs(folder / "valid.tsv", 100, 2)
        (folder / "recipe.toml").write_text(RECIPE.format(folder=folder))
        command = [sys.executable, __file__, "--child", str(folder), "--pairs", str(pairs)]
        command += ["--streamed"] if streamed else []
        if one_core:
            command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command]
        environment = os.environ | {"HEED_CACHE": str(folder / "cache")}
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result


def extrapolate(points: list[dict[str, Any]], key: str) -> tuple[float, float]:
    """Slope and intercept of the least-squares line through the points."""
    slope, intercept = np.polyfit([point["pairs"] for point in points], [point[key] for point in points], 1)
    return float(slope), float(intercept)


def summarize(points: list[dict[str, Any]]) -> dict[str, Any]:
    """The points, and what a straight line through them gives for GOAL pairs."""
    if len(points) < 2:
        return {"points": points}
    lines = {key: extrapolate(points, key) for key in ("seconds", "store_bytes", *PEAKS[:2])}
    goal = {"pairs": GOAL, "extrapolated": True, "from_points": [point["pairs"] for point in points]}
    return {
        "points": points,
        "bytes_per_pair": {key: round(slope, 1) for key, (slope, _) in lines.items() if key != "seconds"},
        "goal": goal | {key: round(base + slope * GOAL) for key, (slope, base) in lines.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[250_000, 500_000, 1_000_000])
    parser.add_argument("--text", type=Path, help="file of generated pairs")
    parser.add_argument("--add", action="store_true", help="add the points to those of the output file")
    parser.add_argument("--conditions", default="the machine did nothing else", help="stored with the points")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--streamed", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "data_scale.json")
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps((stream if options.streamed else prepare)(options.child, options.pairs[0])))
        return
    with tempfile.TemporaryDirectory() as folder:
        text = options.text or Path(folder) / "pairs.tsv"
        if not text.exists():
            write_pairs(text, max(options.pairs), 1)
        points = [measure(text, pairs) | {"conditions": options.conditions} for pairs in options.pairs]
        if options.add:
            result = json.loads(options.output.read_text())
            points = sorted([*result["points"], *points], key=lambda point: int(point["pairs"]))
        else:
            result = {
                "one_core": measure(text, options.pairs[0], one_core=True),
                "streamed": measure(text, min(STREAMED_PAIRS, max(options.pairs)), streamed=True),
            }
    result |= summarize(points) | machine_info()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    for point in [*points, result["one_core"]]:
        print(
            f"{point['pairs']:,} pairs, {point['workers']} workers: {point['seconds']} s, "
            f"{point['pairs_per_cpu_second']:,} pairs per core and second, anonymous peak "
            f"{point['peak_anonymous_bytes'] >> 20:,} MiB"
        )


if __name__ == "__main__":
    main()
