"""The content of the interactive page of a trace: labels, and arrays of weights, norms and rollout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from heedful.inspection.measures.attention_maps import AttentionMap
from heedful.inspection.measures.attention_norms import entropy
from heedful.inspection.measures.trace import Trace, Views
from heedful.inspection.page import Numbers
from heedful.tasks.encoded_example import Tokens, mark

ABOUT = {
    "cross": "output → source",
    "encoder": "source → source",
    "decoder": "output → output",
    "within": "output → source and output",
    "reading": "source → source",
}


def trace_content(trace: Trace, views: Views, facts: list[str]) -> tuple[dict[str, Any], Numbers]:
    """The content and the arrays of the page. facts: short facts about the model."""
    example, numbers = trace.example, Numbers(sum(one.weights.numel() for one in trace.maps))
    labels: list[list[str]] = []

    def label(names: list[str]) -> int:
        if names not in labels:
            labels.append(names)
        return labels.index(names)

    rolled = {one.name: one for one in views.rollout}
    kinds = [
        {
            "name": name,
            "about": ABOUT.get(name, name) if example.source is not None else "text → previous tokens",
            "queries": maps[0][0].kind.queries,
            "keys": maps[0][0].kind.keys,
            "layers": [
                {
                    "layer": one.layer,
                    "heads": len(one.weights),
                    "queries": label(trace.queries(one)),
                    "keys": label(trace.keys(one)),
                    "weights": numbers.add(one.weights),
                    "norms": numbers.add(norms, exact=True),
                    "rollout": numbers.add(rolled[one.name].weights) if one.name in rolled else None,
                    "entropy": entropy(one.weights).mean(-1).tolist(),
                    "largest": one.weights.amax(-1).mean(-1).tolist(),
                }
                for one, norms in maps
            ],
        }
        for name, maps in by_kind(zip(trace.maps, views.norms, strict=True)).items()
    ]
    words = None
    if views.words and example.source is not None:
        layers = [{"layer": layer, "weights": numbers.add(maps.mean(0)[None])} for layer, maps in views.words.items()]
        words = {"source": words_of(example.source), "target": words_of(example.target), "layers": layers}
    content = {
        "title": [side.text for side in (example.source, example.target) if side is not None],
        "facts": facts,
        "source": None if example.source is None else example.spell(example.source),
        "target": example.target_tokens,
        "consumes": example.reads_end,
        "marks": mark(example.start, [], example.end),
        "labels": labels,
        "kinds": kinds,
        "words": words,
    }
    return content, numbers


def by_kind(maps: Iterable[tuple[AttentionMap, Tensor]]) -> dict[str, list[tuple[AttentionMap, Tensor]]]:
    """Group by kind of attention, cross-attention first."""
    groups: dict[str, list[tuple[AttentionMap, Tensor]]] = {}
    for pair in sorted(maps, key=lambda pair: (pair[0].kind.queries == pair[0].kind.keys, pair[0].layer)):
        groups.setdefault(pair[0].kind.name, []).append(pair)
    return groups


def words_of(tokens: Tokens) -> list[str]:
    """The words of the text; numbers if the tokens do not match its whitespace-separated words."""
    words, count = tokens.text.split(), max(tokens.words) + 1
    return words if len(words) == count else [f"#{index}" for index in range(count)]
