"""Translate 10,000 sentences in 8 shards, kill the process of a shard with SIGKILL five times at random moments, and compare
the joined file, byte for byte, with that of one process that was never stopped.

    python benchmarks/bulk.py --kills 5

The model is tiny and untrained: what is measured is the bookkeeping, not the translations.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

from kill import write_recipe

SHARDS = 8


def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "heedful", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(*arguments: str | Path) -> int:
    """Run a command and return its exit code."""
    process = start(*arguments)
    process.communicate()
    return process.returncode


def write_inputs(path: Path, count: int) -> None:
    """Sentences of random words; each begins with its number, so that every line is distinct."""
    draw = random.Random(2)
    lines = (" ".join(f"w{draw.randrange(30)}" for _ in range(draw.randint(2, 9))) for _ in range(count))
    path.write_text("".join(f"n{number} {line}\n" for number, line in enumerate(lines)))


def killed_shards(command: list[str | Path], output: Path, kills: int, draw: random.Random) -> list[dict[str, Any]]:
    """Run all shards; some are killed when a random number of further parts has been committed, and started again."""
    victims = sorted(draw.choices(range(1, SHARDS + 1), k=kills))
    moments: list[dict[str, Any]] = []
    for number in range(1, SHARDS + 1):
        for _ in range(victims.count(number)):
            process = start(*command, "--shard", f"{number}/{SHARDS}")
            target, deadline = done(output) + draw.randint(0, 1), time.monotonic() + 300
            while done(output) < target and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(draw.uniform(0.0, 0.2))  # in the middle of whatever follows
            process.kill()
            process.communicate()
            moments.append({"shard": number, "parts": done(output), "code": process.returncode})
            assert finish("join", output) == 3, "an incomplete output is not joined"
        assert finish(*command, "--shard", f"{number}/{SHARDS}") == 0
    return moments


def done(output: Path) -> int:
    return len(list(output.with_name(f"{output.name}.parts").glob("part-*")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--every", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "bulk.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = write_recipe(folder, steps=20, save_every=20, validate_every=20)
        assert finish("train", recipe, "--run", folder / "run", "--device", "cpu") == 0
        write_inputs(folder / "inputs.txt", options.lines)
        arguments = ["--device", "cpu", "--json", "--commit-every", str(options.every), "--output"]
        command: list[str | Path] = ["predict", folder / "run", folder / "inputs.txt", *arguments]
        started = time.monotonic()
        assert finish(*command, folder / "whole.jsonl") == 0
        seconds = time.monotonic() - started
        moments = killed_shards(
            [*command, folder / "out.jsonl"], folder / "out.jsonl", options.kills, random.Random(options.seed)
        )
        assert finish("join", folder / "out.jsonl") == 0
        joined, whole = (folder / "out.jsonl").read_bytes(), (folder / "whole.jsonl").read_bytes()
        sources = [json.loads(line)["source"] for line in joined.splitlines()]
        inputs = (folder / "inputs.txt").read_text().splitlines()
    result = {
        "date": date.today().isoformat(),
        "machine": platform.processor() or platform.machine(),
        "lines": options.lines,
        "shards": SHARDS,
        "inputs_per_part": options.every,
        "kills": moments,
        "each_exactly_once": sources == inputs,
        "identical_to_undisturbed": joined == whole,
        "seconds_undisturbed": round(seconds, 1),
    }
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    if not (result["each_exactly_once"] and result["identical_to_undisturbed"]):
        raise SystemExit("the joined output differs")


if __name__ == "__main__":
    main()
