"""The predictions of `heed train --plan` for 1, 2 and 4 processes on a CPU, compared with what is measured.

    python benchmarks/plan_processes.py --output benchmarks/results/plan_processes.json

One thread per process. The figures of one device and the formulas are those of `--plan` (runs/scaling.py), with the cores as
devices that the processes share; the link is measured by an all-to-all between two processes over gloo. Run it on an idle
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from peers.machine import cores, machine_info
from torch import distributed, multiprocessing
from torch.multiprocessing.spawn import spawn

from heedful.runs.scaling import GIGA, Cluster, Measured, scale

SIZES = {"demo": ("model.dim=256", "model.feed_forward=1024"), "tiny": ("model.dim=32", "model.feed_forward=64")}
PROCESSES = (1, 2, 4)
ELEMENTS, ROUNDS = 2**23, 8  # of the exchange that measures the link


def heed(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "heedful", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def exchange(rank: int, file: str, elements: int, seconds: Any) -> None:
    """Send half of a tensor to the other process, several times; the median of the durations."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    sent, received, durations = torch.ones(elements), torch.empty(elements), []
    for _ in range(ROUNDS):
        distributed.barrier()
        started = time.perf_counter()
        distributed.all_to_all_single(received, sent)
        durations.append(time.perf_counter() - started)
    if rank == 0:
        seconds.value = statistics.median(durations[1:])
    distributed.destroy_process_group()


def measure_link(folder: Path, elements: int) -> float:
    """Bytes per second that a process sends."""
    seconds = multiprocessing.get_context("spawn").Value("d", 0.0)
    spawn(exchange, (str(folder / "store"), elements, seconds), nprocs=2)  # type: ignore[no-untyped-call]
    return 4 * elements / 2 / float(seconds.value)


def seconds_per_step(run: Path) -> float:
    """Median over the reports, without the first, of the duration of an update."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    reports = [(line["step"], line["seconds"]) for line in lines if line["kind"] == "train"]
    pairs = list(pairwise(reports[1:]))
    assert pairs, "too few reports"
    durations: list[float] = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in pairs]
    return statistics.median(durations)


def compare(size: str, steps: int, elements: int, folder: Path) -> dict[str, Any]:
    options = [*SIZES[size], f"training.steps={steps}", "training.report_every=5", f"training.validate_every={10 * steps}"]
    plan = json.loads(heed("train", "demo", *options, "--plan", "--json"))
    link = measure_link(folder, elements)
    rows = []
    for processes in PROCESSES:
        run = folder / f"run-{processes}"
        heed("train", "demo", *options, "--processes", str(processes), "--run", run)
        cluster = Cluster(1, processes, node_link=link / GIGA, devices=cores())
        predicted = scale(Measured.of(plan), cluster, "ddp").seconds_per_step
        measured = seconds_per_step(run)
        rows.append(
            {
                "processes": processes,
                "predicted_seconds_per_step": predicted,
                "measured_seconds_per_step": measured,
                "ratio": round(predicted / measured, 3),
            }
        )
    return {
        "size": size,
        "parameters": plan["parameters"],
        "planned_seconds_per_step": plan["seconds_per_step"],
        "fixed_seconds_per_step": plan["fixed_seconds_per_step"],
        "link_bytes_per_second": round(link),
        "cores": cores(),
        "rows": rows,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="demo")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="of the exchange that measures the link")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        result = compare(given.size, given.steps, given.elements, Path(folder)) | machine_info()
    for row in result["rows"]:
        print("  ".join(f"{name} {value:.4g}" for name, value in row.items()))
    given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
