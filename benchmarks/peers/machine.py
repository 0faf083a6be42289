"""Information about the machine, stored with every result."""

from __future__ import annotations

import os
import platform
from datetime import date
from importlib.metadata import version

import torch


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_info(*packages: str) -> dict[str, str]:
    """The machine, the versions of torch and other packages, and the date."""
    cpu = f"{platform.system()} {platform.machine()}, {cores()} cores"
    return {
        "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else cpu,
        "torch": torch.__version__,
        **{package: version(package) for package in packages},
        "date": date.today().isoformat(),
    }
