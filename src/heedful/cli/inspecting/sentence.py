"""heed inspect RUN "a sentence": its translation, how the words align, and what every head looked at.

kind   layer  head  entropy  largest  looks most at
cross  0      0     0.91     0.77     cats 0.26
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.cli.output import table

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.inspection.attention_maps import AttentionMap
    from heedful.predictor import Predictor
    from heedful.studies.report import Inspection


MOST = {"weights": "looks most at", "norms": "is given most by", "rollout": "comes most from"}
OF = {
    "weights": "weights",
    "norms": "shares, each norm divided by the sum of its row",
    "rollout": "shares of the input, all heads and all layers below taken together",
}
NOTE = "Attention is not an explanation."


class Where(NamedTuple):
    """What is asked for, the more the narrower."""

    kind: str | None = None
    layer: int | None = None
    head: int | None = None
    by: str = "weights"

    @property
    def one_map(self) -> bool:
        return self.head is not None or (self.by == "rollout" and self.layer is not None)


def found(worker: Predictor, seen: Inspection, where: Where) -> dict[str, Any]:
    trace, views = seen.trace, seen.views
    result: dict[str, Any] = {
        "source": None if trace.source is None else trace.source.text,
        "target": trace.target.text,
        "source_tokens": None if trace.source is None else trace.source.pieces,
        "target_tokens": trace.target.pieces,
    }
    if where.one_map:
        one, values = chosen(seen, where)
        return result | {"map": {"queries": trace.queries(one), "keys": trace.keys(one), "values": values[0].tolist()}}
    if views.words and trace.source is not None and where.kind is None:
        import torch

        from heedful.inspection.alignment_links import links
        from heedful.studies.report import words_of

        mean = torch.cat(list(views.words.values())).mean(0)  # (target words, source words)
        names = {"source": words_of(trace.source), "target": words_of(trace.target)}
        result["alignment"] = names | {"weights": mean.tolist(), "links": sorted(links(mean))}
    ordered = sorted(shown_maps(seen, where), key=lambda one: one.kind.name)  # cross, decoder, encoder
    return result | {"by": where.by, "heads": [row for one in ordered for row in heads_of(seen, one, where.by)]}


def maps_of(seen: Inspection, where: Where) -> list[AttentionMap]:
    """The maps of a kind and layer, or of all; one that is not there is an error that says which are."""
    from heedful.errors import ConfigError

    kinds = list(dict.fromkeys(one.kind.name for one in seen.trace.maps))
    if where.kind is not None and where.kind not in kinds:
        raise ConfigError(f"--kind: given {where.kind!r}, expected one of: {', '.join(kinds) or 'none, it does not attend'}")
    of_kind = [one for one in seen.trace.maps if where.kind in (None, one.kind.name)]
    layers = [one.layer for one in of_kind]
    if where.layer is not None and where.layer not in layers:
        expected = f"expected one of: {', '.join(map(str, layers))} (the layers of kind {where.kind!r} that have heads)"
        every = "; ".join(f"{kind} {', '.join(map(str, found))}" for kind, found in layers_by_kind(seen).items())
        raise ConfigError(f"--layer: given {where.layer}, {expected}", hint=f"layers that have heads, by kind: {every}")
    return [one for one in of_kind if where.layer in (None, one.layer)]


def layers_by_kind(seen: Inspection) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in seen.trace.maps:
        found.setdefault(one.kind.name, []).append(one.layer)
    return found


def shown_maps(seen: Inspection, where: Where) -> list[AttentionMap]:
    """Those that can be shown by the way asked for: not every layer has a rollout."""
    maps, rolled = maps_of(seen, where), {one.name for one in seen.views.rollout}
    return [one for one in maps if where.by != "rollout" or one.name in rolled] or maps


def chosen(seen: Inspection, where: Where) -> tuple[AttentionMap, Tensor]:
    """A layer's map, and its values (heads, query, key) by the way asked for; of one head, if one is asked for."""
    from heedful.errors import ConfigError

    (one, *_) = maps_of(seen, where)
    values = values_of(seen, one, where.by)
    if where.head is None:
        return one, values
    if where.head >= len(values):
        raise ConfigError(f"--head: given {where.head}, expected 0 to {len(values) - 1}")
    return one, values[where.head : where.head + 1]


