"""Claims of papers, tested on generated data small enough for one CPU thread.

A claim has a function that trains the models it needs in a folder and returns its evidence. `CLAIMS` lists all of them;
`python benchmarks/prove.py` tests them and writes benchmarks/results/claims.json.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Evidence(NamedTuple):
    """Formatted figures in the order of the table, and whether the claim holds."""

    figures: dict[str, str]
    holds: bool


class Claim(NamedTuple):
    statement: str  # one sentence, with its threshold
    source: str  # the paper
    run: Callable[[Path], Evidence]  # a folder for its runs
