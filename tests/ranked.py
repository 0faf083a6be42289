"""Ranks of a distributed run for tests: each is forked from this process, with the environment that torchrun would give it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workshop import start

from heedful.__main__ import main
from heedful.runs.processes import free_port


def start_ranks(count: int, function: Callable[[], object], **options: Any) -> list[subprocess.Popen[Any]]:
    """Call a function once on each rank, in a process of its own."""
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
    shared["MASTER_PORT"] = str(free_port())
    return [start_rank(rank, function, shared, **options) for rank in range(count)]


def start_rank(rank: int, function: Callable[[], object], shared: Mapping[str, str], **options: Any) -> subprocess.Popen[Any]:
    environment = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
    return start(function, env=environment, **options)


def exit_codes(ranks: Sequence[subprocess.Popen[Any]]) -> list[int]:
    """Wait for all ranks; once one has failed, or if they hang, the others are killed."""
    ends = time.monotonic() + 60
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            ends = min(ends, time.monotonic() + 5)
        if time.monotonic() > ends:
            for rank in ranks:
                rank.kill()
        time.sleep(0.02)
    return [rank.wait() for rank in ranks]


def command(*arguments: str | Path) -> Callable[[], None]:
    """`heed` with these arguments, as a function."""

    def run() -> None:
        sys.argv = ["heed", *map(str, arguments)]
        main()

    return run
