"""`heed evaluate` for retrieval: metrics with confidence intervals, and BM25 on the same candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.errors import ConfigError
from heedful.evaluation.metrics import MIN_RESAMPLES, SEED
from heedful.evaluation.ranking import RANKINGS, Numbers, name_rankings, rank_statistics
from heedful.evaluation.resampling import bootstrap_sums, interval
from heedful.evaluation.tables import table
from heedful.tasks.retrieval.command import EvaluateOptions
from heedful.tasks.retrieval.evaluate import (
    Bm25Setting,
    bm25_scores,
    choose_bm25,
    draw_candidates,
    model_scores,
    softmax_loss,
)

if TYPE_CHECKING:
    from heedful.tasks.retrieval.predictor import Retriever

CHOOSING = 4000  # examples of the validation data on which the setting of BM25 is chosen
NAMES = {"recall_1": "recall@1", "recall_10": "recall@10", "mrr": "MRR"}
Intervals = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class RetrievalReport:
    split: str
    examples: int
    candidates: int  # of each example
    figures: dict[str, float]
    intervals: Intervals  # 95%, by a bootstrap over examples; empty: none was computed
    bm25: dict[str, float] = field(default_factory=dict)  # empty: not computed
    bm25_intervals: Intervals = field(default_factory=dict)
    bm25_setting: Bm25Setting | None = None
    difference: dict[str, tuple[float, float, float]] = field(default_factory=dict)  # model - BM25, and its interval
    warnings: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        result: dict[str, Any] = {
            "split": self.split,
            "examples": self.examples,
            "candidates": self.candidates,
            "figures": self.figures,
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
        }
        if self.bm25_setting is not None:
            result["bm25"] = {
                "figures": self.bm25,
                "intervals": {name: list(bounds) for name, bounds in self.bm25_intervals.items()},
                "setting": self.bm25_setting._asdict(),
                "difference": {name: list(values) for name, values in self.difference.items()},
            }
        return result

    def text(self) -> str:
        rows = [("figure", "value", "95% interval"), *table_rows(self.figures, self.intervals)]
        rows += table_rows(self.bm25, self.bm25_intervals, ", BM25")
        for name, (value, low, high) in self.difference.items():
            rows.append((f"{NAMES[name]}, model - BM25", f"{value:+.4f}", f"{low:+.4f} to {high:+.4f}"))
        parts = [f"{self.examples:,} questions of {self.split}, {self.candidates:,} candidates each", table(rows)]
        if self.bm25_setting is not None:
            last = self.bm25_setting.turns
            turns = {0: "all turns that the model reads", 1: "the last turn"}.get(last, f"the last {last} turns")
            parts.append(f"BM25: k1 {self.bm25_setting.k1:g}, b {self.bm25_setting.b:g}, {turns}; chosen on valid")
        return "\n\n".join(parts)


def table_rows(figures: Mapping[str, float], intervals: Intervals, suffix: str = "") -> list[tuple[str, str, str]]:
    rows = []
    for name, value in figures.items():
        bounds = intervals.get(name)
        shown = "" if bounds is None else f"{bounds[0]:.4f} to {bounds[1]:.4f}"
        rows.append((f"{NAMES.get(name, name)}{suffix}", f"{value:.4f}", shown))
    return rows


def report(retriever: Retriever, split: str, options: EvaluateOptions) -> RetrievalReport:
    if 0 < options.bootstrap < MIN_RESAMPLES:
        raise ConfigError(f"--bootstrap: given {options.bootstrap}, expected 0 or at least {MIN_RESAMPLES}")
    config, tokenizer = retriever.run.task, retriever.system.target_tokenizer
    examples = retriever.examples(split)
    encoded = retriever.data.encode(examples, tokenizer)
    drawn = draw_candidates(encoded.answers, len(encoded.texts), config.candidates)
    scores = model_scores(retriever.dual_encoder, retriever.system, encoded, drawn).astype(np.float64)
    rows = rank_statistics(scores)  # (examples, 3)
    figures = {"loss": softmax_loss(scores / config.temperature), **name_rankings(rows.mean(0))}
    if not options.baselines:
        return RetrievalReport(split, len(examples), drawn.shape[1], figures, resampled(rows, options.bootstrap))
    valid = retriever.examples("valid")
    setting = choose_bm25(valid, retriever.data.encode(valid, tokenizer), config.candidates, CHOOSING)
    other = rank_statistics(bm25_scores(examples, encoded.texts, drawn, setting))
    bounds = resampled(rows - other, options.bootstrap)
    means = name_rankings((rows - other).mean(0))
    return RetrievalReport(
        split,
        len(examples),
        drawn.shape[1],
        figures,
        resampled(rows, options.bootstrap),
        name_rankings(other.mean(0)),
        resampled(other, options.bootstrap),
        setting,
        {name: (means[name], *bounds[name]) for name in bounds},
    )


def resampled(rows: Numbers, resamples: int) -> dict[str, tuple[float, float]]:
    """The 95% interval of the mean of each column, with the same draws for all that have as many rows."""
    if not resamples:
        return {}
    means = bootstrap_sums(rows, resamples, SEED) / len(rows)  # (resamples, columns)
    return {name: interval(means[:, at]) for at, name in enumerate(RANKINGS)}
