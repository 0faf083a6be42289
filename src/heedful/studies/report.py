"""An inspection: a trace with its views, ready to be shown in a notebook, saved as a report, or kept as numbers.

seen = heedful.load("runs/demo").inspect("I am trendy")
seen                         a notebook shows the report
seen.save("look.html")       the same as one file that needs nothing else
seen.save("look.safetensors")        every map as float32, the tokens in the header
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from heedful.errors import ConfigError
from heedful.inspection.attention_maps import AttentionMap
from heedful.inspection.attention_norms import entropy
from heedful.inspection.markup import escape
from heedful.inspection.report import Numbers, Section, write_page
from heedful.search import SearchConfig
from heedful.storage.writing import output_bytes
from heedful.studies.trace import Trace, Views, trace_text, trace_translation, views_of
from heedful.tasks.translate import System

ABOUT = {
    "cross": "translation → source",
    "encoder": "source → source",
    "decoder": "translation → translation",
    "within": "text → all before it",
    "reading": "source → source",
}
FOOTER_ALONE = "Written by heedful. This file holds everything it shows and asks the network for nothing."
FOOTER = FOOTER_ALONE.replace(
    "heedful. ", "heedful. A token that was said stands for the moment at which it was said: it looks from there. "
)


class Inspection(NamedTuple):
    trace: Trace
    views: Views
    facts: list[str]  # of the model, a few words each
    sections: tuple[Section, ...] = ()

    def __str__(self) -> str:
        read = "" if self.trace.source is None else f"{self.trace.source.text} → "
        return f"{read}{self.trace.target.text}"

    def html(self) -> str:
        return write_page(f"Looking inside: {self}", FOOTER, *page_of(self), self.sections)

    def save(self, path: str | Path) -> Path:
        """As .html, or as .safetensors."""
        path = Path(path)
        if path.suffix not in (".html", ".safetensors"):
            raise ConfigError(f"an inspection was to be saved as {path.name!r}; expected a name in .html or .safetensors")
        return write_file(path, self.html().encode() if path.suffix == ".html" else as_safetensors(self))

    def _repr_html_(self) -> str:
        """A frame of its own, so that neither the notebook's styles nor ours reach each other."""
        return (
            f'<iframe srcdoc="{escape(self.html())}" title="{escape(str(self))}" '
            'style="width:100%;height:900px;border:0" sandbox="allow-scripts"></iframe>'
        )


class Page(NamedTuple):
    """What parts found of a model alone, without a sentence."""

    title: str
    facts: list[str]
    sections: tuple[Section, ...]

    def html(self) -> str:
        nothing: dict[str, Any] = {"source": None, "target": None, "marks": [], "labels": [], "kinds": [], "words": None}
        found = {"title": [self.title], "facts": self.facts}
        return write_page(f"Looking inside: {self.title}", FOOTER_ALONE, nothing | found, Numbers(0), self.sections)

    def save(self, path: str | Path) -> Path:
        return write_file(Path(path), self.html().encode())


def write_file(path: Path, content: bytes) -> Path:
    with output_bytes(path) as file:
        file.write(content)
    return path


def inspect(system: System, text: str, config: SearchConfig | None, target: str | None, facts: list[str]) -> Inspection:
    """Of a text and the translation that the search finds, or the given one; config None: of a text that is only read."""
    if not text.strip() or (target is not None and not target.strip()):
        raise ConfigError("an empty sentence was given; expected one that has words")
    trace = trace_text(system, text) if config is None else trace_translation(system, text, config, target)
    if not trace.maps:
        raise ConfigError(
            "this model does not attend, so it looks at nothing",
            hint="--lens, --saliency, --alternatives and --patch-from work without; `heed explain` has --step and --tree",
        )
    return Inspection(trace, views_of(system, trace), facts)


def page_of(seen: Inspection) -> tuple[dict[str, Any], Numbers]:
    trace, views = seen.trace, seen.views
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
            "about": ABOUT.get(name, name) if trace.source is not None else "text → itself",
            "queries": maps[0][0].kind.queries,
            "keys": maps[0][0].kind.keys,
            "layers": [
                {
                    "layer": one.layer,
                    "heads": len(one.weights),
                    "queries": label(trace.queries(one)),
                    "keys": label(trace.keys(one)),
                    "weights": numbers.add(one.weights),
                    "lengths": numbers.add(lengths, exact=True),
                    "rollout": numbers.add(rolled[one.name].weights) if one.name in rolled else None,
                    "entropy": entropy(one.weights).mean(-1).tolist(),
                    "largest": one.weights.amax(-1).mean(-1).tolist(),
                }
                for one, lengths in maps
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
        "facts": seen.facts,
        "source": None if trace.source is None else trace.spell(trace.source),
        "target": trace.target_tokens,
        "marks": [trace.start, trace.end],
        "labels": labels,
        "kinds": kinds,
        "words": words,
    }
    return content, numbers


def by_kind(maps: Iterable[tuple[AttentionMap, Tensor]]) -> dict[str, list[tuple[AttentionMap, Tensor]]]:
    """In the order in which one would ask: first what was said looks at what was read."""
    found: dict[str, list[tuple[AttentionMap, Tensor]]] = {}
    for one in sorted(maps, key=lambda pair: (pair[0].kind.queries == pair[0].kind.keys, pair[0].layer)):
        found.setdefault(one[0].kind.name, []).append(one)
    return found


def words_of(tokens: Any) -> list[str]:
    """One name for each word that pieces belong to; the text may be spelled otherwise than it was encoded."""
    words, count = tokens.text.split(), max(tokens.words) + 1
    return words if len(words) == count else [f"#{place}" for place in range(count)]


def as_safetensors(seen: Inspection) -> bytes:
    """weights and lengths by the name of the tap, rollout by layer; the header says whose tokens the rows and columns are."""
    from safetensors.torch import save

    trace, views = seen.trace, seen.views
    tensors = {one.name: one.weights for one in trace.maps}
    tensors |= {
        f"{one.name.removesuffix('.weights')}.lengths": lengths for one, lengths in zip(trace.maps, views.norms, strict=True)
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
