"""Attention of every head: weights, norms of the weighted values, and rollout; the soft alignment of words.

kind   layer  head  entropy  largest  attends most to
cross  0      0     0.91     0.77     cats 0.26
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.evaluation.tables import table
from heedful.inspection.analyses.attention_figures import attention_figure
from heedful.inspection.analyses.example_text import TEXT, ExampleNames, ExampleText, example_names, example_text
from heedful.inspection.analyses.matrix import full_matrix
from heedful.inspection.drawing.figure import Figure
from heedful.inspection.drawing.text_heatmap import draw_text_heatmap
from heedful.inspection.measures.alignment_links import links
from heedful.inspection.measures.attention_maps import AttentionMap
from heedful.inspection.measures.attention_norms import entropy
from heedful.inspection.measures.merge_words import merge_into_words
from heedful.inspection.measures.trace import Trace, Views, trace_example, views_of, words_of
from heedful.inspection.page import Content, Section, write_page
from heedful.inspection.page.blocks import Block, Lines, Pictures, Table, Words
from heedful.inspection.page.trace_content import trace_content
from heedful.inspection.result import Result
from heedful.search import SearchConfig
from heedful.tasks.predictor import Predictor

By = Literal["weights", "norms", "rollout"]
TOP_KEY = {"weights": "attends most to", "norms": "receives most from", "rollout": "depends most on"}
VALUES = {
    "weights": "weight",
    "norms": "share, each norm divided by the sum of its row",
    "rollout": "share of the input, all heads and all lower layers combined",
}
NOTE = "Attention weights are not an explanation."


class Selection(NamedTuple):
    """The attention to show: all, or that of a kind, of a layer, or of one head."""

    kind: str | None = None
    layer: int | None = None
    head: int | None = None
    by: By = "weights"
    lines: bool = False  # draw lines between tokens instead of a heatmap

    @property
    def is_one_map(self) -> bool:
        return self.head is not None or (self.by == "rollout" and self.layer is not None)


ALL = Selection()


class HeadSummary(NamedTuple):
    """The attention of one head, averaged over the queries."""

    kind: str
    layer: int
    head: int | None  # None: rollout, which merges the heads of a layer
    entropy: float  # in bits
    largest: float  # mean over queries of the largest weight
    most: str  # the key with the largest mean weight
    share: float  # that weight


@dataclass(frozen=True)
class AttentionResult(Result):
    """The attention weights of an example, and what is derived from them.

    >>> result = heedful.inspection.attention(translator, "w1 w2", target="w2 w1")
    >>> result.alignment.shape  # target words, source words
    torch.Size([2, 2])
    >>> result.heads()[0].kind, len(result.views.rollout)
    ('cross', 4)
    """

    trace: Trace  # attention weights of every layer, with the tokens of queries and keys
    views: Views  # norms, rollout and weights between words
    selection: Selection = ALL
    facts: Sequence[str] = ()  # short facts about the model
    names: ExampleNames = TEXT

    @property
    def title(self) -> str:
        return "Attention"

    @property
    def subject(self) -> Sequence[str]:
        return self.example.subject

    @property
    def example(self) -> ExampleText:
        return example_text(self.trace.example, self.names)

    @property
    def alignment(self) -> Tensor | None:
        """Soft alignment, (target words, source words): the mean of all heads that attend to the source."""
        return torch.cat(list(self.views.words.values())).mean(0) if self.views.words else None

    @property
    def token_weights(self) -> Tensor | None:
        """Attention from the step that predicts each target token to each source token, (target tokens, source tokens): the
        mean of all heads that attend to the source."""
        source, target = self.trace.example.source, self.trace.example.target
        if source is None or not self.views.words:
            return None
        to_source = [one for one in self.trace.maps if one.kind.queries == "target" and one.kind.keys in ("source", "both")]
        heads = torch.cat([one.weights[:, : len(target.ids), : len(source.ids)] for one in to_source])
        return heads.mean(0)

    def to_dict(self) -> dict[str, Any]:
        shown = self.example
        result: dict[str, Any] = {
            "source": shown.source,
            "target": shown.target,
            "source_tokens": shown.source_tokens,
            "target_tokens": shown.target_tokens,
        }
        if self.selection.is_one_map:
            attention_map, values = self.select_map()
            queries, keys = self.trace.queries(attention_map), self.trace.keys(attention_map)
            return result | {"map": {"queries": queries, "keys": keys, "values": values[0].tolist()}}
        words = self.alignment_words()
        if words is not None and self.alignment is not None and self.selection.kind is None:
            source, target = words
            aligned = {"source": source, "target": target, "weights": self.alignment.tolist()}
            result["alignment"] = aligned | {"links": sorted(map(list, links(self.alignment)))}
            if self.token_weights is not None:
                tokens = {"source_words": shown.source_words, "target_words": shown.target_words}
                result["alignment"]["tokens"] = tokens | {"weights": self.token_weights.tolist()}
        return result | {"by": self.selection.by, "heads": [one._asdict() for one in self.heads()]}

    def all_maps(self, words: bool = False) -> dict[str, Any]:
        """The values of every head of the selected kind and layer, rounded to 6 decimals: what a grid of heads shows.

        words: merge the tokens of a word, the mean over queries and the sum over keys; start and end tokens are left out."""
        maps = []
        for one in self.displayable_maps():
            queries, keys = self.trace.query_words(one), self.trace.key_words(one)
            names, values = (self.trace.queries(one), self.trace.keys(one)), self.values_of(one)
            if words:
                names = self.trace.word_labels(one)
                values = torch.stack([merge_into_words(head.float().cpu(), keys, queries) for head in values])
                queries, keys = (list(range(len(side))) for side in names)
            numbers = [[[round(value, 6) for value in row] for row in head] for head in values.tolist()]
            sides = {"queries": names[0], "keys": names[1], "query_words": queries, "key_words": keys}
            maps.append({"kind": one.kind.name, "layer": one.layer, **sides, "values": numbers})
        heads = [] if words else [summary._asdict() for summary in self.heads()]
        shown = {"source": self.example.source, "target": self.example.target, "by": self.selection.by}
        return shown | {"maps": maps, "heads": heads}

    def text(self) -> str:
        shown = self.example
        parts = ["\n".join(shown.subject)]
        if self.selection.is_one_map:
            attention_map, values = self.select_map()
            parts.append(full_matrix(self.trace.queries(attention_map), self.trace.keys(attention_map), values[0].tolist()))
            return "\n\n".join(parts)
        words = self.alignment_words()
        if words is not None and self.alignment is not None and self.selection.kind is None:
            parts.append(draw_text_heatmap(self.alignment, *words))
            parts.append("links " + " ".join(f"{source}-{target}" for source, target in sorted(links(self.alignment))))
        return "\n\n".join([*parts, table(self.head_rows()), self.legend()])

    def blocks(self) -> list[Block]:
        if self.selection.is_one_map:
            attention_map, values = self.select_map()
            names = self.trace.queries(attention_map), self.trace.keys(attention_map)
            return [Pictures([self.figure()]), Lines(full_matrix(*names, values[0].tolist()))]
        return [Pictures([self.figure()]), Table(self.head_rows(), "attention of every head"), Words(self.legend(), "hint")]

    def figure(self) -> Figure:
        """The alignment of words; with a kind the grid of its heads; with a head, or rollout of a layer, one matrix."""
        return attention_figure(self)

    def html(self) -> str:
        return write_page(f"Model inspection: {' → '.join(self.subject)}", self.content(()))

    def content(self, others: Sequence[Section]) -> Content:
        """The page with the attention of every head, and other results. The summary of all heads has no block of its own."""
        attention, numbers = trace_content(self.trace, self.views)
        whole = Section(self.title, None, replace(self, selection=ALL).to_dict(), "attention")
        selected = {name: value for name, value in self.selection._asdict().items() if name != "lines" and value is not None}
        return Content(self.subject, [whole, *others], self.facts, self.subject[0], attention, numbers, selection=selected)

    def contents(self) -> dict[str, Callable[[], str | bytes]]:
        return super().contents() | {".safetensors": self.as_safetensors}

    def as_safetensors(self) -> bytes:
        """Weights, norms ("lengths") and rollout by hook point as float32; the header holds the tokens of rows and columns."""
        from safetensors.torch import save

        trace, views, example = self.trace, self.views, self.trace.example
        tensors = {one.name: one.weights for one in trace.maps}
        tensors |= {
            f"{one.name.removesuffix('.weights')}.lengths": norms for one, norms in zip(trace.maps, views.norms, strict=True)
        }
        tensors |= {f"{one.name.removesuffix('.weights')}.rollout": one.weights for one in views.rollout}
        tensors |= {f"words.{layer}": maps for layer, maps in views.words.items()}
        maps = {
            one.name: {"kind": one.kind.name, "layer": one.layer, "queries": trace.queries(one), "keys": trace.keys(one)}
            for one in trace.maps
        }
        sides = {"source": None if example.source is None else example.source._asdict(), "target": example.target._asdict()}
        header = {name: json.dumps(value, ensure_ascii=False) for name, value in (sides | {"maps": maps}).items()}
        return save({name: tensor.float().cpu().contiguous() for name, tensor in tensors.items()}, metadata=header)

    def alignment_words(self) -> tuple[list[str], list[str]] | None:
        """The words of source and target; None: the model does not attend to a source."""
        source, target = self.trace.example.source, self.trace.example.target
        return None if source is None or not self.views.words else (words_of(source), words_of(target))

    def heads(self) -> list[HeadSummary]:
        """A summary of every selected head."""
        ordered = sorted(self.displayable_maps(), key=lambda one: one.kind.name)  # cross, decoder, encoder
        return [row for attention_map in ordered for row in self.summarize(attention_map)]

    def summarize(self, attention_map: AttentionMap) -> list[HeadSummary]:
        """A row for each head; a rollout merges all heads, so it has one row. Norms are divided by their sum."""
        by, values = self.selection.by, self.values_of(attention_map)  # (heads, query, key)
        shares = values / values.sum(-1, keepdim=True).clamp(min=1e-12) if by == "norms" else values
        entropies, largest, top = entropy(shares).mean(-1), shares.amax(-1).mean(-1), shares.mean(1).max(-1)
        keys = self.trace.keys(attention_map)
        return [
            HeadSummary(
                attention_map.kind.name,
                attention_map.layer,
                None if by == "rollout" else head,
                float(entropies[head]),
                float(largest[head]),
                keys[int(top.indices[head])],
                float(top.values[head]),
            )
            for head in range(len(values))
        ]

    def head_rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("kind", "layer", "head", "entropy", "largest", TOP_KEY[self.selection.by])]
        for one in self.heads():
            name = one.kind, str(one.layer), "all" if one.head is None else str(one.head)
            rows.append((*name, f"{one.entropy:.2f}", f"{one.largest:.2f}", f"{one.most} {one.share:.2f}"))
        return rows

    def legend(self) -> str:
        by = self.selection.by
        included = ", start and end tokens included" if self.names.parts == "tokens" else ""
        largest = f"largest: mean over queries of the largest {VALUES[by]}{included}"
        return f"entropy: in bits; {largest}; {TOP_KEY[by]}: mean over all queries. {NOTE}"

    def select_maps(self) -> list[AttentionMap]:
        """The maps of the selected kind and layer; an unknown one is an error that lists those of the model."""
        maps, (kind, layer, *_) = self.trace.maps, self.selection
        kinds = list(dict.fromkeys(one.kind.name for one in maps))
        if kind is not None and kind not in kinds:
            raise ConfigError(f"kind: given {kind!r}, expected one of: {', '.join(kinds)}")
        of_kind = [one for one in maps if kind in (None, one.kind.name)]
        layers = [one.layer for one in of_kind]
        if layer is not None and layer not in layers:
            expected = f"expected one of: {', '.join(map(str, layers))} (the layers of kind {kind!r} that have heads)"
            by_kind = {name: ", ".join(str(one.layer) for one in maps if one.kind.name == name) for name in kinds}
            hint = f"choose a layer that has heads: {'; '.join(f'{name} {numbers}' for name, numbers in by_kind.items())}"
            raise ConfigError(f"layer: given {layer}, {expected}", hint=hint)
        return [one for one in of_kind if layer in (None, one.layer)]

    def displayable_maps(self) -> list[AttentionMap]:
        """The selected maps for which `by` is defined: not every layer has a rollout."""
        maps, with_rollout = self.select_maps(), {one.name for one in self.views.rollout}
        return [one for one in maps if self.selection.by != "rollout" or one.name in with_rollout] or maps

    def select_map(self) -> tuple[AttentionMap, Tensor]:
        """The selected layer's map and its values (heads, query, key), of all heads or of the selected one."""
        (attention_map, *_) = self.select_maps()
        values, head = self.values_of(attention_map), self.selection.head
        if head is None:
            return attention_map, values
        if head >= len(values):
            raise ConfigError(f"head: given {head}, expected 0 to {len(values) - 1}")
        return attention_map, values[head : head + 1]

    def values_of(self, attention_map: AttentionMap) -> Tensor:
        """Weights, norms or rollout of a map, (heads, query, key)."""
        by = self.selection.by
        if by == "norms":
            index = next(index for index, other in enumerate(self.trace.maps) if other.name == attention_map.name)
            return attention_map.weights * self.views.norms[index]
        if by == "rollout":
            rollout = {other.name: other.weights for other in self.views.rollout}
            if attention_map.name not in rollout:
                kinds = ", ".join(dict.fromkeys(other.kind.name for other in self.views.rollout))
                expected = f"expected one of: {kinds}" if kinds else "nor has any other kind of this model"
                given = f"rollout is defined for self-attention only; {attention_map.kind.name} has no rollout"
                raise ConfigError(f"{given}, {expected}", hint="use weights or norms, which are defined for every kind")
            return rollout[attention_map.name]
        return attention_map.weights


