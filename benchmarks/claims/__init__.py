"""Claims of papers, tested on generated data small enough for one CPU thread.

A claim has a function that trains the models it needs in a folder and returns its evidence. `CLAIMS` lists all of them;
`python benchmarks/prove.py` tests them and writes benchmarks/results/claims.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SEEDS = (1, 2, 3)  # of claims about attention, which depends on the seed more than accuracy does


class Evidence(NamedTuple):
    """Formatted figures in the order of the table, and whether the claim holds."""

    figures: dict[str, str]
    holds: bool


class Claim(NamedTuple):
    statement: str  # one sentence, with its threshold
    source: str  # the paper
    run: Callable[[Path], Evidence]  # a folder for its runs


def by_seed(rows: Sequence[Mapping[str, float]]) -> dict[str, str]:
    """Figures of several seeds: 100.0, 98.5, 99.0%."""
    return {name: f"{', '.join(f'{100 * row[name]:.1f}' for row in rows)}%" for name in rows[0]}
