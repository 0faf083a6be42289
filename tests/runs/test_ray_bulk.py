"""Bulk prediction on a local Ray cluster of two workers, one of which is killed. Ray is an extra: `make test-benchmarks` runs
this where it is installed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from workshop import heed, reversed_pairs, write_recipe

from heedful.runs.ray_bulk import predict_on_ray

pytestmark = pytest.mark.benchmark


@pytest.fixture
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    source = str(Path(__file__).parents[2] / "src")
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}},
    )
    yield ray
    ray.shutdown()


def kill_a_worker(parts: Path, killed: list[int]) -> None:
    """Kill the process that holds the lock of a shard, when two parts are committed."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not killed:
        time.sleep(0.02)
        if len(list(parts.glob("part-*"))) < 2:
            continue
        for lock in parts.glob("shard-*.lock"):
            holder = lock.read_text().split()
            if holder and f"process {os.getpid()} " not in lock.read_text() and Path(f"/proc/{holder[1]}").exists():
                os.kill(int(holder[1]), signal.SIGKILL)
                killed.append(int(holder[1]))
                break


@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_costs_no_input_and_changes_no_byte(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert heed("train", write_recipe(tmp_path), "training.steps=2", "--run", tmp_path / "run") == 0
    inputs = tmp_path / "inputs.txt"
    inputs.write_text("".join(f"{line.split(chr(9))[0]}\n" for line in reversed_pairs(2000, 5).splitlines()))
    assert heed("predict", tmp_path / "run", inputs, "--output", tmp_path / "whole", "--commit-every", "25") == 0
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(tmp_path / "out.parts", killed), daemon=True)
    killer.start()
    monkeypatch.chdir(tmp_path)  # the workers have another working directory
    joined = predict_on_ray("run", ["inputs.txt"], "out", shards=4, device="cpu", every=25)
    killer.join()
    assert len(killed) == 1
    assert joined.lines == 2000
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
