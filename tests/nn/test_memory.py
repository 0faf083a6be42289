"""Freed memory is kept: repeated allocations cause few page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import torch
from heedful.nn.memory import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
torch.set_num_threads(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    torch.empty(40 * 2**20, dtype=torch.uint8).fill_(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(kept: str) -> int:
    """Page faults of forty allocations of 40 MB."""
    return int(subprocess.run([sys.executable, "-c", PROGRAM, kept], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="requires glibc")
def test_freed_memory_is_reused() -> None:
    kept = min(faults("keep") for _ in range(3))  # a kernel that reclaims memory in the background adds some
    assert 4 * kept < faults("release")
