"""Analyses of trained models: each is a function of a predictor that returns a typed result.

    result = heedful.inspection.heads(heedful.load("runs/demo"))
    result.heads, result.text(), result.to_dict(), result.svg(), result.html(), result.save("heads.png")

measures/ has functions of tensors, models and sentences, analyses/ one analysis per file. Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.inspection.analyses.alignment import AlignmentResult, alignment
    from heedful.inspection.analyses.cost import CostResult, cost
    from heedful.inspection.analyses.experts import ExpertsResult, experts
    from heedful.inspection.analyses.heads import HeadsResult, heads
    from heedful.inspection.analyses.positions import PositionsResult, positions
    from heedful.inspection.analyses.pruning import PruningResult, pruning_curve

MODULES = {
    "AlignmentResult": "heedful.inspection.analyses.alignment",
    "CostResult": "heedful.inspection.analyses.cost",
    "ExpertsResult": "heedful.inspection.analyses.experts",
    "HeadsResult": "heedful.inspection.analyses.heads",
    "PositionsResult": "heedful.inspection.analyses.positions",
    "PruningResult": "heedful.inspection.analyses.pruning",
    "alignment": "heedful.inspection.analyses.alignment",
    "cost": "heedful.inspection.analyses.cost",
    "experts": "heedful.inspection.analyses.experts",
    "heads": "heedful.inspection.analyses.heads",
    "positions": "heedful.inspection.analyses.positions",
    "pruning_curve": "heedful.inspection.analyses.pruning",
}

__all__ = [
    "AlignmentResult",
    "CostResult",
    "ExpertsResult",
    "HeadsResult",
    "PositionsResult",
    "PruningResult",
    "alignment",
    "cost",
    "experts",
    "heads",
    "positions",
    "pruning_curve",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'heedful.inspection' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(MODULES[name]), name)