def values_of(seen: Inspection, one: AttentionMap, by: str) -> Tensor:
    from heedful.errors import ConfigError

    if by == "norms":
        at = next(at for at, other in enumerate(seen.trace.maps) if other.name == one.name)
        return one.weights * seen.views.norms[at]
    if by == "rollout":
        rolled = {other.name: other.weights for other in seen.views.rollout}
        if one.name not in rolled:
            kinds = ", ".join(dict.fromkeys(other.kind.name for other in seen.views.rollout))
            others = f"expected one of: {kinds}" if kinds else "nor has any other kind of this model"
            given = (
                f"--by rollout follows tokens through layers that look at their own sequence; {one.kind.name} has no rollout"
            )
            raise ConfigError(f"{given}, {others}", hint="--by weights and --by norms show every kind")
        return rolled[one.name]
    return one.weights


def heads_of(seen: Inspection, one: AttentionMap, by: str) -> list[dict[str, Any]]:
    """A row for each head; a rollout has merged them, so it has one row, of no head. Norms count as shares of their sum."""
    from heedful.inspection.attention_norms import entropy

    values = values_of(seen, one, by)  # (heads, query, key)
    shares = values / values.sum(-1, keepdim=True).clamp(min=1e-12) if by == "norms" else values
    spread, sure, most = entropy(shares).mean(-1), shares.amax(-1).mean(-1), shares.mean(1).max(-1)
    keys = seen.trace.keys(one)
    return [
        {
            "kind": one.kind.name,
            "layer": one.layer,
            "head": None if by == "rollout" else head,
            "entropy": float(spread[head]),
            "largest": float(sure[head]),
            "most": keys[int(most.indices[head])],
            "share": float(most.values[head]),
        }
        for head in range(len(values))
    ]


def as_text(found: dict[str, Any]) -> str:
    said = found["target"] if found["source"] is None else f"{found['source']}\n{found['target']}"
    parts = [said]
    if "map" in found:
        parts.append(numbers(found["map"]))
    if "alignment" in found:
        import torch

        from heedful.inspection.text_heatmap import draw_text_heatmap

        words = found["alignment"]
        parts.append(draw_text_heatmap(torch.tensor(words["weights"]), words["source"], words["target"]))
        parts.append("links " + " ".join(f"{source}-{target}" for source, target in words["links"]))
    if "heads" in found:
        rows = [("kind", "layer", "head", "entropy", "largest", MOST[found["by"]])]
        for one in found["heads"]:
            place = one["kind"], str(one["layer"]), "all" if one["head"] is None else str(one["head"])
            rows.append((*place, f"{one['entropy']:.2f}", f"{one['largest']:.2f}", f"{one['most']} {one['share']:.2f}"))
        parts.append(table(rows))
        largest = f"largest: the mean of the largest {OF[found['by']]}, the start and the end counted"
        parts.append(f"entropy in bits; {largest}; {MOST[found['by']]}: its mean over all tokens that look. {NOTE}")
    return "\n\n".join(parts)


def numbers(one: dict[str, Any]) -> str:
    """Rows look at columns."""
    from heedful.inspection.text_heatmap import columns, pad_to_width, printable_token

    names, rows = [printable_token(name) for name in one["keys"]], [printable_token(name) for name in one["queries"]]
    cells = [[f"{value:.4f}" for value in row] for row in one["values"]]
    widths = [max(columns(name), *(len(row[at]) for row in cells)) for at, name in enumerate(names)]
    left = max(map(columns, rows))
    lines = [[" " * left, *(pad_to_width(name, width) for name, width in zip(names, widths, strict=True))]]
    for name, row in zip(rows, cells, strict=True):
        lines.append([pad_to_width(name, left), *(cell.ljust(width) for cell, width in zip(row, widths, strict=True))])
    return "\n".join(" ".join(line).rstrip() for line in lines)
