"""Several commands on one machine: how much longer three training or translation commands take in parallel than one alone.

    python benchmarks/busy.py
    python benchmarks/busy.py --repeats 1 --steps 10 --sentences 50 --settings passive,spin-1000

The threads of OpenMP wait for each other at the end of every parallel loop. By default they spin; with more processes than
cores, they spin while the thread they wait for has no core. The setting of `heedful` (`default`) is compared with libgomp's own
behavior (`spin-300000`) and with other settings. All figures are wall seconds of whole commands, start-up included; settings
alternate, and the result is the median of the repeats; parallel commands are measured once.
Results do not depend on the setting: the number of threads is the same.
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
from pathlib import Path
from typing import Any

from peers.machine import machine_info


def environment_of(setting: str) -> dict[str, str]:
    """`default` is heedful's setting, `passive` never spins, `spin-300000` is libgomp's own default."""
    if setting == "default":
        return {}
    if setting == "passive":
        return {"OMP_WAIT_POLICY": "passive"}
    return {"GOMP_SPINCOUNT": setting.removeprefix("spin-")}


WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS", "KMP_BLOCKTIME")
PARALLEL = 3  # processes


class Bench:
    def __init__(self, folder: Path, steps: int, sentences: int) -> None:
        self.folder, self.steps, self.sentences = folder, steps, sentences
        self.runs = 0

    def train(self) -> list[str]:
        """The command that trains the demo for some steps, in a new folder."""
        self.runs += 1
        run = self.folder / f"run-{self.runs}"
        return ["train", "demo", f"training.steps={self.steps}", "--run", str(run), "--device", "cpu"]

    def translate(self) -> list[str]:
        return ["translate", str(self.folder / "run-1"), str(self.folder / "sentences.txt"), "--device", "cpu"]

    def prepare(self) -> None:
        """Train a run to translate with, and write sentences."""
        from heedful.data.grammar import generate

        lines = [pair.source for pair in generate("test", self.sentences)]
        (self.folder / "sentences.txt").write_text("\n".join(lines) + "\n")
        run_parallel([self.train()], environment_of("default"))


def run_parallel(commands: Sequence[list[str]], setting: dict[str, str]) -> list[float]:
    """Start all commands at once and return the seconds of each."""
    environment = {name: value for name, value in os.environ.items() if name not in WAITING} | setting
    started = time.perf_counter()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "heedful", *command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for command in commands
    ]
    seconds: dict[int, float] = {}
    while len(seconds) < len(processes):
        for number, process in enumerate(processes):
            if number not in seconds and process.poll() is not None:
                assert process.returncode == 0, f"heed {' '.join(commands[number])} ended with {process.returncode}"
                seconds[number] = time.perf_counter() - started
        time.sleep(0.02)
    return [seconds[number] for number in range(len(processes))]


def measure(
    bench: Bench, works: Sequence[str], settings: Sequence[str], repeats: int, alone_only: Sequence[str]
) -> dict[str, Any]:
    results: dict[str, dict[str, dict[str, list[float]]]] = {
        work: {setting: {"alone": [], "side_by_side": []} for setting in settings} for work in works
    }
    for round_number in range(repeats):
        for work in works:
            command = {"train": bench.train, "translate": bench.translate}[work]
            for setting in settings:
                into = results[work][setting]
                into["alone"] += run_parallel([command()], environment_of(setting))
                if round_number == 0 and setting not in alone_only:
                    into["side_by_side"] += run_parallel([command() for _ in range(PARALLEL)], environment_of(setting))
                print(f"{work:10} {setting:12} {into}", flush=True)
    return {
        work: {
            setting: {
                "alone_seconds": [round(one, 2) for one in times["alone"]],
                "side_by_side_seconds": [round(one, 2) for one in times["side_by_side"]],
                "alone": round(statistics.median(times["alone"]), 2),
            }
            | (
                {
                    "side_by_side": round(statistics.median(times["side_by_side"]), 2),
                    "ratio": round(statistics.median(times["side_by_side"]) / statistics.median(times["alone"]), 2),
                }
                if times["side_by_side"]
                else {}
            )
            for setting, times in by_setting.items()
        }
        for work, by_setting in results.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", default="train,translate", help="train, translate or both")
    parser.add_argument("--settings", default="spin-300000,default", help="default, passive, or spin-N for any N")
    parser.add_argument("--alone", default="", help="settings that are not measured in parallel, which can take minutes")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "busy.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.steps, options.sentences)
        bench.prepare()
        results = measure(
            bench, options.work.split(","), options.settings.split(","), options.repeats, options.alone.split(",")
        )
    about = {"steps": options.steps, "sentences": options.sentences, "processes": PARALLEL, "cores": os.cpu_count()}
    options.output.write_text(json.dumps(machine_info() | about | results, indent=1) + "\n")


if __name__ == "__main__":
    main()
