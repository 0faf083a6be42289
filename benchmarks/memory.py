"""The peak of a process's memory, as the kernel counts it (Linux): what was resident at most since the last look.

`fresh` first hands freed memory back to the system, so that what a computation takes again is counted again.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident() -> int:
    """Bytes now."""
    return _read("VmRSS")


def peak() -> int:
    """Bytes at most since `fresh`."""
    return _read("VmHWM")


def fresh() -> int:
    """Forget the peak; bytes now."""
    if sys.platform != "linux":
        raise SystemExit(f"given {sys.platform!r}, expected Linux: the peak of memory is read from /proc")
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text("5")  # resets VmHWM, see proc(5)
    return resident()


def _read(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    assert found is not None, f"{STATUS} has no {name}"
    return int(found[1]) * 1024
