"""Analysis of attention heads over a corpus: confidence, roles and importance.

    for head in study(system, pairs, frequencies).heads:
        head.kind, head.layer, head.head, head.confidence, head.roles, head.gradient, head.ablation

One forward pass records all weights; one pass with gradients and one ablation pass per head measure importance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional

from heedful.errors import ConfigError, DataError
from heedful.inspection.measures.head_statistics import Frequencies, HeadStatistics
from heedful.inspection.measures.head_views import AnnotatedPair
from heedful.inspection.measures.importance import LossFunction, ablations, gate_gradients, within_layer
from heedful.inspection.measures.relevance import NoRule, relevances
from heedful.inspection.measures.roles import Measure
from heedful.nn.hooks import record
from heedful.nn.model import ATTENTION_KINDS, AttentionLayer, Model, SequenceModel, inference_context
from heedful.tasks.batches import Batch, collate, pad
from heedful.tasks.system import System, batches_of

BATCH = 2**11  # tokens
Progress = Callable[[float], None]


class HeadResult(NamedTuple):
    kind: str
    layer: int
    head: int
    confidence: float | None  # None for block-local and compressed attention
    measures: list[Measure]
    alignment_error: float | None
    gradient: float  # nats per token
    share: float  # of the gradient within its layer; squares sum to 1
    ablation: float  # nats per token
    relevance: float | None  # share within its layer; None: not defined for this family

    @property
    def roles(self) -> list[Measure]:
        return [measure for measure in self.measures if measure.holds]

    @property
    def tendencies(self) -> list[Measure]:
        return [measure for measure in self.measures if measure.holds_mostly]


class HeadImportance(NamedTuple):
    """Importance per token of the heads of a layer: (heads,) each."""

    gradient: Tensor
    ablation: Tensor
    relevance: Tensor | None = None


class HeadStudy(NamedTuple):
    heads: list[HeadResult]
    loss: float  # nats per target token


def study(
    system: System, pairs: Sequence[AnnotatedPair], frequencies: Frequencies, report: Progress = lambda share: None
) -> HeadStudy:
    """Analyze all heads. frequencies: token counts of each side, required to detect rare-token heads. report: called with the
    share of the work done since the last call."""
    model = system.models[0]
    attentions = sorted(model.attentions(), key=lambda one: ATTENTION_KINDS.index(one.kind))
    if not attentions:
        raise ConfigError("this model has no attention heads")
    if not pairs:
        raise DataError(
            "all sentences were skipped, because they are empty or too long for the model; expected at least one",
            hint="give non-empty sentences within the model's maximum length",
        )
    statistics: dict[str, HeadStatistics | None] = {}
    gradients: dict[str, Tensor] = {}
    increases: dict[str, Tensor] = {}
    relevance: dict[str, Tensor] = {}
    loss = 0.0
    for batch, batch_pairs in batches(system, pairs):
        loss_function = partial(losses_of, system, batch)
        loss += collect(statistics, model, batch_pairs, loss_function, frequencies)
        gradients = add_by_name(gradients, gate_gradients(model, loss_function))
        passes = 1 + sum(map(len, gradients.values()))  # most of the work
        increases = add_by_name(
            increases, ablations(model, with_progress(loss_function, report, len(batch_pairs) / len(pairs) / passes))
        )
        relevance = add_by_name(relevance, relevances_of(system, batch))
    tokens = sum(len(pair.target.ids) + 1 for pair in pairs)
    heads: list[HeadResult] = []
    for attention in attentions:
        name = attention.weights
        if name in gradients:  # an empty source is not encoded
            share = relevance[name] / tokens if name in relevance else None
            importance = HeadImportance(gradients[name] / tokens, increases[name] / tokens, share)
            heads += heads_of(attention, statistics.get(name), importance)
    return HeadStudy(heads, loss / tokens)


def with_progress(loss_function: LossFunction, report: Progress, share: float) -> LossFunction:
    """Return a loss function that reports progress after every call."""

    def computed() -> Tensor:
        losses = loss_function()
        report(share)
        return losses

    return computed


def collect(
    statistics: dict[str, HeadStatistics | None],
    model: Model,
    pairs: Sequence[AnnotatedPair],
    loss_function: LossFunction,
    frequencies: Frequencies,
) -> float:
    """Add the statistics of one batch for every layer and return its loss. None: the keys of the layer are not tokens."""
    attentions = model.attentions()
    with inference_context(model), record(model, *(one.weights for one in attentions)) as recorded:
        loss = float(loss_function().sum())
    width = max(pair.source_length for pair in pairs) + (pairs[0].source is not None)
    lengths = {"source": width, "target": max(len(pair.target.ids) for pair in pairs) + 1}
    lengths["both"] = sum(lengths.values())
    for attention in attentions:
        name, kind = attention.weights, attention.kind
        if name not in recorded:
            continue
        weights, layer = recorded[name].cpu(), statistics.setdefault(name, HeadStatistics())
        if weights.shape[::2] != (len(pairs), lengths[kind.queries]) or weights.shape[3] != lengths[kind.keys]:
            statistics[name] = None
        elif layer is not None:
            for row, pair in zip(weights, pairs, strict=True):
                layer.add(kind, row, pair, width, frequencies)
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


def batches(system: System, pairs: Sequence[AnnotatedPair]) -> Iterator[tuple[Batch, list[AnnotatedPair]]]:
    """Yield batches with their pairs, the longest first."""
    lengths = [max(pair.source_length, len(pair.target.ids)) + 1 for pair in pairs]
    order = sorted(range(len(pairs)), key=lambda i: lengths[i], reverse=True)
    for chosen in batches_of(order, lambda i: lengths[i], BATCH):
        batch_pairs = [pairs[i] for i in chosen]
        yield batch_of(system, batch_pairs).to(system.device), batch_pairs


def batch_of(system: System, pairs: Sequence[AnnotatedPair]) -> Batch:
    """Collate pairs. Without a source a text starts after an end token, as in the training of language models."""
    marks, targets = system.target_tokenizer.specials, [pair.target.ids for pair in pairs]
    sources = [pair.source.ids for pair in pairs if pair.source is not None]
    if sources:
        return collate(sources, targets, system.source_tokenizer.specials, marks)
    inputs, outputs = (pad([[*b, *ids, *e] for ids in targets], marks.pad) for b, e in (([marks.end], []), ([], [marks.end])))
    return Batch(inputs[:, :0], None, inputs, outputs, sum(len(ids) + 1 for ids in targets))


def losses_of(system: System, batch: Batch) -> Tensor:
    """Return -log p of each target: (rows,)."""
    logits = logits_of(system.models[0], batch).float().transpose(1, 2)  # (rows, vocab, time)
    padding = system.target_tokenizer.specials.pad
    return functional.cross_entropy(logits, batch.target_out, ignore_index=padding, reduction="none").sum(-1)


def relevances_of(system: System, batch: Batch) -> dict[str, Tensor]:
    """Return relevances; empty for models with operations without a relevance rule."""
    model = system.models[0]
    try:
        return relevances(model, partial(logits_of, model, batch), batch.target_out != system.target_tokenizer.specials.pad)
    except NoRule:
        return {}


def logits_of(model: SequenceModel, batch: Batch) -> Tensor:
    """Return logits (rows, time, vocab)."""
    return model.forced_logits(batch.source, batch.source_mask, batch.target_in)
