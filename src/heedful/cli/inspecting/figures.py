"""heed inspect RUN "a sentence" --picture FILE: the alignment; with --kind the wall of its heads; with --head that map; with
--saliency what each token rests on; with --patch-from what is won back where; with --lens what each layer would say. Below
each stand the sentences and what its rows and columns are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli.inspecting.sentence import Where, chosen, shown_maps, values_of

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.cli.inspecting.interventions import Won
    from heedful.inspection.attention_maps import AttentionMap
    from heedful.inspection.figure import Figure
    from heedful.studies.report import Inspection

Spell = Callable[[str], str]  # how a text is written, where not every letter can be drawn
LONGEST = 160  # columns of a sentence that a caption tells
MOST_CELLS, OUTLYING = 0.95, 2.0  # shades are of the size that so many cells keep within, where the largest is so much larger
WON = "blue: what was said becomes likelier; red: less likely"
ABOUT_LENS = (
    "rows: layers, the last one at the bottom; columns: tokens that are said",
    "shade: the probability of the word",
    "•: the word that the last layer says, too",
)


def draw(seen: Inspection, where: Where, path: Path, *, lines: bool = False, found: Mapping[str, Any]) -> None:
    """As .svg, or through matplotlib as .png. found: what the parts that were asked for found."""
    from heedful.inspection.plots import replace_missing_glyphs, save

    def figure(spell: Spell) -> Figure:
        if where.kind is not None:
            return one_map(seen, where, lines, spell) if where.one_map else wall(seen, where, spell)
        if "lens" in found:
            return layers(seen, found["lens"], spell)
        saliency = found.get("interventions", {}).get("saliency")
        if saliency is not None:
            return salient(seen, saliency, spell)
        if "patched" in found.get("interventions", {}):
            return patched(seen, found["interventions"], spell)
        return alignment(seen, spell)

    save(figure(str if path.suffix == ".svg" else replace_missing_glyphs), path)


def wall(seen: Inspection, where: Where, spell: Spell) -> Figure:
    from heedful.inspection import figure
    from heedful.inspection.text_heatmap import printable_token

    maps = shown_maps(seen, where)
    layers = [(one.layer, values_of(seen, one, where.by)) for one in maps]
    rolled = where.by == "rollout"
    title = f"{where.kind}: {'rollout, all heads of a layer as one' if rolled else f'all heads, {where.by}'}"
    made = figure.head_grid(layers, title, relative=where.by != "weights", merged=rolled)
    tokens = [printable_token(" ".join(names), LONGEST) for names in (seen.trace.queries(maps[0]), seen.trace.keys(maps[0]))]
    told = [spell(f"{side}: {names}") for side, names in zip(sides(seen, maps[0]), tokens, strict=True)]
    return figure.add_caption(made, [*sentences(seen, spell), *told])


def one_map(seen: Inspection, where: Where, lines: bool, spell: Spell) -> Figure:
    from heedful.inspection import figure

    one, (values, *_) = chosen(seen, where)
    rows, columns = ([spell(name) for name in names] for names in (seen.trace.queries(one), seen.trace.keys(one)))
    place = f"head {where.head}, {where.by}" if where.head is not None else "rollout, all heads as one"
    most = max(float(values.max()), 1e-12) if where.by != "weights" else 1.0
    title = f"{where.kind} · layer {one.layer} · {place}"
    made = (figure.lines if lines else figure.heatmap)(values, rows, columns, title, most)
    return figure.add_caption(made, [*sentences(seen, spell), *([] if lines else sides(seen, one))])


def alignment(seen: Inspection, spell: Spell) -> Figure:
    import torch

    from heedful.errors import ConfigError
    from heedful.inspection.figure import add_caption, heatmap
    from heedful.studies.report import words_of

    source = seen.trace.source
    if source is None or not seen.views.words:
        raise ConfigError("there is no alignment to draw, as nothing is looked at in a source", hint="say which map: --kind")
    mean = torch.cat(list(seen.views.words.values())).mean(0)  # (target words, source words)
    rows, columns = ([spell(word) for word in words_of(side)] for side in (seen.trace.target, source))
    made = heatmap(mean, rows, columns, "soft alignment, the mean over all heads", palette="gray")
    return add_caption(made, [*sentences(seen, spell), "rows: words of the translation", "columns: words of the source"])


def salient(seen: Inspection, saliency: Mapping[str, Any], spell: Spell) -> Figure:
    """Beside attention, where a source was looked at."""
    from heedful.inspection.figure import add_caption, side_by_side

    trace = seen.trace
    read = [trace.start, *trace.target_tokens] if trace.source is None else trace.source_tokens
    rows, columns = ([spell(name) for name in names] for names in ([*trace.target_tokens, trace.end], read))
    made = saliency_sketches(saliency, rows, columns)
    return add_caption(side_by_side(*made), [*sentences(seen, spell), *about_saliency(saliency), saliency["note"]])


def saliency_sketches(saliency: Mapping[str, Any], rows: Sequence[str], columns: Sequence[str]) -> list[Figure]:
    """rows: tokens that are said; columns: those that were read, or said before."""
    import torch

    from heedful.inspection.figure import heatmap

    values, bound = salient_maps(saliency)
    made = [
        heatmap(values, rows, columns, "saliency: gradient x input, in nats", darkest(values), "signed"),
        heatmap(bound, rows, columns, "its bound: |gradient| |input|, in nats", darkest(bound)),
    ]
    if "attention" in saliency:
        looked = torch.tensor(saliency["attention"])  # (target time, source time)
        made.append(heatmap(looked, rows, columns, "attention, mean of all layers and heads", float(looked.max())))
    return made


def salient_maps(saliency: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Gradient x input and its bound, (target time, read time) each; of a text that is only read, by what was said before."""
    import torch

    side = "source" if any(saliency["source"]) else "target"
    return torch.tensor(saliency[side]), torch.tensor(saliency[f"{side}_bound"])


