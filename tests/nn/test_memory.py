"""Freed memory is kept: asking for it again and again touches few new pages."""

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
    """Pages touched for the first time while asking for 40 MB forty times."""
    return int(subprocess.run([sys.executable, "-c", PROGRAM, kept], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked to keep memory")
def test_memory_that_was_freed_is_used_again() -> None:
    assert 4 * faults("keep") < faults("let go")
