"""Memory on a CPU: what a training step frees, the next one asks for again.

glibc hands large pieces back to the system as soon as they are free; the system then clears every page anew when it is
first touched, which takes a tenth of a step. Kept, the pages are simply used again.
"""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # names of mallopt's parameters in malloc.h


def keep_freed_memory() -> None:
    """For this process and for good: freed memory stays for later use. Elsewhere than with glibc nothing happens."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(MMAP_MAX, 0)  # large pieces come from the heap too,
        libc.mallopt(TRIM_THRESHOLD, -1)  # which is never shortened
