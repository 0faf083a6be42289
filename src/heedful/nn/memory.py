"""CPU memory: keep freed memory in the process, since every training step allocates the same sizes again.

glibc returns large blocks to the system as soon as they are freed; the system then clears every page again on first use,
which takes a tenth of a step.
"""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # names of mallopt's parameters in malloc.h


def keep_freed_memory() -> None:
    """Configure malloc of this process to keep freed memory. Without glibc this does nothing."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(MMAP_MAX, 0)  # large blocks come from the heap as well
        libc.mallopt(TRIM_THRESHOLD, -1)  # the heap never shrinks
