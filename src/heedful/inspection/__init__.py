"""Analyses of trained models. Each is one function that returns a typed result (see result.py):

    from heedful import inspection

    predictor = heedful.load("runs/demo")
    inspection.lens(predictor, "I am trendy").text()

Names are imported on first use, so that `import heedful.inspection` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.inspection.analyses.ablate import AblationResult, ablate
    from heedful.inspection.analyses.alignment import AlignmentResult, alignment
    from heedful.inspection.analyses.alternatives import AlternativesResult, alternatives
    from heedful.inspection.analyses.attention import AttentionResult, attention
    from heedful.inspection.analyses.cost import CostResult, cost
    from heedful.inspection.analyses.document import DocumentResult, document
    from heedful.inspection.analyses.experts import ExpertsResult, experts
    from heedful.inspection.analyses.explain import explain
    from heedful.inspection.analyses.forecast import ForecastResult, forecast
    from heedful.inspection.analyses.graph import GraphResult, graph
    from heedful.inspection.analyses.heads import HeadsResult, heads
    from heedful.inspection.analyses.image import ImageResult, image
    from heedful.inspection.analyses.lens import LensResult, lens
    from heedful.inspection.analyses.patch import PatchResult, patch
    from heedful.inspection.analyses.positions import PositionsResult, positions
    from heedful.inspection.analyses.pruning import PruningResult, pruning_curve
    from heedful.inspection.analyses.report import ReportResult, report
    from heedful.inspection.analyses.returns import ReturnsResult, returns
    from heedful.inspection.analyses.saliency import SaliencyResult, saliency
    from heedful.inspection.analyses.summary import SummaryResult, summary
    from heedful.inspection.explaining.stages import Explanation
    from heedful.inspection.result import Result

MODULES = {
    "AblationResult": "heedful.inspection.analyses.ablate",
    "AlignmentResult": "heedful.inspection.analyses.alignment",
    "AlternativesResult": "heedful.inspection.analyses.alternatives",
    "AttentionResult": "heedful.inspection.analyses.attention",
    "CostResult": "heedful.inspection.analyses.cost",
    "DocumentResult": "heedful.inspection.analyses.document",
    "ExpertsResult": "heedful.inspection.analyses.experts",
    "Explanation": "heedful.inspection.explaining.stages",
    "ForecastResult": "heedful.inspection.analyses.forecast",
    "GraphResult": "heedful.inspection.analyses.graph",
    "HeadsResult": "heedful.inspection.analyses.heads",
    "ImageResult": "heedful.inspection.analyses.image",
    "LensResult": "heedful.inspection.analyses.lens",
    "PatchResult": "heedful.inspection.analyses.patch",
    "PositionsResult": "heedful.inspection.analyses.positions",
    "PruningResult": "heedful.inspection.analyses.pruning",
    "ReportResult": "heedful.inspection.analyses.report",
    "Result": "heedful.inspection.result",
    "ReturnsResult": "heedful.inspection.analyses.returns",
    "SaliencyResult": "heedful.inspection.analyses.saliency",
    "SummaryResult": "heedful.inspection.analyses.summary",
    "ablate": "heedful.inspection.analyses.ablate",
    "alignment": "heedful.inspection.analyses.alignment",
    "alternatives": "heedful.inspection.analyses.alternatives",
    "attention": "heedful.inspection.analyses.attention",
    "cost": "heedful.inspection.analyses.cost",
    "document": "heedful.inspection.analyses.document",
    "experts": "heedful.inspection.analyses.experts",
    "explain": "heedful.inspection.analyses.explain",
    "forecast": "heedful.inspection.analyses.forecast",
    "graph": "heedful.inspection.analyses.graph",
    "heads": "heedful.inspection.analyses.heads",
    "image": "heedful.inspection.analyses.image",
    "lens": "heedful.inspection.analyses.lens",
    "patch": "heedful.inspection.analyses.patch",
    "positions": "heedful.inspection.analyses.positions",
    "pruning_curve": "heedful.inspection.analyses.pruning",
    "report": "heedful.inspection.analyses.report",
    "returns": "heedful.inspection.analyses.returns",
    "saliency": "heedful.inspection.analyses.saliency",
    "summary": "heedful.inspection.analyses.summary",
}

__all__ = [
    "AblationResult",
    "AlignmentResult",
    "AlternativesResult",
    "AttentionResult",
    "CostResult",
    "DocumentResult",
    "ExpertsResult",
    "Explanation",
    "ForecastResult",
    "GraphResult",
    "HeadsResult",
    "ImageResult",
    "LensResult",
    "PatchResult",
    "PositionsResult",
    "PruningResult",
    "ReportResult",
    "Result",
    "ReturnsResult",
    "SaliencyResult",
    "SummaryResult",
    "ablate",
    "alignment",
    "alternatives",
    "attention",
    "cost",
    "document",
    "experts",
    "explain",
    "forecast",
    "graph",
    "heads",
    "image",
    "lens",
    "patch",
    "positions",
    "pruning_curve",
    "report",
    "returns",
    "saliency",
    "summary",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'heedful.inspection' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(MODULES[name]), name)
