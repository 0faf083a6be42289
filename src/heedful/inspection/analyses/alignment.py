"""Word alignment by attention: links between the words of sentence pairs, and where gold links are known their error rate.

alignment error rate 9.3%, 95% interval 8.7% to 10.0%; precision 91.2%, recall 90.3%

layer  heads  predict  consume  thresholds selected on validation
0      4      46.4%    80.1%    37.2%
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from heedful.data.gold import Gold, SentencePair
from heedful.data.input_lines import refuse_too_long
from heedful.data.samples import Sample
from heedful.errors import ConfigError, lookup
from heedful.evaluation.metrics import MIN_RESAMPLES, Score
from heedful.evaluation.symmetrization import SYMMETRIZATIONS
from heedful.evaluation.tables import table
from heedful.evaluation.word_alignment import Alignment, Link, alignment_error_rate, precision_and_recall
from heedful.inspection.drawing.figure import Figure, heatmap, side_by_side, stack
from heedful.inspection.drawing.text_heatmap import draw_text_heatmap
from heedful.inspection.measures.alignment_heads import (
    Aligner,
    AlignmentHead,
    Models,
    align,
    as_pharaoh,
    choose_aligner,
    collect_head_weights,
    heads_of,
    maps_of,
)
from heedful.inspection.measures.alignment_links import LinkRule
from heedful.inspection.measures.alignment_scores import GoldSet, HeadScore, LayerScore, by_head, by_layer
from heedful.inspection.page.blocks import Block, Pictures, Table, Words, sentence
from heedful.inspection.result import Result
from heedful.tasks.predictor import Predictor
from heedful.tasks.translation.guided_alignment import choose_layer
from heedful.tasks.translation.predictor import Translator

EXAMPLES = 50  # pairs whose attention weights are stored in the result
SHOWN = 2  # of them are drawn
SOFT = "soft"  # average the heads of both directions, instead of combining their links
LAYER_COLUMNS = ("layer", "heads", "predict", "consume", "thresholds selected on validation")
MOMENTS = "predict, consume: error rate of attention from the step that predicts the target word, or that consumes it"
Origin = Literal["given", "default", "selected"]


class SelectedOn(NamedTuple):
    """The validation pairs on which heads and thresholds were selected."""

    pairs: int
    error_rate: float


class ReverseLinks(NamedTuple):
    """How the links of the reverse direction were computed and combined."""

    aligner: Aligner
    method: str  # a key of SYMMETRIZATIONS


@dataclass(frozen=True)
class AlignmentScores:
    """Scores against gold links."""

    error_rate: Score
    precision: float
    recall: float
    layers: list[LayerScore]
    heads: list[HeadScore]  # each alone, with one link per target word


@dataclass(frozen=True, eq=False)
class AlignmentResult(Result):
    """The result of `alignment`.

    >>> result = heedful.inspection.alignment(translator, [("w1 w2", "w2 w1")])
    >>> result.without_links, len(result.pharaoh())
    (0, 1)
    """

    pairs: list[SentencePair]
    links: list[set[Link]]  # (source word, target word) of each pair
    aligner: Aligner  # heads, moment and thresholds
    origin: Origin  # of the aligner
    selected_on: SelectedOn | None
    reverse: ReverseLinks | None  # None: one direction, or heads of both directions averaged
    weights: list[Tensor]  # of the first pairs, (target words, source words): mean over the heads
    scores: AlignmentScores | None  # None: no gold links

    @property
    def title(self) -> str:
        return "Word alignment"

    @property
    def without_links(self) -> int:
        """The number of pairs without links."""
        return sum(not line for line in self.links)

    def pharaoh(self) -> list[str]:
        """The links of each pair in the Pharaoh format: 0-0 1-2."""
        return [as_pharaoh(line) for line in self.links]

    def to_dict(self) -> dict[str, Any]:
        result: dict[str, Any] = {"pairs": len(self.pairs), "aligner": aligner_to_dict(self.aligner)}
        if self.selected_on is not None:
            result["selected_on"] = self.selected_on._asdict()
        if self.reverse is not None:
            result["reverse"] = aligner_to_dict(self.reverse.aligner) | {"symmetrized": self.reverse.method}
        result["without_links"] = self.without_links
        if self.scores is not None:
            scores = self.scores
            result |= {"aer": asdict(scores.error_rate), "precision": scores.precision, "recall": scores.recall}
            result["layers"] = [layer_to_dict(layer) for layer in scores.layers]
            result["heads"] = [
                {"head": str(one.head), "predict": one.predict.value, "consume": one.consume.value} for one in scores.heads
            ]
        return result | {"links": [sorted(line) for line in self.links]}

    def first_pair(self) -> dict[str, Any]:
        """The words, weights and links of the first pair, and how they were computed."""
        pair = self.pairs[0]
        words = {"source": pair.source.split(), "target": pair.target.split()}
        links = {"links": sorted(self.links[0]), "pharaoh": self.pharaoh()[0], "weights": self.weights[0].tolist()}
        return words | links | {"aligner": aligner_to_dict(self.aligner)}

    def text(self) -> str:
        parts = ["\n".join([*self.header(), self.settings])]
        if self.scores is not None:
            parts += [table(self.layer_rows()), f"{table(self.head_rows())}\n{MOMENTS}"]
        return "\n\n".join([*parts, *(self.example_text(at) for at in self.examples()[:1])])

    def blocks(self) -> list[Block]:
        blocks: list[Block] = [Words(f"{sentence(text)}.") for text in (*self.header(), self.settings)]
        if self.scores is not None:
            blocks += [Table(self.layer_rows(), "error rate by layer"), Table(self.head_rows(), "error rate of each head")]
            blocks.append(Words(f"{sentence(MOMENTS)}.", "hint"))
        return [*blocks, *([Pictures(self.pictures())] if self.pictures() else [])]

    def figure(self) -> Figure:
        """Attention between the words of the first pairs, and with gold links the error rate of each head."""
        pictures = self.pictures()
        if not pictures:
            raise ConfigError("no pair has words on both sides; there is no alignment to draw")
        examples = side_by_side(*pictures[: len(self.examples())])
        return stack(examples, *pictures[len(self.examples()) :])

    @property
    def settings(self) -> str:
        """The aligner, as options of `heed align`, and where it comes from."""
        options = format_options(self.aligner)
        if self.selected_on is not None:
            pairs, rate = self.selected_on
            return f"selected on {pairs:,} other pairs, error rate {rate:.1%}: {options}"
        return f"default aligner, not selected on gold links: {options}" if self.origin == "default" else f"aligner: {options}"

    def header(self) -> list[str]:
        lines = [f"{len(self.pairs):,} pairs, {self.without_links:,} without links"]
        if self.scores is not None:
            rate = self.scores.error_rate
            interval = "" if rate.low is None else f", 95% interval {rate.low:.1%} to {rate.high:.1%}"
            scores = f"precision {self.scores.precision:.1%}, recall {self.scores.recall:.1%}"
            lines.append(f"alignment error rate {rate.value:.1%}{interval}; {scores}")
        return lines

    def layer_rows(self) -> list[tuple[str, ...]]:
        """The table of error rates by layer."""
        rows: list[tuple[str, ...]] = [LAYER_COLUMNS]
        for one in self.scores.layers if self.scores is not None else ():
            rates = [f"{score.value:.1%}" for score in (one.predict, one.consume)]
            rows.append((str(one.layer), str(one.heads), *rates, "-" if one.score is None else f"{one.score.value:.1%}"))
        return rows

    def head_rows(self) -> list[tuple[str, ...]]:
        """The table of error rates of single heads."""
        heads = self.scores.heads if self.scores is not None else []
        return [
            ("head", "predict", "consume"),
            *((str(one.head), f"{one.predict.value:.1%}", f"{one.consume.value:.1%}") for one in heads),
        ]

    def examples(self) -> list[int]:
        """The first pairs with words on both sides."""
        return [at for at, weights in enumerate(self.weights) if weights.numel()][:SHOWN]

    def example_text(self, at: int) -> str:
        pair = self.pairs[at]
        picture = draw_text_heatmap(self.weights[at], pair.source.split(), pair.target.split())
        return f"{pair.source}  ->  {pair.target}\n\n{picture}"

    def pictures(self) -> list[Figure]:
        figures = [
            heatmap(self.weights[at], self.pairs[at].target.split(), self.pairs[at].source.split(), f"pair {at + 1}")
            for at in self.examples()
        ]
        return [*figures, *([] if self.scores is None else [head_grid(self.scores.heads)])]


def alignment(
    predictor: Predictor,
    data: Gold | Sequence[tuple[str, str]] | None = None,
    *,
    aligner: Aligner | None = None,
    choose_on: Gold | None = None,
    reverse: Predictor | None = None,
    symmetrize: str = SOFT,
    bootstrap: int = 1000,
) -> AlignmentResult:
    """Align the words of sentence pairs by attention; given gold links, also compute the alignment error rate, by layer and by
    head.

    data: (source, target) pairs, or pairs with gold links; default: the run's test data, whose gold links are known for the
    built-in corpus. aligner: heads, moment and thresholds; default: selected on the pairs of choose_on (default: the
    validation data, if its links are known), else the guided heads of a guided run, else the mean of all heads. reverse: a
    model of the opposite direction. symmetrize: soft averages the heads of both models, the others combine their links.
    bootstrap: resamples for the 95% interval of the error rate; 0: no interval.

    >>> result = heedful.inspection.alignment(translator, [("w1 w2", "w2 w1")])
    >>> len(result.links)
    1
    """
    check_choices(aligner, choose_on, symmetrize, bootstrap)
    translator, back = Translator.of(predictor), None if reverse is None else Translator.of(reverse)
    gold, pairs, valid = read_pairs(translator, data)
    valid = choose_on or valid
    for number, pair in enumerate(pairs, start=1):
        for text in pair:
            refuse_too_long(text, f"pair {number}")
    models = Models(translator.system, back.system if back is not None and symmetrize == SOFT else None)
    chosen, origin, selected_on = choose(translator, models, aligner, valid)
    links, combined = list(align(models, pairs, chosen)), None
    if back is not None and symmetrize != SOFT:
        links, combined = combine(links, back, pairs, valid, symmetrize)
    (weights,) = maps_of(models, pairs[:EXAMPLES], chosen.heads, [chosen.moment])
    scores = None if gold is None else score(translator, links, gold, valid if aligner is None else None, bootstrap)
    return AlignmentResult(pairs, links, chosen, origin, selected_on, combined, [one.mean(0) for one in weights], scores)


def check_choices(aligner: Aligner | None, choose_on: Gold | None, symmetrize: str, bootstrap: int) -> None:
    lookup(symmetrize, {SOFT: None, **SYMMETRIZATIONS}, "symmetrization")
    if aligner is not None and choose_on is not None:
        raise ConfigError(
            "given pairs to select heads and thresholds on, and also heads or thresholds; they cannot be combined",
            hint="remove one of them",
        )
    if bootstrap and bootstrap < MIN_RESAMPLES:
        raise ConfigError(f"bootstrap: given {bootstrap}, expected 0 (no interval) or at least {MIN_RESAMPLES} resamples")


def read_pairs(
    translator: Translator, data: Gold | Sequence[tuple[str, str]] | None
) -> tuple[Gold | None, list[SentencePair], Gold | None]:
    """Gold links, the pairs to align, and validation pairs with gold links to select on."""
    if isinstance(data, Gold):
        return data, data.pairs, None
    if data is not None:
        return None, [SentencePair(*pair) for pair in data], None
    samples = list(translator.sample_texts("test"))
    if not samples:
        raise ConfigError("the run has no test data", hint="give sentence pairs: --source and --target")
    gold, valid = gold_of(samples), gold_of(list(translator.sample_texts("valid")))
    if gold is None or valid is None:
        return None, [SentencePair(one.source or "", one.target or "") for one in samples], None
    return gold, gold.pairs, valid


def gold_of(samples: Sequence[Sample]) -> Gold | None:
    """The pairs with their links; None unless the links of all are known."""
    alignments: list[Alignment] = [sample.alignment for sample in samples if sample.alignment is not None]
    if not alignments or len(alignments) < len(samples):
        return None
    return Gold([SentencePair(sample.source or "", sample.target or "") for sample in samples], alignments)


def find_heads(predictor: Predictor, names: str | None, reverse: Predictor | None = None) -> tuple[AlignmentHead, ...]:
    """Heads by name, layer.head, or of whole layers: "0.3,1" is head 3 of layer 0 and all heads of layer 1, "back.0.2" a head
    of the reverse model; default: all."""
    known = heads_of(Models(predictor.system, None if reverse is None else reverse.system))
    if names is None:
        return tuple(known)
    groups: dict[str, list[AlignmentHead]] = {}
    for head in known:
        groups.setdefault(str(head), []).append(head)
        groups.setdefault(str(head).rpartition(".")[0], []).append(head)
    unknown = [name for name in names.split(",") if name not in groups]
    if unknown:
        layers = ", ".join(name for name in groups if not any(str(head) == name for head in known))
        raise ConfigError(
            f"heads: given {names!r}, expected layer.head or a layer, as in 0.3,1; unknown head {unknown[0]}, expected any of: "
            f"{', '.join(map(str, known))}; layers with attention to the source: {layers}"
        )
    return tuple(dict.fromkeys(head for name in names.split(",") for head in groups[name]))


def choose(
    translator: Translator, models: Models, aligner: Aligner | None, valid: Gold | None
) -> tuple[Aligner, Origin, SelectedOn | None]:
    """The given aligner, the one with the lowest error rate on the validation pairs, or the default."""
    if aligner is not None:
        return aligner, "given", None
    if valid is None:
        return default_aligner(translator, models), "default", None
    chosen, error = choose_aligner(collect_head_weights(models, valid.pairs), valid.alignments)
    return chosen, "selected", SelectedOn(len(valid.pairs), error)


def default_aligner(translator: Translator, models: Models) -> Aligner:
    """The guided heads of a guided run, with a threshold for several links per word; otherwise the mean of all heads."""
    known, task = heads_of(models), translator.run.task
    if not task.guided_alignment:
        return Aligner(tuple(known))
    layer = choose_layer(sorted({head.layer for head in known if not head.back}), task.guided_layer)
    return Aligner(tuple(AlignmentHead(layer, number) for number in task.guided_heads), rule=LinkRule(row=0.3))


def combine(
    links: list[set[Link]], back: Translator, pairs: list[SentencePair], valid: Gold | None, method: str
) -> tuple[list[set[Link]], ReverseLinks]:
    """Symmetrize the links with those of a model of the opposite direction."""
    models = Models(back.system)
    aligner, _, _ = choose(back, models, None, None if valid is None else valid.swapped)
    swapped = [{(j, i) for i, j in line} for line in align(models, [pair.swapped for pair in pairs], aligner)]
    return list(map(SYMMETRIZATIONS[method], links, swapped)), ReverseLinks(aligner, method)


def score(translator: Translator, links: list[set[Link]], gold: Gold, valid: Gold | None, bootstrap: int) -> AlignmentScores:
    """Error rate, precision and recall of the links; error rates by layer, and of each head."""
    models = Models(translator.system)
    test = GoldSet(collect_head_weights(models, gold.pairs), gold.alignments)
    other = None if valid is None else GoldSet(collect_head_weights(models, valid.pairs), valid.alignments)
    rate = alignment_error_rate(links, gold.alignments, bootstrap=bootstrap)
    return AlignmentScores(rate, *precision_and_recall(links, gold.alignments), by_layer(test, other), by_head(test))


def layer_to_dict(layer: LayerScore) -> dict[str, Any]:
    result = {"layer": layer.layer, "heads": layer.heads, "predict": layer.predict.value, "consume": layer.consume.value}
    if layer.chosen is None or layer.score is None:
        return result
    return result | {"chosen": layer.score.value, "by": aligner_to_dict(layer.chosen)}


def aligner_to_dict(aligner: Aligner) -> dict[str, Any]:
    return {"heads": list(map(str, aligner.heads)), "moment": aligner.moment, **aligner.rule._asdict()}


def format_options(aligner: Aligner) -> str:
    """The command-line options that select this aligner."""
    one = aligner_to_dict(aligner)
    options = f"--moment {one['moment']} --row {one['row']} --column {one['column']} --cover {one['cover']}"
    return f"--heads {','.join(one['heads'])} {options}"


def head_grid(heads: Sequence[HeadScore]) -> Figure:
    """The error rate of each head: layers (rows) and heads (columns)."""
    layers = sorted({one.head.layer for one in heads})
    values = torch.full((len(layers), max(one.head.number for one in heads) + 1), math.nan)
    for one in heads:
        values[layers.index(one.head.layer), one.head.number] = one.predict.value
    names = [f"layer {layer}" for layer in layers], [f"head {number}" for number in range(values.shape[1])]
    return heatmap(values, *names, "alignment error rate of each head")
