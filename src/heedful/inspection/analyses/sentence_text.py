"""heed inspect RUN "a sentence": its translation, its word alignment, and a summary of every head's attention.

kind   layer  head  entropy  largest  attends most to
cross  0      0     0.91     0.77     cats 0.26
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.cli.output import table

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.inspection.analyses.attention import Inspection
    from heedful.inspection.measures.attention_maps import AttentionMap
    from heedful.tasks.predictor import Predictor


TOP_KEY = {"weights": "attends most to", "norms": "receives most from", "rollout": "depends most on"}
VALUES = {
    "weights": "weight",
    "norms": "share, each norm divided by the sum of its row",
    "rollout": "share of the input, all heads and all lower layers combined",
}
NOTE = "Attention weights are not an explanation."


class Selection(NamedTuple):
    """The attention maps to show: all, or those of a kind, of a layer, or of one head."""

    kind: str | None = None
    layer: int | None = None
    head: int | None = None
    by: str = "weights"

    @property
    def is_one_map(self) -> bool:
        return self.head is not None or (self.by == "rollout" and self.layer is not None)


def compute(worker: Predictor, inspection: Inspection, selection: Selection) -> dict[str, Any]:
    trace, views = inspection.trace, inspection.views
    result: dict[str, Any] = {
        "source": None if trace.source is None else trace.source.text,
        "target": trace.target.text,
        "source_tokens": None if trace.source is None else trace.source.pieces,
        "target_tokens": trace.target.pieces,
    }
    if selection.is_one_map:
        attention_map, values = select_map(inspection, selection)
        return result | {
            "map": {"queries": trace.queries(attention_map), "keys": trace.keys(attention_map), "values": values[0].tolist()}
        }
    if views.words and trace.source is not None and selection.kind is None:
        import torch

        from heedful.inspection.analyses.attention import words_of
        from heedful.inspection.measures.alignment_links import links

        mean = torch.cat(list(views.words.values())).mean(0)  # (target words, source words)
        words = {"source": words_of(trace.source), "target": words_of(trace.target)}
        result["alignment"] = words | {"weights": mean.tolist(), "links": sorted(links(mean))}
    ordered = sorted(
        displayable_maps(inspection, selection), key=lambda attention_map: attention_map.kind.name
    )  # cross, decoder, encoder
    return result | {
        "by": selection.by,
        "heads": [row for attention_map in ordered for row in head_rows(inspection, attention_map, selection.by)],
    }


def select_maps(inspection: Inspection, selection: Selection) -> list[AttentionMap]:
    """The maps of the selected kind and layer; an unknown one is an error that lists those of the model."""
    from heedful.errors import ConfigError

    maps = inspection.trace.maps
    kinds = list(dict.fromkeys(attention_map.kind.name for attention_map in maps))
    if selection.kind is not None and selection.kind not in kinds:
        expected = f"expected one of: {', '.join(kinds)}" if kinds else "but this model has no attention"
        raise ConfigError(f"--kind: given {selection.kind!r}, {expected}")
    of_kind = [attention_map for attention_map in maps if selection.kind in (None, attention_map.kind.name)]
    layers = [attention_map.layer for attention_map in of_kind]
    if selection.layer is not None and selection.layer not in layers:
        expected = f"expected one of: {', '.join(map(str, layers))} (the layers of kind {selection.kind!r} that have heads)"
        by_kind = {
            kind: ", ".join(str(attention_map.layer) for attention_map in maps if attention_map.kind.name == kind)
            for kind in kinds
        }
        hint = f"choose a layer that has heads: {'; '.join(f'{kind} {numbers}' for kind, numbers in by_kind.items())}"
        raise ConfigError(f"--layer: given {selection.layer}, {expected}", hint=hint)
    return [attention_map for attention_map in of_kind if selection.layer in (None, attention_map.layer)]


def displayable_maps(inspection: Inspection, selection: Selection) -> list[AttentionMap]:
    """The selected maps for which `selection.by` is defined: not every layer has a rollout."""
    maps, with_rollout = select_maps(inspection, selection), {attention_map.name for attention_map in inspection.views.rollout}
    return [attention_map for attention_map in maps if selection.by != "rollout" or attention_map.name in with_rollout] or maps


def select_map(inspection: Inspection, selection: Selection) -> tuple[AttentionMap, Tensor]:
    """The selected layer's map and its values (heads, query, key), of all heads or of the selected one."""
    from heedful.errors import ConfigError

    (attention_map, *_) = select_maps(inspection, selection)
    values = map_values(inspection, attention_map, selection.by)
    if selection.head is None:
        return attention_map, values
    if selection.head >= len(values):
        raise ConfigError(f"--head: given {selection.head}, expected 0 to {len(values) - 1}")
    return attention_map, values[selection.head : selection.head + 1]