def attention(
    predictor: Predictor,
    text: str,
    target: str | None = None,
    *,
    config: SearchConfig | None = None,
    kind: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    by: By = "weights",
    lines: bool = False,
) -> AttentionResult:
    """Attention weights of every head in a teacher-forced pass over a text and its translation, or over `target`.

    kind, layer, head: show only these; by: weights, norms of the weighted value vectors (Kobayashi et al., 2020) or attention
    rollout (Abnar and Zuidema, 2020); lines: draw lines between tokens instead of a heatmap.

    >>> result = heedful.inspection.attention(translator, "w1 w2", target="w2 w1")
    >>> result.trace.maps[0].weights.shape  # heads, queries, keys
    torch.Size([2, 3, 3])
    """
    selection = Selection(kind, layer, head, by, lines)
    check_selection(selection)
    trace = trace_example(predictor, predictor.encode_example(text, target, config))
    require_attention(trace)
    facts = predictor.run.model.family, predictor.checkpoint.parent.parent.name
    result = AttentionResult(trace, views_of(predictor, trace), selection, facts, example_names(predictor))
    result.select_map() if selection.is_one_map else result.heads()  # an unknown layer or head is an error now
    return result


def require_attention(trace: Trace) -> None:
    if not trace.maps:
        raise ConfigError(
            "this model has no attention to inspect",
            hint="use lens, saliency, alternatives or patch, or `heed explain` with --step or --tree",
        )


def check_selection(selection: Selection) -> None:
    """Raise an error for the first option that would have no effect."""
    kind, layer, head, by, lines = selection
    if kind is None and (layer is not None or by != "weights"):
        raise ConfigError(f"{'by' if layer is None else 'layer'} has no effect without a kind of attention", hint="add a kind")
    if layer is None and (head is not None or lines):
        raise ConfigError(f"{'lines' if head is None else 'head'} has no effect without a layer", hint="add a layer")
    if by == "rollout" and head is not None:
        raise ConfigError("rollout merges all heads of a layer, so a head has no effect", hint="remove the head")
    if lines and by != "rollout" and head is None:
        raise ConfigError("lines are drawn for one head, but no head is given", hint="add a head")
