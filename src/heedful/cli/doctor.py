"""The report of `heed doctor`: versions, devices, memory, disk, folders."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import Any

import torch

from heedful.data.encode import cache_folder
from heedful.storage.writing import can_write
from heedful.training.environment import describe


def examine() -> dict[str, Any]:
    cache = cache_folder()
    data = os.environ.get("HEED_DATA")
    return {
        **describe(),
        "system": platform.platform(),
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": total_memory(),
        "cuda": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] or "none",
        "bf16_on_gpu": torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
        "compiler": shutil.which(os.environ.get("CXX", "g++")) is not None or "none: torch.compile does not work on the CPU",
        "cache": f"{cache}, {'writable' if is_writable(cache) else 'NOT is_writable: set HEED_CACHE'}",
        "disk_free_bytes": shutil.disk_usage(Path.cwd()).free,
        "working_directory": "writable" if is_writable(Path.cwd()) else "NOT writable: set --run to another folder",
        "data": data
        if data and Path(data).is_dir()
        else f"HEED_DATA is {'not set' if not data else f'{data}, which is not a folder'}",
    }


def total_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def is_writable(folder: Path) -> bool:
    """Whether a file can be created there, or in the nearest parent folder that exists."""
    while not folder.is_dir():
        folder = folder.parent
    return can_write(folder)
