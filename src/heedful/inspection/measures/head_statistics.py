"""Statistics of the heads of one layer, accumulated over sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from heedful.data.conllu import Arc
from heedful.evaluation.word_alignment import Alignment, Link, alignment_error_rate
from heedful.inspection.measures.confidence import summed_confidence
from heedful.inspection.measures.head_views import (
    View,
    is_self_attention,
    query_side,
    self_attention_view,
    source_view,
)
from heedful.inspection.measures.roles import (
    AttentionTargets,
    Measure,
    RoleName,
    Trials,
    attention_targets,
    measures_of_position,
    measures_of_trials,
    trials,
)
from heedful.nn.model import AttentionKind
from heedful.tasks.forced import EncodedSample
from heedful.text.tokenizer import Tokenizer

Frequencies = Mapping[str, Tensor]  # side -> token counts by id, (vocab,)
RELATIONS = {
    "nsubj": "nsubj",
    "obj": "obj",
    "dobj": "obj",
    "amod": "amod",
    "advmod": "advmod",
}  # including names of older treebanks


@dataclass
class HeadStatistics:
    """Statistics of one kind of attention in one layer."""

    summed_confidence: list[Tensor] = field(default_factory=list)  # (heads,) of each sentence
    tokens: int = 0
    attention_targets: list[AttentionTargets] = field(default_factory=list)
    trials: dict[tuple[RoleName, str], list[Trials]] = field(default_factory=lambda: defaultdict(list))
    links: list[list[set[Link]]] = field(default_factory=list)  # for each sentence and head
    gold: list[Alignment] = field(default_factory=list)

    def add(self, kind: AttentionKind, weights: Tensor, sample: EncodedSample, width: int, frequencies: Frequencies) -> None:
        """Add weights (heads, query, key) of one sentence, with special tokens and padding; width: of the padded source."""
        is_self = is_self_attention(kind)
        view = self_attention_view(kind, weights, sample, width) if is_self else source_view(weights, sample)
        self.summed_confidence.append(summed_confidence(view.weights))
        self.tokens += view.weights.shape[1]
        if is_self:
            self.add_roles(kind, view, sample, frequencies)
        if sample.alignment is not None and kind.queries == "target" and kind.keys != "target":
            self.add_alignment(source_view(weights, sample), sample.alignment)

    def add_roles(self, kind: AttentionKind, view: View, sample: EncodedSample, frequencies: Frequencies) -> None:
        side, targets = query_side(kind, sample), attention_targets(view.weights, view.shift)
        self.attention_targets.append(targets)
        if kind.queries in frequencies:
            expected = rarest(torch.tensor(side.ids), frequencies[kind.queries])  # (query,)
            self.trials["rare", ""].append(
                trials(targets, pad_keys(expected.expand(len(expected), -1), view.shift) & view.attended)
            )
        if side.arcs is not None:
            weights = view.of_words
            targets, attended = attention_targets(weights, view.word_shift), weights.amax(0) > 0
            for what, expected in relations(side.arcs, weights.shape[1]).items():
                self.trials["syntactic", what].append(trials(targets, pad_keys(expected, view.word_shift) & attended))

    def add_alignment(self, view: View, gold: Alignment) -> None:
        targets = attention_targets(view.of_words)
        expected = torch.zeros(targets.at.shape[1], targets.keys, dtype=torch.bool)
        for source, target in gold.possible:
            expected[target, source] = True
        self.trials["alignment", ""].append(trials(targets, expected))
        self.links.append([{(source, target) for target, source in enumerate(row)} for row in targets.at.tolist()])
        self.gold.append(gold)

    def confidence(self) -> list[float]:
        """Return the confidence of each head."""
        values: list[float] = (torch.stack(self.summed_confidence).sum(0) / self.tokens).tolist()
        return values

    def measures(self) -> list[list[Measure]]:
        """Return the measures of each head."""
        columns = [measures_of_position(self.attention_targets)] if self.attention_targets else []
        columns += [measures_of_trials(role, what, merged) for (role, what), merged in self.trials.items()]
        return [list(row) for row in zip(*columns, strict=True)] or [[] for _ in self.summed_confidence[0]]

    def alignment_errors(self) -> list[float | None]:
        """Return the alignment error rate of each head."""
        if not self.gold:
            return [None for _ in self.summed_confidence[0]]
        return [alignment_error_rate(links, self.gold).value for links in zip(*self.links, strict=True)]


def count_tokens(tokenizer: Tokenizer, lines: Sequence[str]) -> Tensor:
    """The number of occurrences of each id: (vocab,)."""
    counts = torch.zeros(len(tokenizer), dtype=torch.long)
    for ids in tokenizer.encode_many(lines):
        counts += torch.bincount(torch.tensor(ids, dtype=torch.long), minlength=len(tokenizer))
    return counts


def rarest(ids: Tensor, frequency: Tensor) -> Tensor:
    """Return a mask of the least frequent token of a sentence, (time,); all False if several tokens tie."""
    counts = frequency[ids]
    least = counts == counts.min()
    return least & (ids == ids[counts.argmin()]).logical_or(~least).all()


def relations(arcs: Sequence[Arc], words: int) -> dict[str, Tensor]:
    """Return for each relation and direction the expected keys of each word: (words, words)."""
    expected: dict[str, Tensor] = defaultdict(lambda: torch.zeros(words, words, dtype=torch.bool))
    for arc in arcs:
        if name := RELATIONS.get(arc.relation):
            expected[f"{name} to head"][arc.dependent, arc.head] = True
            expected[f"{name} to dependent"][arc.head, arc.dependent] = True
    return expected


def pad_keys(expected: Tensor, shift: int) -> Tensor:
    """(query, key) -> (query, shift + key), False in front."""
    return torch.nn.functional.pad(expected, (shift, 0))
