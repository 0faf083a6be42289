"""Role and importance of every attention head over a corpus.

kind     layer  head  confidence  gradient  ablation  relevance  role
encoder  0      0     0.94        0.41      +0.0213   0.22       position -1 96%
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from textwrap import fill
from typing import Any, ClassVar, Literal, NamedTuple

from heedful.data.conllu import read_trees
from heedful.data.samples import Sample
from heedful.errors import ConfigError, DataError
from heedful.evaluation.tables import table
from heedful.inspection.drawing.figure import Figure
from heedful.inspection.drawing.head_figures import Cell, Legend, format_importance, grids, head_figure
from heedful.inspection.measures.head_importance import HeadResult, study
from heedful.inspection.measures.head_statistics import Frequencies, count_tokens
from heedful.inspection.measures.roles import FEWEST, MOSTLY, Measure
from heedful.inspection.page.blocks import Block, Heading, Pictures, Table, Terms, Words, sentence
from heedful.inspection.result import Result
from heedful.tasks.predictor import Predictor
from heedful.text.tokenizer import Tokenizer

FREQUENCY_LINES = 20_000  # lines of training text from which token frequencies are counted
NO_RELEVANCE = "relevance: not defined for this family, which has layers that do not propagate it."
RELATIONS_TITLE = "Agreement: the best head of each kind for each grammatical relation"
COLUMNS = {
    "confidence": "mean of the largest attention weight",
    "gradient": "|dL/dgate|, normalized to length 1 within a layer",
    "ablation": "increase of the loss without the head, in nats per {unit}",
    "relevance": "share of the layer's relevance that flows through the head",
    "role": "share of tokens whose largest weight is there (in parentheses: of the best fixed offset)",
}
ENDS = {  # relation: its dependent and its head
    "nsubj": ("subject", "verb"),
    "obj": ("object", "verb"),
    "amod": ("adjective", "noun"),
    "advmod": ("adverb", "verb"),
}


class RelationResult(NamedTuple):
    """How well the best head of a kind follows a grammatical relation: agreement of verb and subject, adjective and noun."""

    kind: str
    relation: str  # nsubj to head, …
    layer: int
    head: int
    accuracy: float  # share of the cases in which the largest weight is on the other word of the relation
    baseline: float  # of the best fixed offset
    cases: int

    @property
    def pair(self) -> str:
        """verb → subject"""
        name, _, end = self.relation.partition(" to ")
        dependent, head = ENDS[name]
        return f"{dependent} → {head}" if end == "head" else f"{head} → {dependent}"


@dataclass(frozen=True)
class HeadsResult(Result):
    """The result of `heads`.

    >>> result = heedful.inspection.heads(translator, sentences=5)
    >>> head = result.heads[0]
    >>> head.kind, head.layer, head.head
    ('encoder', 0, 0)
    """

    analysis: ClassVar[str] = "heads"

    corpus: str  # description of the sentences
    sentences: int
    left_out: int  # sentences that are empty, too long, or have a token that spans two words
    loss: float  # nats per unit
    unit: str  # token, or example
    frequencies: str  # description of the text from which token frequencies were counted
    heads: list[HeadResult]

    @property
    def title(self) -> str:
        return "Roles of the heads"

    def to_dict(self) -> dict[str, Any]:
        return {
            "corpus": self.corpus,
            "sentences": self.sentences,
            "left_out": self.left_out,
            "loss": self.loss,
            "unit": self.unit,
            "frequencies": self.frequencies,
            "heads": [head_to_dict(head) for head in self.heads],
            "relations": [one._asdict() | {"pair": one.pair} for one in self.relations],
        }

    def text(self) -> str:
        columns = fill(" ".join(f"{name}: {meaning}." for name, meaning in self.columns.items()), 120)
        relations = ["", RELATIONS_TITLE, table(self.relation_rows())] if self.relations else []
        return "\n".join([self.header, table(self.rows()), columns, *self.remarks(), *relations])

    def blocks(self) -> list[Block]:
        cells = self.cells()
        captions = f"{explain_colors(cells)} (square-root scale)", explain_marks(cells)
        relations: list[Block] = [Heading(RELATIONS_TITLE), Table(self.relation_rows(), "relations")] if self.relations else []
        return [
            Words(f"{self.header}."),
            Pictures(grids(cells, self.loss_unit), ". ".join(sentence(text) for text in captions if text) + "."),
            Table(self.rows(), "all heads"),
            Terms(self.columns),
            *(Words(sentence(text), "hint") for text in self.remarks()),
            *relations,
        ]

    def figure(self) -> Figure:
        cells = self.cells()
        return head_figure(cells, Legend(self.loss_unit, explain_colors(cells), explain_marks(cells)))

    @property
    def header(self) -> str:
        left = f", {self.left_out:,} left out" if self.left_out else ""
        return f"{self.sentences:,} sentences of {self.corpus}{left}; loss {self.loss:.4f} {self.loss_unit}"

    @property
    def loss_unit(self) -> str:
        return f"nats per {self.unit}"

    @property
    def columns(self) -> dict[str, str]:
        """The columns that have values, each with its meaning."""
        has_relevance = any(head.relevance is not None for head in self.heads)
        used = {name: meaning for name, meaning in COLUMNS.items() if has_relevance or name != "relevance"}
        return {name: meaning.format(unit=self.unit) for name, meaning in used.items()}

    def rows(self) -> list[tuple[str, ...]]:
        """The table of all heads."""
        rows: list[tuple[str, ...]] = [("kind", "layer", "head", *self.columns)]
        for head in self.heads:
            confidence, relevance = ("" if value is None else f"{value:.2f}" for value in (head.confidence, head.relevance))
            name = head.kind, str(head.layer), str(head.head)
            importance = f"{head.share:.2f}", f"{head.ablation:+.4f}", *([relevance] if "relevance" in self.columns else [])
            roles = [format_role(role, head.alignment_error) for role in head.roles]
            roles += [f"mostly {format_role(role, None)}" for role in head.tendencies]
            rows.append((*name, confidence, *importance, ", ".join(roles) or "-"))
        return rows

    @property
    def relations(self) -> list[RelationResult]:
        """The best head of each kind of attention for each relation of the dependency trees; empty without trees."""
        best: dict[tuple[str, str], RelationResult] = {}
        for head in self.heads:
            for one in head.measures:
                found = best.get((head.kind, one.what))
                if one.role == "syntactic" and one.cases >= FEWEST and (found is None or one.value > found.accuracy):
                    named = head.kind, one.what, head.layer, head.head
                    best[head.kind, one.what] = RelationResult(*named, one.value, one.baseline or 0.0, one.cases)
        return list(best.values())

    def relation_rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("from → to", "best head", "accuracy", "best fixed offset", "cases")]
        for one in self.relations:
            shares = f"{one.accuracy:.0%}", f"{one.baseline:.0%}"
            rows.append(
                (f"{one.pair} ({one.relation.split()[0]})", f"{one.kind}.{one.layer}.{one.head}", *shares, f"{one.cases:,}")
            )
        return rows

    def cells(self) -> list[Cell]:
        return [Cell(head.kind, head.layer, head.head, head.ablation, head_marks(head)) for head in self.heads]

    def remarks(self) -> list[str]:
        """How rare tokens were counted, if a head attends to them; and whether relevance is undefined."""
        has_rare = any(role.role == "rare" for head in self.heads for role in head.roles)
        rare = [f"rare: by token frequency in {self.frequencies}."] if has_rare else []
        return rare + ([] if "relevance" in self.columns else [NO_RELEVANCE])


def heads(
    predictor: Predictor,
    data: str | Path | None = None,
    conllu: str | Path | None = None,
    sentences: int = 200,
    progress: Callable[[float], None] | None = None,
) -> HeadsResult:
    """Role, confidence and importance of every attention head, over sentences of the run's validation data.

    data: instead, a file in the format of the task; for translation, lines of source TAB target TAB alignment, the last two
    optional. conllu: instead, dependency trees. Missing targets are predicted by the model. progress: called with the share of
    the work done since the last call.

    >>> result = heedful.inspection.heads(translator, sentences=5)
    >>> len(result.heads), result.sentences
    (12, 5)
    >>> most_important = max(result.heads, key=lambda head: head.ablation)
    """
    if data is not None and conllu is not None:
        raise ConfigError("given both data and dependency trees (conllu), expected one of them")
    samples = list(islice(samples_of(predictor, data, conllu), sentences))
    batches = list(predictor.forced_batches(samples))
    if not batches:
        raise DataError(
            f"none of the {len(samples)} sentences can be analyzed: each is empty, longer than "
            f"{predictor.system.max_length} tokens, or has a token that spans two words",
            hint="use sentences like those of the training data",
        )
    frequencies, counted = token_frequencies(predictor, samples)
    studied = study(predictor.model, batches, frequencies, progress or (lambda share: None))
    count = sum(len(batch.targets) for batch in batches)
    return HeadsResult(
        corpus=str(conllu or data or "the run's validation data"),
        sentences=count,
        left_out=len(samples) - count,
        loss=studied.loss,
        unit=predictor.run.task.unit.removesuffix("s"),
        frequencies=counted,
        heads=studied.heads,
    )


def samples_of(predictor: Predictor, data: str | Path | None, conllu: str | Path | None) -> Iterator[Sample]:
    if conllu is not None:
        return (predictor.sample_of(tree.text, tree.arcs) for tree in read_trees(Path(conllu)))
    return predictor.sample_texts("valid") if data is None else predictor.read_samples(Path(data))


def token_frequencies(predictor: Predictor, samples: Sequence[Sample]) -> tuple[Frequencies, str]:
    """Token frequencies of the training text, or of the samples if that is missing; and a description of the text counted.
    The frames of numeric sequences and the patches of an image have none."""
    if predictor.run.model.numeric_inputs:
        return {}, "no text: the inputs are numbers"
    tokenizers: dict[Literal["source", "target"], Tokenizer] = {"target": predictor.system.target_tokenizer}
    if predictor.reads_text:
        tokenizers["source"] = predictor.system.source_tokenizer
    try:
        lines = {side: list(islice(predictor.training_lines(side), FREQUENCY_LINES)) for side in tokenizers}
        counted = f"the first {max(map(len, lines.values())):,} lines of the training text"
    except DataError:
        lines = {
            "source": [sample.source or sample.target or "" for sample in samples],
            "target": [sample.target or sample.source or "" for sample in samples],
        }
        counted = "these sentences, because the training text is missing"
    return {side: count_tokens(tokenizer, lines[side]) for side, tokenizer in tokenizers.items()}, counted


def head_to_dict(head: HeadResult) -> dict[str, Any]:
    measures = {"roles": head.roles, "tendencies": head.tendencies, "measures": head.measures}
    return head._asdict() | {name: [one._asdict() for one in several] for name, several in measures.items()}


def format_role(role: Measure, error: float | None) -> str:
    """error: the alignment error rate of the head."""
    name = {"positional": "position", "syntactic": "", "rare": "rare", "alignment": "alignment"}[role.role]
    baseline = "" if role.baseline is None else f" ({role.baseline:.0%})"
    aer = f", AER {error:.1%}" if role.role == "alignment" and error is not None else ""
    share = f"{role.value:.0%}" if round(role.value, 2) != MOSTLY else f"{role.value:.1%}"  # 50.4% is not 50%
    return f"{' '.join(filter(None, (name, role.what)))} {share}{baseline}{aer}"


def head_marks(head: HeadResult) -> list[str]:
    return [*map(short_role, head.roles), *(f"({short_role(one)})" for one in head.tendencies)]


def short_role(role: Measure) -> str:
    """A role as a short mark that fits into a cell."""
    marks = {"positional": role.what, "rare": "rare", "alignment": "align"}
    return marks.get(role.role) or role.what.replace(" to head", "→h").replace(" to dependent", "→d")


def explain_colors(cells: Sequence[Cell]) -> str:
    """The legend of the colors that occur."""
    has_negative = any(format_importance(cell.importance).startswith("-") for cell in cells)
    return "blue: loss increases without the head" + " · orange: loss decreases" * has_negative


def explain_marks(cells: Sequence[Cell]) -> str:
    """The legend of the marks that occur."""
    used = list(dict.fromkeys(mark for cell in cells for mark in cell.marks))
    plain = dict.fromkeys(mark.strip("()") for mark in used)
    mostly = ["in parentheses: mostly"] if any(mark.startswith("(") for mark in used) else []
    return "attends to — " + " · ".join([*map(explain_mark, plain), *mostly]) if used else ""


def explain_mark(mark: str) -> str:
    """-1: the previous token"""
    offset = re.fullmatch(r"([+-])(\d+)", mark)
    if offset:
        if offset[2] == "1":
            return f"{mark}: the {'previous' if offset[1] == '-' else 'next'} token"
        return f"{mark}: {offset[2]} tokens {'before' if offset[1] == '-' else 'after'}"
    relation, arrow, end = mark.partition("→")
    if arrow:
        return f"{mark}: the syntactic head of {relation}" if end == "h" else f"{mark}: the {relation} of a syntactic head"
    return {"itself": "itself: the same token", "rare": "rare: the rarest token", "align": "align: the aligned word"}[mark]
