"""What the heads of one layer do, gathered sentence by sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from heedful.data.conllu import Arc
from heedful.evaluation.word_alignment import Alignment, Link, alignment_error_rate
from heedful.inspection.attention_maps import Kind
from heedful.inspection.confidence import summed_confidence
from heedful.inspection.roles import (
    AttentionTargets,
    Measure,
    RoleName,
    Trials,
    attention_targets,
    measures_of_position,
    measures_of_trials,
    trials,
)
from heedful.studies.head_views import AnnotatedPair, View, is_self_attention, query_side, self_attention_view, source_view

Frequencies = Mapping[str, Tensor]  # of each side's tokens, by id: (vocab,)
RELATIONS = {"nsubj": "nsubj", "obj": "obj", "dobj": "obj", "amod": "amod", "advmod": "advmod"}  # by all their names


@dataclass
class HeadStatistics:
    """Of one layer's attention of one kind."""

    summed_confidence: list[Tensor] = field(default_factory=list)  # (heads,) for each sentence
    tokens: int = 0
    attention_targets: list[AttentionTargets] = field(default_factory=list)
    trials: dict[tuple[RoleName, str], list[Trials]] = field(default_factory=lambda: defaultdict(list))
    links: list[list[set[Link]]] = field(default_factory=list)  # for each sentence and head
    gold: list[Alignment] = field(default_factory=list)

    def add(self, kind: Kind, weights: Tensor, pair: AnnotatedPair, width: int, frequencies: Frequencies) -> None:
        """weights (heads, query, key) of one sentence, with marks and padding; width: of the padded source."""
        within = is_self_attention(kind)
        view = self_attention_view(kind, weights, pair, width) if within else source_view(weights, pair)
        self.summed_confidence.append(summed_confidence(view.weights))
        self.tokens += view.weights.shape[1]
        if within:
            self.add_roles(kind, view, pair, frequencies)
        if pair.alignment is not None and kind.queries == "target" and kind.keys != "target":
            self.add_alignment(source_view(weights, pair), pair.alignment)

    def add_roles(self, kind: Kind, view: View, pair: AnnotatedPair, frequencies: Frequencies) -> None:
        side, where = query_side(kind, pair), attention_targets(view.weights, view.shift)
        self.attention_targets.append(where)
        if kind.queries in frequencies:
            right = rarest(torch.tensor(side.ids), frequencies[kind.queries])  # (query,)
            self.trials["rare", ""].append(trials(where, pad_keys(right.expand(len(right), -1), view.shift) & view.seen))
        if side.arcs is not None:
            weights = view.of_words
            where, seen = attention_targets(weights, view.word_shift), weights.amax(0) > 0
            for what, right in relations(side.arcs, weights.shape[1]).items():
                self.trials["syntactic", what].append(trials(where, pad_keys(right, view.word_shift) & seen))

    def add_alignment(self, view: View, gold: Alignment) -> None:
        where = attention_targets(view.of_words)
        right = torch.zeros(where.at.shape[1], where.keys, dtype=torch.bool)
        for source, target in gold.possible:
            right[target, source] = True
        self.trials["alignment", ""].append(trials(where, right))
        self.links.append([{(source, target) for target, source in enumerate(row)} for row in where.at.tolist()])
        self.gold.append(gold)

    def confidence(self) -> list[float]:
        """Of each head."""
        found: list[float] = (torch.stack(self.summed_confidence).sum(0) / self.tokens).tolist()
        return found

    def measures(self) -> list[list[Measure]]:
        """Of each head."""
        columns = [measures_of_position(self.attention_targets)] if self.attention_targets else []
        columns += [measures_of_trials(role, what, several) for (role, what), several in self.trials.items()]
        return [list(row) for row in zip(*columns, strict=True)] or [[] for _ in self.summed_confidence[0]]

    def alignment_errors(self) -> list[float | None]:
        """Of each head."""
        if not self.gold:
            return [None for _ in self.summed_confidence[0]]
        return [alignment_error_rate(found, self.gold).value for found in zip(*self.links, strict=True)]


def rarest(ids: Tensor, frequency: Tensor) -> Tensor:
    """Where the least frequent token of a sentence stands, (time,); nowhere if several share that place."""
    counts = frequency[ids]
    least = counts == counts.min()
    return least & (ids == ids[counts.argmin()]).logical_or(~least).all()


def relations(arcs: Sequence[Arc], words: int) -> dict[str, Tensor]:
    """For each relation of a sentence, and for both ends of it, whom a word should look at: (words, words)."""
    right: dict[str, Tensor] = defaultdict(lambda: torch.zeros(words, words, dtype=torch.bool))
    for arc in arcs:
        if name := RELATIONS.get(arc.relation):
            right[f"{name} to head"][arc.dependent, arc.head] = True
            right[f"{name} to dependent"][arc.head, arc.dependent] = True
    return right


def pad_keys(right: Tensor, shift: int) -> Tensor:
    """(query, key) -> the same with so many keys in front."""
    return torch.nn.functional.pad(right, (shift, 0))
