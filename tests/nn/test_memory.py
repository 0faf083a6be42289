"""Freed memory is kept: repeated allocations cause few page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import os, resource, sys
import torch
from heedful.nn.memory import keep_freed_memory

torch.set_num_threads(1)
for kept in sys.argv[1:]:
    if os.fork():  # a process of its own for each, without importing torch again
        os.wait()
        continue
    if kept == "keep":
        keep_freed_memory()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(40):
        torch.empty(40 * 2**20, dtype=torch.uint8).fill_(1)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
    os._exit(0)
"""


def faults(*kept: str) -> list[int]:
    """Page faults of forty allocations of 40 MB, in a process for each."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *kept], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="requires glibc")
def test_freed_memory_is_reused() -> None:
    *kept, released = faults("keep", "keep", "keep", "release")
    assert 2 * min(kept) < released  # a kernel that reclaims memory in the background adds some to the first