def darkest(values: Tensor) -> float:
    """The size from which on all is darkest: the largest, or where few cells stand out so far that the others would be
    blank, the one that all but those few keep within."""
    sizes = values.abs()[values != 0]
    if not len(sizes):
        return 1e-12
    largest, high = float(sizes.max()), float(sizes.quantile(MOST_CELLS))
    return largest if largest <= OUTLYING * high else high


def about_saliency(saliency: Mapping[str, Any]) -> list[str]:
    told = [
        "rows: tokens that are said; columns: tokens that they rest on or look at",
        "gradient x input, blue: makes it likelier; red: less likely; its bound: how much it could at most, either way",
    ]
    for name, values in zip(("gradient x input", "the bound"), salient_maps(saliency), strict=True):
        most, largest = darkest(values), float(values.abs().max())
        if largest > most:
            told.append(f"{name}: all beyond {most:.3g} is equally dark, which few cells are; the largest is {largest:.3g}")
    if "attention" in saliency:
        alike = ", ".join(f"{name} {tau:+.2f}" for name, tau in saliency["agreement"].items())
        told.append(f"how far they rank source tokens as attention does, Kendall's tau (1: alike, 0: unrelated): {alike}")
    return told


def patched(seen: Inspection, found: Mapping[str, Any], spell: Spell) -> Figure:
    from heedful.cli.inspecting.interventions import not_patched, patched_told, won_back
    from heedful.inspection.figure import add_caption, side_by_side

    one = found["patched"]
    won = {
        side: (names, [spell(label) for label in labels], nats)
        for side, (names, labels, nats) in won_back(dict(found), one).items()
    }
    told = [*sentences(seen, spell), spell(patched_told(one).rstrip(":")), WON, *not_patched(one)]
    return add_caption(side_by_side(*patched_sketches(won)), told)


def patched_sketches(won: Won) -> list[Figure]:
    """A map for each side, its places by its positions, all with the same shades."""
    import torch

    from heedful.inspection.figure import heatmap

    most = max((abs(value) for _, _, nats in won.values() for row in nats for value in row), default=0.0) or 1e-12
    titles = {side: f"nats won back, at each {side} token" for side in won}
    titles |= {"beginning": "nats won back, at each vector it begins with"}
    return [
        heatmap(torch.tensor(nats), names, labels, titles[side], most, "signed") for side, (names, labels, nats) in won.items()
    ]


def layers(seen: Inspection, lens: Mapping[str, Any], spell: Spell) -> Figure:
    from heedful.inspection.figure import add_caption

    return add_caption(lens_sketch(lens, spell), [*sentences(seen, spell), *ABOUT_LENS])


def lens_sketch(lens: Mapping[str, Any], spell: Spell = str) -> Figure:
    """What each layer would say, darker where it is surer."""
    from heedful.inspection.figure import TokenCell, words

    cells = [
        [
            TokenCell(spell(piece), share, rank == 1)
            for piece, share, rank in zip(one["predicted"], one["probability"], one["final_rank"], strict=True)
        ]
        for one in lens["layers"]
    ]
    rows = [one["name"].removesuffix(".out") for one in lens["layers"]]
    return words(cells, rows, [spell(token) for token in lens["tokens"]], "what each layer would say (logit lens)")


def sentences(seen: Inspection, spell: Spell) -> list[str]:
    """What was read and what was said, cut where they are long."""
    from heedful.inspection.text_heatmap import printable_token

    source, target = seen.trace.source, seen.trace.target
    named = {"text": target} if source is None else {"source": source, "translation": target}
    return [spell(f"{name}: {printable_token(side.text, LONGEST)}") for name, side in named.items()]


def sides(seen: Inspection, one: AttentionMap) -> list[str]:
    """What the rows of a map are, and what its columns."""
    trace = seen.trace
    said = "the text" if trace.source is None else "the translation"
    tokens = {"source": "tokens of the source", "target": f"tokens of {said} before those, from {trace.start} on"}
    tokens["both"] = tokens["target"] if trace.source is None else f"{tokens['source']}, then {tokens['target']}"
    looking = tokens["source"] if one.kind.queries == "source" else f"tokens of {said}, where they are said"
    blocks = [" (blocks of them, by number)" * (names[:1] == ["#0"]) for names in (trace.queries(one), trace.keys(one))]
    return [f"rows, which look: {looking}{blocks[0]}", f"columns, which are looked at: {tokens[one.kind.keys]}{blocks[1]}"]
