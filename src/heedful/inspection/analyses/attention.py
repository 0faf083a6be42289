"""An inspection: a trace with its views, to show in a notebook or to save as a report or as tensors.

result = heedful.load("runs/demo").inspect("I am trendy")
result                                     displays the report in a notebook
result.save("inspection.html")             the report as one self-contained file
result.save("inspection.safetensors")      all attention weights as float32, the tokens in the header
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from heedful.errors import ConfigError
from heedful.inspection.drawing.markup import escape
from heedful.inspection.measures.attention_maps import AttentionMap
from heedful.inspection.measures.attention_norms import entropy
from heedful.inspection.measures.trace import Trace, Views, trace_text, trace_translation, views_of
from heedful.inspection.report import Numbers, Section, write_page
from heedful.search import SearchConfig
from heedful.storage.writing import output_bytes
from heedful.tasks.system import System

ABOUT = {
    "cross": "output → source",
    "encoder": "source → source",
    "decoder": "output → output",
    "within": "output → source and output",
    "reading": "source → source",
}
FOOTER_ALONE = "Written by heedful. This file is self-contained and makes no network requests."
FOOTER = FOOTER_ALONE.replace(
    "heedful. ", "heedful. The row of an output token is the attention from the step that predicts it. "
)


class Inspection(NamedTuple):
    trace: Trace
    views: Views
    facts: list[str]  # short facts about the model
    sections: tuple[Section, ...] = ()

    def __str__(self) -> str:
        source = "" if self.trace.source is None else f"{self.trace.source.text} → "
        return f"{source}{self.trace.target.text}"

    def html(self) -> str:
        return write_page(f"Model inspection: {self}", FOOTER, *page_of(self), self.sections)

    def save(self, path: str | Path) -> Path:
        """Save as .html or .safetensors."""
        path = Path(path)
        if path.suffix not in (".html", ".safetensors"):
            raise ConfigError(f"given {path.name!r}, expected a file name in .html or .safetensors")
        return write_file(path, self.html().encode() if path.suffix == ".html" else as_safetensors(self))

    def _repr_html_(self) -> str:
        """Return the report in an iframe, which separates its styles from those of the notebook."""
        return (
            f'<iframe srcdoc="{escape(self.html())}" title="{escape(str(self))}" '
            'style="width:100%;height:900px;border:0" sandbox="allow-scripts"></iframe>'
        )


class Page(NamedTuple):
    """Sections about a model, without a sentence."""

    title: str
    facts: list[str]
    sections: tuple[Section, ...]

    def html(self) -> str:
        empty: dict[str, Any] = {"source": None, "target": None, "marks": [], "labels": [], "kinds": [], "words": None}
        content = {"title": [self.title], "facts": self.facts}
        return write_page(f"Model inspection: {self.title}", FOOTER_ALONE, empty | content, Numbers(0), self.sections)

    def save(self, path: str | Path) -> Path:
        return write_file(Path(path), self.html().encode())


def write_file(path: Path, content: bytes) -> Path:
    with output_bytes(path) as file:
        file.write(content)
    return path


def inspect(system: System, text: str, config: SearchConfig | None, target: str | None, facts: list[str]) -> Inspection:
    """Inspect a text with its translation by the system, or with the given target; config None: a text of a language model."""
    if not text.strip() or (target is not None and not target.strip()):
        raise ConfigError("given an empty sentence, expected at least one word")
    trace = trace_text(system, text) if config is None else trace_translation(system, text, config, target)
    if not trace.maps:
        raise ConfigError(
            "this model has no attention to inspect",
            hint="use --lens, --saliency, --alternatives or --patch-from, or `heed explain` with --step or --tree",
        )
    return Inspection(trace, views_of(system, trace), facts)


def page_of(result: Inspection) -> tuple[dict[str, Any], Numbers]:
    """Return the content and the arrays of the report."""
    trace, views = result.trace, result.views
    numbers = Numbers(sum(one.weights.numel() for one in trace.maps))
    labels: list[list[str]] = []

    def label(names: list[str]) -> int:
        if names not in labels:
            labels.append(names)
        return labels.index(names)

    rolled = {one.name: one for one in views.rollout}
    kinds = [
        {
            "name": name,
            "about": ABOUT.get(name, name) if trace.source is not None else "text → previous tokens",
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
    if views.words and trace.source is not None:
        layers = [{"layer": layer, "weights": numbers.add(maps.mean(0)[None])} for layer, maps in views.words.items()]
        words = {"source": words_of(trace.source), "target": words_of(trace.target), "layers": layers}
    content = {
        "title": [side.text for side in (trace.source, trace.target) if side is not None],
        "facts": result.facts,
        "source": None if trace.source is None else trace.spell(trace.source),
        "target": trace.target_tokens,
        "marks": [trace.start, trace.end],
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


def words_of(tokens: Any) -> list[str]:
    """Return the words of the text; numbers if the tokens do not match its whitespace-separated words."""
    words, count = tokens.text.split(), max(tokens.words) + 1
    return words if len(words) == count else [f"#{index}" for index in range(count)]


def as_safetensors(result: Inspection) -> bytes:
    """Return weights, norms ("lengths") and rollout by hook point; the header holds the tokens of rows and columns."""
    from safetensors.torch import save

    trace, views = result.trace, result.views
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
    sides = {"source": None if trace.source is None else trace.source._asdict(), "target": trace.target._asdict()}
    header = {name: json.dumps(value, ensure_ascii=False) for name, value in (sides | {"maps": maps}).items()}
    return save({name: tensor.float().cpu().contiguous() for name, tensor in tensors.items()}, metadata=header)
