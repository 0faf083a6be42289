"""Heedful: train, run, evaluate and inspect sequence models.

    import heedful

    heedful.train("demo", run="runs/demo")
    heedful.load("runs/demo").predict("I am trendy")

Names are imported on first use, so that `import heedful` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful import inspection
    from heedful.errors import HeedfulError
    from heedful.evaluation.metrics import bleu, chrf, ter
    from heedful.nn.hooks import ablate, patch, record
    from heedful.runs.load import load
    from heedful.runs.train import train
    from heedful.search import SearchConfig
    from heedful.tasks.captioning.predictor import Captioner
    from heedful.tasks.chat.predictor import ChatBot
    from heedful.tasks.classification.predictor import Classifier
    from heedful.tasks.decisions.predictor import DecisionMaker
    from heedful.tasks.embedding.predictor import Embedder
    from heedful.tasks.forecasting.predictor import Forecaster
    from heedful.tasks.language.predictor import TextGenerator
    from heedful.tasks.masked.predictor import MaskFiller
    from heedful.tasks.node_classification.predictor import NodeClassifier
    from heedful.tasks.predictor import Predictor
    from heedful.tasks.retrieval.predictor import Retriever
    from heedful.tasks.span.predictor import SpanExtractor
    from heedful.tasks.tagging.predictor import Tagger
    from heedful.tasks.translation.predictor import Translator

MODULES = {  # name -> module that defines it
    "Captioner": "heedful.tasks.captioning.predictor",
    "ChatBot": "heedful.tasks.chat.predictor",
    "Classifier": "heedful.tasks.classification.predictor",
    "DecisionMaker": "heedful.tasks.decisions.predictor",
    "Embedder": "heedful.tasks.embedding.predictor",
    "Forecaster": "heedful.tasks.forecasting.predictor",
    "HeedfulError": "heedful.errors",
    "MaskFiller": "heedful.tasks.masked.predictor",
    "NodeClassifier": "heedful.tasks.node_classification.predictor",
    "Predictor": "heedful.tasks.predictor",
    "Retriever": "heedful.tasks.retrieval.predictor",
    "SearchConfig": "heedful.search",
    "SpanExtractor": "heedful.tasks.span.predictor",
    "Tagger": "heedful.tasks.tagging.predictor",
    "TextGenerator": "heedful.tasks.language.predictor",
    "Translator": "heedful.tasks.translation.predictor",
    "ablate": "heedful.nn.hooks",
    "bleu": "heedful.evaluation.metrics",
    "chrf": "heedful.evaluation.metrics",
    "inspection": "heedful.inspection",
    "load": "heedful.runs.load",
    "patch": "heedful.nn.hooks",
    "record": "heedful.nn.hooks",
    "ter": "heedful.evaluation.metrics",
    "train": "heedful.runs.train",
}

__all__ = [
    "Captioner",
    "ChatBot",
    "Classifier",
    "DecisionMaker",
    "Embedder",
    "Forecaster",
    "HeedfulError",
    "MaskFiller",
    "NodeClassifier",
    "Predictor",
    "Retriever",
    "SearchConfig",
    "SpanExtractor",
    "Tagger",
    "TextGenerator",
    "Translator",
    "ablate",
    "bleu",
    "chrf",
    "inspection",
    "load",
    "patch",
    "record",
    "ter",
    "train",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "inspection":
        return import_module("heedful.inspection")
    if name not in MODULES:
        raise AttributeError(f"module 'heedful' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(MODULES[name]), name)
