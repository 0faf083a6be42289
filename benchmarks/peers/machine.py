"""What every result notes of where it was measured."""

from __future__ import annotations

import os
import platform
from datetime import date
from importlib.metadata import version

import torch


def about_here(*packages: str) -> dict[str, str]:
    """The machine, torch and other packages, and the day."""
    cpu = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {
        "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else cpu,
        "torch": torch.__version__,
        **{package: version(package) for package in packages},
        "date": date.today().isoformat(),
    }
