"""The heads of a model over a corpus: how sure each is, what it does, and how much it matters.

    for head in study(system, pairs, frequencies).heads:
        head.kind, head.layer, head.head, head.confidence, head.roles, head.gradient, head.ablation

One pass tells where all of them look, one more with gradients and one for each head how much they matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from heedful.errors import ConfigError, DataError
from heedful.inspection.attention_maps import KINDS, Kind, attentions, inference_context, layer_of
from heedful.inspection.importance import LossFunction, ablations, gate_gradients, within_layer
from heedful.inspection.relevance import NoRule, relevances
from heedful.inspection.roles import Measure
from heedful.models import SequenceModel
from heedful.nn.hooks import record
from heedful.studies.head_statistics import Frequencies, HeadStatistics
from heedful.studies.head_views import AnnotatedPair
from heedful.tasks.batches import Batch, collate, pad
from heedful.tasks.translate import System, batches_of

BATCH = 2**11  # tokens
Progress = Callable[[float], None]


class HeadResult(NamedTuple):
    kind: str
    layer: int
    head: int
    confidence: float | None  # None: the layer looks at summaries or within blocks, not at tokens
    measures: list[Measure]
    alignment_error: float | None
    gradient: float  # nats a token
    share: float  # of the gradient within its layer; the squares add up to 1
    ablation: float  # nats a token
    relevance: float | None  # its share in its layer; None: not known of this family

    @property
    def roles(self) -> list[Measure]:
        return [one for one in self.measures if one.holds]

    @property
    def tendencies(self) -> list[Measure]:
        return [one for one in self.measures if one.holds_mostly]


class HeadImportance(NamedTuple):
    """How much the heads of a layer do, a token: (heads,) each."""

    gradient: Tensor
    ablation: Tensor
    relevance: Tensor | None = None


class HeadStudy(NamedTuple):
    heads: list[HeadResult]
    loss: float  # nats a token of the targets


def study(
    system: System, pairs: Sequence[AnnotatedPair], frequencies: Frequencies, report: Progress = lambda share: None
) -> HeadStudy:
    """frequencies: of a side's tokens; without them nobody is asked for the rare ones. tell: hears what share of the work was
    done since it heard last."""
    model = system.models[0]
    assert isinstance(model, nn.Module), "models are modules"
    if not attentions(model):
        raise ConfigError("this model has no attention, and so no heads to look at")
    if not pairs:
        raise DataError("no sentence is left to look at", hint="give sentences that the model can read")
    statistics: dict[str, HeadStatistics | None] = {}
    gradients: dict[str, Tensor] = {}
    grown: dict[str, Tensor] = {}
    relevant: dict[str, Tensor] = {}
    loss = 0.0
    for batch, some in batches(system, pairs):
        loss_function = partial(losses_of, system, batch)
        loss += collect(statistics, model, some, loss_function, frequencies)
        gradients = add_by_name(gradients, gate_gradients(model, loss_function))
        passes = 1 + sum(map(len, gradients.values()))  # nearly all of the work
        grown = add_by_name(grown, ablations(model, with_progress(loss_function, report, len(some) / len(pairs) / passes)))
        relevant = add_by_name(relevant, relevances_of(system, batch))
    tokens = sum(len(pair.target.ids) + 1 for pair in pairs)
    heads: list[HeadResult] = []
    for name, kind in sorted(attentions(model).items(), key=lambda item: list(KINDS.values()).index(item[1])):
        if name in gradients:  # an empty source is not read
            share = relevant[name] / tokens if name in relevant else None
            heads += heads_of(
                name, kind, statistics.get(name), HeadImportance(gradients[name] / tokens, grown[name] / tokens, share)
            )
    return HeadStudy(heads, loss / tokens)


def with_progress(loss_function: LossFunction, report: Progress, share: float) -> LossFunction:
    def passed() -> Tensor:
        losses = loss_function()
        report(share)
        return losses

    return passed


def collect(
    statistics: dict[str, HeadStatistics | None],
    model: nn.Module,
    pairs: Sequence[AnnotatedPair],
    loss_function: LossFunction,
    frequencies: Frequencies,
) -> float:
    """Adds what one pass over a batch shows, layer by layer; returns its loss. None: the layer does not look at tokens."""
    with inference_context(model), record(model, *attentions(model)) as seen:
        loss = float(loss_function().sum())
    width = max(pair.source_length for pair in pairs) + (pairs[0].source is not None)
    lengths = {"source": width, "target": max(len(pair.target.ids) for pair in pairs) + 1}
    lengths["both"] = sum(lengths.values())
    for name, kind in attentions(model).items():
        if name not in seen:
            continue
        weights, layer = seen[name].cpu(), statistics.setdefault(name, HeadStatistics())
        if weights.shape[::2] != (len(pairs), lengths[kind.queries]) or weights.shape[3] != lengths[kind.keys]:
            statistics[name] = None
        elif layer is not None:
            for row, pair in zip(weights, pairs, strict=True):
                layer.add(kind, row, pair, width, frequencies)
    return loss


def heads_of(name: str, kind: Kind, layer: HeadStatistics | None, importance: HeadImportance) -> Iterator[HeadResult]:
    heads = len(importance.gradient)
    nothing: list[None] = [None] * heads
    columns = (
        nothing if layer is None else layer.confidence(),
        [[] for _ in range(heads)] if layer is None else layer.measures(),
        nothing if layer is None else layer.alignment_errors(),
        importance.gradient.tolist(),
        within_layer(importance.gradient).tolist(),
        importance.ablation.tolist(),
        nothing if importance.relevance is None else importance.relevance.tolist(),
    )
    for head, row in enumerate(zip(*columns, strict=True)):
        yield HeadResult(kind.name, layer_of(name), head, *row)


def add_by_name(totals: Mapping[str, Tensor], more: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: totals[name] + one if name in totals else one for name, one in more.items()}


def batches(system: System, pairs: Sequence[AnnotatedPair]) -> Iterator[tuple[Batch, list[AnnotatedPair]]]:
    lengths = [max(pair.source_length, len(pair.target.ids)) + 1 for pair in pairs]
    order = sorted(range(len(pairs)), key=lambda i: lengths[i], reverse=True)
    for chosen in batches_of(order, lambda i: lengths[i], BATCH):
        some = [pairs[i] for i in chosen]
        yield batch_of(system, some).to(system.device), some


def batch_of(system: System, pairs: Sequence[AnnotatedPair]) -> Batch:
    """Where there is no source, a text goes on from the end of a line, as language models learn it."""
    marks, targets = system.target_tokenizer.specials, [pair.target.ids for pair in pairs]
    sources = [pair.source.ids for pair in pairs if pair.source is not None]
    if sources:
        return collate(sources, targets, system.source_tokenizer.specials, marks)
    fed, said = (pad([[*b, *ids, *e] for ids in targets], marks.pad) for b, e in (([marks.end], []), ([], [marks.end])))
    return Batch(fed[:, :0], None, fed, said, sum(len(ids) + 1 for ids in targets))


def losses_of(system: System, batch: Batch) -> Tensor:
    """-log p of each target: (rows,)."""
    logits = logits_of(system.models[0], batch).float().transpose(1, 2)  # (rows, vocab, time)
    padding = system.target_tokenizer.specials.pad
    return functional.cross_entropy(logits, batch.target_out, ignore_index=padding, reduction="none").sum(-1)


def relevances_of(system: System, batch: Batch) -> dict[str, Tensor]:
    """Nothing where the model has layers that relevance cannot be handed down through."""
    model: Any = system.models[0]
    try:
        return relevances(model, partial(logits_of, model, batch), batch.target_out != system.target_tokenizer.specials.pad)
    except NoRule:
        return {}


def logits_of(model: SequenceModel, batch: Batch) -> Tensor:
    """(rows, time, vocab)."""
    return model.project(model.step(batch.target_in, model.start(batch.source, batch.source_mask, room=0)).hidden)
