"""Freed memory is kept: repeated allocations cause few page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import os, resource
import torch
from heedful.nn.memory import keep_freed_memory

torch.set_num_threads(1)

def faults(kept):  # page faults of 40 allocations of 40 MB, in a process of their own
    reading, writing = os.pipe()
    if os.fork() == 0:
        if kept:
            keep_freed_memory()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(40):
            torch.empty(40 * 2**20, dtype=torch.uint8).fill_(1)
        os.write(writing, str(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reading, 99))

print(min(faults(True) for _ in range(3)), faults(False))  # a kernel that reclaims memory in the background adds some
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="requires glibc")
def test_freed_memory_is_reused() -> None:
    """In a process in which no memory was kept before."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    kept, released = map(int, done.stdout.split())
    assert 4 * kept < released
