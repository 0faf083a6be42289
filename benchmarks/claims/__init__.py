"""What the papers claim of their systems, tried on generated data small enough for one CPU thread.

A claim is a function that trains what it needs below a folder and gives what it found. `CLAIMS` lists them all;
`python benchmarks/prove.py` tries them and writes benchmarks/results/claims.json.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Found(NamedTuple):
    """Figures in words, in the order in which they are told, and whether the claim holds with them."""

    figures: dict[str, str]
    holds: bool


class Claim(NamedTuple):
    says: str  # in one sentence, with its threshold
    of: str  # the paper
    try_it: Callable[[Path], Found]  # a folder for its runs
