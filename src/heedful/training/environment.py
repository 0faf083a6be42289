"""Versions, threads and device of a run: stored in every checkpoint and compared when training continues."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

PACKAGES = ("heedful", "torch", "numpy", "tokenizers", "sacrebleu", "safetensors")
BITS = ("torch", "threads", "processes", "device")  # a change in one of these may change the results


def describe() -> dict[str, str]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    versions = {name: installed_version(name) for name in PACKAGES}
    versions |= {"python": platform.python_version(), "threads": str(torch.get_num_threads()), "device": device}
    versions["processes"] = os.environ.get("WORLD_SIZE", "1")
    commit = source_commit()
    return versions if commit is None else versions | {"commit": commit}


@cache
def installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "not installed"


def list_changes(earlier: dict[str, str]) -> list[str]:
    """Describe each difference from an earlier environment that may change the results."""
    current = describe()
    return [
        f"{name} was {earlier[name]} and is now {current[name]}"
        for name in BITS
        if name in earlier and earlier[name] != current[name]
    ]


@cache
def source_commit() -> str | None:
    """The git commit of the source tree that this package was imported from, if any."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
