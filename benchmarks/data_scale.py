"""Data preparation at scale: generated pairs from raw text to the first update of a model.

    python benchmarks/data_scale.py --pairs 200000 400000 800000
    python benchmarks/data_scale.py --pairs 10000000                 # an hour on two cores

For each number of pairs, in a process of its own: seconds of each stage, the processor time of the process and its workers, and
the peak of the memory of the process in that stage. Encoding is also measured with one worker process. The bytes per pair are
the slope of the peaks; figures for 10 million pairs that were not measured are marked as extrapolated.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from memory import peak, reset_peak, resident
from peers.machine import machine_info

VOCABULARY, BLOCK = 30_000, 100_000
GOAL = 10_000_000
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


class Stages:
    """Seconds, processor time and peak memory of each stage."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, float]] = {}

    def measure(self, name: str, function: Callable[[], Any]) -> Any:
        before, cpu, started = reset_peak(), cpu_seconds(), time.monotonic()
        result = function()
        seconds, used = time.monotonic() - started, cpu_seconds() - cpu
        self.rows[name] = {
            "seconds": round(seconds, 2),
            "cpu_seconds": round(used, 2),
            "cores_used": round(used / seconds, 2),
            "peak_bytes": peak(),
            "resident_bytes_before": before,
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
    started, start_bytes = time.monotonic(), resident()
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
        "resident_bytes_at_start": start_bytes,
        "peak_bytes": max(row["peak_bytes"] for row in stages.rows.values()),
        "peak_bytes_of_a_worker": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
        "stages": stages.rows,
    }


def measure(pairs: int, one_core: bool) -> dict[str, Any]:
    """`prepare` in a new process, with all cores or with one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pairs(folder / "train.tsv", pairs, 1)
        write_pairs(folder / "valid.tsv", 100, 2)
        (folder / "recipe.toml").write_text(RECIPE.format(folder=folder))
        command = [sys.executable, __file__, "--child", str(folder), "--pairs", str(pairs)]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[200_000, 400_000, 800_000])
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "data_scale.json")
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(prepare(options.child, options.pairs[0])))
        return
    points = [measure(pairs, one_core=False) for pairs in options.pairs]
    result: dict[str, Any] = {"points": points, "one_core": measure(options.pairs[0], one_core=True), **machine_info()}
    if len(points) > 1:
        memory, start = extrapolate(points, "peak_bytes")
        seconds, base = extrapolate(points, "seconds")
        result["peak_bytes_per_pair"] = round(memory, 1)
        result["goal"] = {
            "pairs": GOAL,
            "extrapolated": max(options.pairs) < GOAL,
            "from_points": options.pairs,
            "seconds": round(base + seconds * GOAL),
            "peak_bytes": round(start + memory * GOAL),
        }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    for point in [*points, result["one_core"]]:
        print(
            f"{point['pairs']:,} pairs, {point['workers']} workers: {point['seconds']} s, "
            f"{point['pairs_per_cpu_second']:,} pairs per core and second, peak {point['peak_bytes'] >> 20:,} MiB"
        )


if __name__ == "__main__":
    main()