def map_values(inspection: Inspection, attention_map: AttentionMap, by: str) -> Tensor:
    """Weights, norms or rollout of a map, (heads, query, key)."""
    from heedful.errors import ConfigError

    if by == "norms":
        index = next(index for index, other in enumerate(inspection.trace.maps) if other.name == attention_map.name)
        return attention_map.weights * inspection.views.norms[index]
    if by == "rollout":
        rollout = {other.name: other.weights for other in inspection.views.rollout}
        if attention_map.name not in rollout:
            kinds = ", ".join(dict.fromkeys(other.kind.name for other in inspection.views.rollout))
            expected = f"expected one of: {kinds}" if kinds else "nor has any other kind of this model"
            given = f"--by rollout is defined for self-attention only; {attention_map.kind.name} has no rollout"
            raise ConfigError(f"{given}, {expected}", hint="use --by weights or --by norms, which are defined for every kind")
        return rollout[attention_map.name]
    return attention_map.weights


def head_rows(inspection: Inspection, attention_map: AttentionMap, by: str) -> list[dict[str, Any]]:
    """A row for each head; a rollout merges all heads, so it has one row. Norms are divided by their sum."""
    from heedful.inspection.measures.attention_norms import entropy

    values = map_values(inspection, attention_map, by)  # (heads, query, key)
    shares = values / values.sum(-1, keepdim=True).clamp(min=1e-12) if by == "norms" else values
    entropies, largest, top = entropy(shares).mean(-1), shares.amax(-1).mean(-1), shares.mean(1).max(-1)
    keys = inspection.trace.keys(attention_map)
    return [
        {
            "kind": attention_map.kind.name,
            "layer": attention_map.layer,
            "head": None if by == "rollout" else head,
            "entropy": float(entropies[head]),
            "largest": float(largest[head]),
            "most": keys[int(top.indices[head])],
            "share": float(top.values[head]),
        }
        for head in range(len(values))
    ]


def format_text(result: dict[str, Any]) -> str:
    parts = [result["target"] if result["source"] is None else f"{result['source']}\n{result['target']}"]
    if "map" in result:
        parts.append(format_matrix(result["map"]))
    if "alignment" in result:
        import torch

        from heedful.inspection.drawing.text_heatmap import draw_text_heatmap

        words = result["alignment"]
        parts.append(draw_text_heatmap(torch.tensor(words["weights"]), words["source"], words["target"]))
        parts.append("links " + " ".join(f"{source}-{target}" for source, target in words["links"]))
    if "heads" in result:
        top_key = TOP_KEY[result["by"]]
        rows = [("kind", "layer", "head", "entropy", "largest", top_key)]
        for row in result["heads"]:
            name = row["kind"], str(row["layer"]), "all" if row["head"] is None else str(row["head"])
            rows.append((*name, f"{row['entropy']:.2f}", f"{row['largest']:.2f}", f"{row['most']} {row['share']:.2f}"))
        parts.append(table(rows))
        largest = f"largest: mean over queries of the largest {VALUES[result['by']]}, start and end tokens included"
        parts.append(f"entropy: in bits; {largest}; {top_key}: mean over all queries. {NOTE}")
    return "\n\n".join(parts)


def format_matrix(attention_map: dict[str, Any]) -> str:
    """The values of a map as text; rows are queries, columns keys."""
    from heedful.inspection.drawing.text_heatmap import columns, pad_to_width, printable_token

    names, rows = (
        [printable_token(name) for name in attention_map["keys"]],
        [printable_token(name) for name in attention_map["queries"]],
    )
    cells = [[f"{value:.4f}" for value in row] for row in attention_map["values"]]
    widths = [max(columns(name), *(len(row[at]) for row in cells)) for at, name in enumerate(names)]
    left = max(map(columns, rows))
    lines = [[" " * left, *(pad_to_width(name, width) for name, width in zip(names, widths, strict=True))]]
    for name, row in zip(rows, cells, strict=True):
        lines.append([pad_to_width(name, left), *(cell.ljust(width) for cell, width in zip(row, widths, strict=True))])
    return "\n".join(" ".join(line).rstrip() for line in lines)
