"""Quality against the number of attention heads kept: the least important heads are ablated, without training.

heads  encoder  decoder  cross  loss    bleu
24     8        8        8      0.1284  99.86
12     3        4        5      1.2071  61.10
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from heedful.errors import ConfigError, lookup
from heedful.evaluation.tables import table
from heedful.inspection.drawing.charts import line_chart
from heedful.inspection.drawing.figure import Figure, side_by_side
from heedful.inspection.measures.head_pruning import RankedHead, ablated, head_scores, rank_heads
from heedful.inspection.measures.importance import gate_gradients
from heedful.inspection.page.blocks import Block, Pictures, Table, Words, sentence
from heedful.inspection.result import Result
from heedful.nn.gates import prunable_attentions
from heedful.nn.model import Model
from heedful.tasks.predictor import Predictor

FRACTIONS = (1.0, 0.75, 0.5, 0.25, 0.125)  # of the heads, kept by default
NOTE = (
    "heads are ranked by the gradient of their gates (Michel et al., 2019), normalized within each layer; the others are "
    "ablated, without training. `heed prune` with these counts gives the same model"
)


@dataclass(frozen=True)
class PruningPoint:
    """The quality with some heads kept."""

    kept: int
    heads: dict[str, int]  # by kind of attention
    figures: dict[str, float]  # loss and metrics on the validation data


@dataclass(frozen=True)
class PruningResult(Result):
    """The result of `pruning_curve`.

    >>> result = heedful.inspection.pruning_curve(translator, [6, 12], sentences=20)
    >>> sorted(result.points[0].heads)
    ['cross', 'decoder', 'encoder']
    """

    analysis: ClassVar[str] = "pruning_curve"

    kind: str | None  # of the ablated heads; None: all kinds
    metric: str  # of validation
    sentences: int  # training examples that the ranking is computed on
    ranking: list[str]  # heads as kind.layer.head, the most important first
    points: list[PruningPoint]  # the fewest heads first

    @property
    def title(self) -> str:
        return "Quality against heads kept"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        return f"{self.header}\n{table(self.rows())}\n{NOTE}."

    def blocks(self) -> list[Block]:
        return [
            Words(f"{sentence(self.header)}."),
            Pictures(self.charts()),
            Table(self.rows(), "quality against heads kept"),
            Words(f"{sentence(NOTE)}.", "hint"),
        ]

    def figure(self) -> Figure:
        return side_by_side(*self.charts())

    @property
    def header(self) -> str:
        heads = f"{len(self.ranking)} heads" + (f" of kind {self.kind}" if self.kind else "")
        ranking = f"ranked on the first {self.sentences:,} training examples"
        return f"validation data, with the most important of {heads} kept; {ranking}"

    def rows(self) -> list[tuple[str, ...]]:
        """The table, the most heads first."""
        first = self.points[0]
        rows: list[tuple[str, ...]] = [("heads", *first.heads, *(name.replace("_", " ") for name in first.figures))]
        for point in reversed(self.points):
            figures = [f"{value:.4g}" for value in point.figures.values()]
            rows.append((str(point.kept), *map(str, point.heads.values()), *figures))
        return rows

    def charts(self) -> list[Figure]:
        """A line chart of the loss, and one of the metric of validation, or of the first other metric."""
        kept = [float(point.kept) for point in self.points]
        others = [name for name in (self.metric, *self.points[0].figures) if name not in ("loss", "perplexity")]
        return [
            line_chart([point.figures[name] for point in self.points], name.replace("_", " "), "heads kept", name, kept)
            for name in ("loss", *others[:1])
        ]


def pruning_curve(
    predictor: Predictor,
    keep: Sequence[int] | None = None,
    *,
    kind: str | None = None,
    sentences: int = 1000,
    progress: Callable[[float], None] | None = None,
) -> PruningResult:
    """Loss and metrics on the validation data with the most important heads kept and the others ablated, without training.

    keep: numbers of heads to keep; default: all, 3/4, 1/2, 1/4 and 1/8 of them. kind: ablate only heads of this kind of
    attention. sentences: training examples on which the gradient importance is computed. progress: called with the share of the
    work done since the last call.

    >>> result = heedful.inspection.pruning_curve(translator, [6, 12], sentences=20)
    >>> [point.kept for point in result.points]
    [6, 12]
    """
    model = predictor.model
    kinds = list(dict.fromkeys(one.kind.name for one in prunable_attentions(model).values()))
    if not kinds:
        raise ConfigError(f"a model of family {predictor.run.model.family!r} has no attention heads that can be pruned")
    if kind is not None:
        lookup(kind, dict.fromkeys(kinds), "kind of heads")
    scores = head_scores(model, predictor.training_losses(sentences), gate_gradients)
    ranked = rank_heads(model, scores, kind)
    counts = sorted(set(keep or [max(1, round(fraction * len(ranked))) for fraction in FRACTIONS]))
    if not 0 <= counts[0] <= counts[-1] <= len(ranked):
        raise ConfigError(f"keep: given {list(keep or ())}, expected numbers of heads from 0 to {len(ranked)}")
    points = []
    for count in counts:
        with ablated(model, ranked[count:]):
            figures = predictor.validate().figures
        points.append(PruningPoint(count, count_by_kind(model, ranked[count:]), dict(figures)))
        if progress is not None:
            progress(1 / len(counts))
    names = [name_of(model, head) for head in ranked]
    return PruningResult(kind, predictor.run.training.metric, sentences, names, points)


def count_by_kind(model: Model, removed: Sequence[RankedHead]) -> dict[str, int]:
    """The number of heads that remain, by kind of attention."""
    prunable = prunable_attentions(model)
    counts: dict[str, int] = {}
    for one in prunable.values():
        counts[one.kind.name] = counts.get(one.kind.name, 0) + one.heads
    for head in removed:
        counts[prunable[head.attention].kind.name] -= 1
    return counts


def name_of(model: Model, head: RankedHead) -> str:
    """cross.0.2: head 2 of the cross-attention of layer 0."""
    attention = prunable_attentions(model)[head.attention]
    return f"{attention.kind.name}.{attention.layer}.{head.head}"
