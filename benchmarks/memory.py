"""The peak resident memory of this process, from the Linux kernel.

`reset_peak` first returns freed memory to the system, so that memory that is allocated again is counted again.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident() -> int:
    """Resident bytes now."""
    return _read("VmRSS")


def peak() -> int:
    """Peak resident bytes since `reset_peak`."""
    return _read("VmHWM")


def reset_peak() -> int:
    """Reset the peak and return the resident bytes."""
    if sys.platform != "linux":
        raise SystemExit(f"given {sys.platform!r}, expected Linux: the peak of memory is read from /proc")
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text("5")  # resets VmHWM, see proc(5)
    return resident()


def _read(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    assert match is not None, f"{STATUS} has no {name}"
    return int(match[1]) * 1024
