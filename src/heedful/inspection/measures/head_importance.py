"""Analysis of attention heads over a corpus: confidence, roles and importance.

    batches = list(predictor.forced_batches(predictor.sample_texts("valid")))
    for head in study(predictor.model, batches, frequencies).heads:
        head.kind, head.layer, head.head, head.confidence, head.roles, head.gradient, head.ablation

One forward pass records all weights; one pass with gradients and one ablation pass per head measure importance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from heedful.errors import ConfigError, DataError
from heedful.inspection.measures.head_statistics import Frequencies, HeadStatistics
from heedful.inspection.measures.importance import LossFunction, ablations, gate_gradients, within_layer
from heedful.inspection.measures.relevance import NoRule, relevances
from heedful.inspection.measures.roles import Measure
from heedful.nn.hooks import record
from heedful.nn.model import ATTENTION_KINDS, AttentionLayer, Model, inference_context
from heedful.tasks.forced import ForcedBatch

Progress = Callable[[float], None]


class HeadResult(NamedTuple):
    kind: str
    layer: int
    head: int
    confidence: float | None  # None for block-local and compressed attention
    measures: list[Measure]
    alignment_error: float | None
    gradient: float  # nats per prediction
    share: float  # of the gradient within its layer; squares sum to 1
    ablation: float  # nats per prediction
    relevance: float | None  # share within its layer; None: not defined for this family

    @property
    def roles(self) -> list[Measure]:
        return [measure for measure in self.measures if measure.holds]

    @property
    def tendencies(self) -> list[Measure]:
        return [measure for measure in self.measures if measure.holds_mostly]


class HeadImportance(NamedTuple):
    """Importance per prediction of the heads of a layer: (heads,) each."""

    gradient: Tensor
    ablation: Tensor
    relevance: Tensor | None = None


class HeadStudy(NamedTuple):
    heads: list[HeadResult]
    loss: float  # nats per prediction: a target token, or a label


def study(
    model: Model, batches: Sequence[ForcedBatch], frequencies: Frequencies, report: Progress = lambda share: None
) -> HeadStudy:
    """Analyze all heads. frequencies: token counts of each side, required to detect rare-token heads. report: called with the
    share of the work done since the last call."""
    attentions = sorted(model.attentions(), key=lambda one: ATTENTION_KINDS.index(one.kind))
    if not attentions:
        raise ConfigError("this model has no attention heads")
    if not batches:
        raise DataError(
            "all sentences were skipped, because they are empty or too long for the model; expected at least one",
            hint="give non-empty sentences within the model's maximum length",
        )
    statistics: dict[str, HeadStatistics | None] = {}
    gradients: dict[str, Tensor] = {}
    increases: dict[str, Tensor] = {}
    relevance: dict[str, Tensor] = {}
    loss, examples = 0.0, sum(len(batch.targets) for batch in batches)
    for batch in batches:
        loss += collect(statistics, model, batch, frequencies)
        gradients = add_by_name(gradients, gate_gradients(model, batch.losses))
        passes = 1 + sum(map(len, gradients.values()))  # most of the work
        increases = add_by_name(
            increases, ablations(model, with_progress(batch.losses, report, len(batch.targets) / examples / passes))
        )
        relevance = add_by_name(relevance, relevances_of(model, batch))
    count = sum(int(batch.mask.sum()) for batch in batches)
    heads: list[HeadResult] = []
    for attention in attentions:
        name = attention.weights
        if name in gradients:  # an empty source is not encoded
            share = relevance[name] / count if name in relevance else None
            importance = HeadImportance(gradients[name] / count, increases[name] / count, share)
            heads += heads_of(attention, statistics.get(name), importance)
    return HeadStudy(heads, loss / count)


def with_progress(loss_function: LossFunction, report: Progress, share: float) -> LossFunction:
    """Return a loss function that reports progress after every call."""

    def computed() -> Tensor:
        losses = loss_function()
        report(share)
        return losses

    return computed


def collect(statistics: dict[str, HeadStatistics | None], model: Model, batch: ForcedBatch, frequencies: Frequencies) -> float:
    """Add the statistics of one batch for every layer and return its loss. None: the keys of the layer are not tokens."""
    attentions = model.attentions()
    with inference_context(model), record(model, *(one.weights for one in attentions)) as recorded:
        loss = float(batch.losses().sum())
    lengths = {"source": batch.source_time, "target": batch.target_time, "both": batch.source_time + batch.target_time}
    for attention in attentions:
        name, kind = attention.weights, attention.kind
        if name not in recorded:
            continue
        weights, layer = recorded[name].cpu(), statistics.setdefault(name, HeadStatistics())
        if weights.shape[::2] != (len(batch.samples), lengths[kind.queries]) or weights.shape[3] != lengths[kind.keys]:
            statistics[name] = None
        elif layer is not None:
            for row, sample in zip(weights, batch.samples, strict=True):
                layer.add(kind, row, sample, batch.source_time, frequencies)
    return loss


def heads_of(attention: AttentionLayer, layer: HeadStatistics | None, importance: HeadImportance) -> Iterator[HeadResult]:
    """Yield the results of the heads of one layer."""
    heads = len(importance.gradient)
    missing: list[None] = [None] * heads
    columns = (
        missing if layer is None else layer.confidence(),
        [[] for _ in range(heads)] if layer is None else layer.measures(),
        missing if layer is None else layer.alignment_errors(),
        importance.gradient.tolist(),
        within_layer(importance.gradient).tolist(),
        importance.ablation.tolist(),
        missing if importance.relevance is None else importance.relevance.tolist(),
    )
    for head, row in enumerate(zip(*columns, strict=True)):
        yield HeadResult(attention.kind.name, attention.layer, head, *row)


def add_by_name(totals: Mapping[str, Tensor], more: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add tensors of the same name."""
    return {name: totals[name] + one if name in totals else one for name, one in more.items()}


def relevances_of(model: Model, batch: ForcedBatch) -> dict[str, Tensor]:
    """Return relevances; empty for models with operations without a relevance rule."""
    try:
        return relevances(model, batch.logits, batch.mask)
    except NoRule:
        return {}
