"""Where a run runs: what may change its bits, noted in every checkpoint and compared when it continues."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

PACKAGES = ("heedful", "torch", "numpy", "tokenizers", "sacrebleu", "safetensors")
BITS = ("torch", "threads", "device")  # a change in one of these may change bits


def describe() -> dict[str, str]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    found = {name: installed_version(name) for name in PACKAGES}
    found |= {"python": platform.python_version(), "threads": str(torch.get_num_threads()), "device": device}
    commit = source_commit()
    return found if commit is None else found | {"commit": commit}


def installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "not installed"


def list_changes(earlier: dict[str, str]) -> list[str]:
    """A sentence for each thing that is no longer as it was."""
    now = describe()
    return [
        f"{name} was {earlier[name]} and is now {now[name]}" for name in BITS if name in earlier and earlier[name] != now[name]
    ]


def source_commit() -> str | None:
    """The commit of the source tree that this package runs from, if it runs from one."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
