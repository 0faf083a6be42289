"""heed inspect RUN "a sentence" --picture FILE: the word alignment; with --kind a grid of its heads; with --head one heatmap;
with --saliency, --patch-from or --lens the heatmaps of that view. Captions name the sentences, the rows and the columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.inspection.analyses.sentence_text import Selection, displayable_maps, map_values, select_map

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.inspection.analyses.attention import Inspection
    from heedful.inspection.analyses.interventions import Recovered
    from heedful.inspection.drawing.figure import Figure
    from heedful.inspection.measures.attention_maps import AttentionMap

Spell = Callable[[str], str]  # replaces letters that the font does not have
MAX_CAPTION = 160  # characters of a sentence in a caption
TYPICAL_SHARE, OUTLIER_RATIO = 0.95, 2.0  # colors end at this quantile where the largest value is this many times larger
PATCHING_COLORS = "blue: the target becomes more probable; red: less probable"
LENS_CAPTION = (
    "rows: layers, the last one at the bottom; columns: target tokens",
    "shade: probability of the predicted token",
    "•: same prediction as the last layer",
)


def draw(inspection: Inspection, selection: Selection, path: Path, *, lines: bool = False, results: Mapping[str, Any]) -> None:
    """Save a picture as .svg, or through matplotlib as .png. results: of the requested views."""
    from heedful.inspection.drawing.plots import replace_missing_glyphs, save

    def figure(spell: Spell) -> Figure:
        if selection.kind is not None:
            if selection.is_one_map:
                return draw_map(inspection, selection, lines, spell)
            return draw_grid(inspection, selection, spell)
        if "lens" in results:
            return draw_lens(inspection, results["lens"], spell)
        saliency = results.get("interventions", {}).get("saliency")
        if saliency is not None:
            return draw_saliency(inspection, saliency, spell)
        if "patched" in results.get("interventions", {}):
            return draw_patching(inspection, results["interventions"], spell)
        return draw_alignment(inspection, spell)

    save(figure(str if path.suffix == ".svg" else replace_missing_glyphs), path)


def draw_grid(inspection: Inspection, selection: Selection, spell: Spell) -> Figure:
    from heedful.inspection.drawing import figure
    from heedful.inspection.drawing.text_heatmap import printable_token

    maps, trace = displayable_maps(inspection, selection), inspection.trace
    layers = [(one.layer, map_values(inspection, one, selection.by)) for one in maps]
    is_rollout = selection.by == "rollout"
    title = f"{selection.kind}: {'rollout, heads of a layer merged' if is_rollout else f'all heads, {selection.by}'}"
    grid = figure.head_grid(layers, title, relative=selection.by != "weights", merged=is_rollout)
    tokens = [printable_token(" ".join(names), MAX_CAPTION) for names in (trace.queries(maps[0]), trace.keys(maps[0]))]
    axes = [spell(f"{axis}: {names}") for axis, names in zip(axis_captions(inspection, maps[0]), tokens, strict=True)]
    return figure.add_caption(grid, [*sentence_captions(inspection, spell), *axes])


def draw_map(inspection: Inspection, selection: Selection, lines: bool, spell: Spell) -> Figure:
    from heedful.inspection.drawing import figure

    attention_map, (values, *_) = select_map(inspection, selection)
    trace = inspection.trace
    rows, columns = ([spell(name) for name in names] for names in (trace.queries(attention_map), trace.keys(attention_map)))
    shown = f"head {selection.head}, {selection.by}" if selection.head is not None else "rollout, heads merged"
    limit = max(float(values.max()), 1e-12) if selection.by != "weights" else 1.0
    title = f"{selection.kind} · layer {attention_map.layer} · {shown}"
    picture = (figure.lines if lines else figure.heatmap)(values, rows, columns, title, limit)
    axes = [] if lines else axis_captions(inspection, attention_map)
    return figure.add_caption(picture, [*sentence_captions(inspection, spell), *axes])


def draw_alignment(inspection: Inspection, spell: Spell) -> Figure:
    import torch

    from heedful.errors import ConfigError
    from heedful.inspection.analyses.attention import words_of
    from heedful.inspection.drawing.figure import add_caption, heatmap

    source = inspection.trace.source
    if source is None or not inspection.views.words:
        raise ConfigError(
            "this model has no attention from target to source, so there is no alignment to draw", hint="add --kind"
        )
    mean = torch.cat(list(inspection.views.words.values())).mean(0)  # (target words, source words)
    rows, columns = ([spell(word) for word in words_of(side)] for side in (inspection.trace.target, source))
    picture = heatmap(mean, rows, columns, "soft alignment, mean of all heads", palette="gray")
    axes = ["rows: words of the translation", "columns: words of the source"]
    return add_caption(picture, [*sentence_captions(inspection, spell), *axes])


def draw_saliency(inspection: Inspection, saliency: Mapping[str, Any], spell: Spell) -> Figure:
    """Saliency, and attention where the model attends to a source."""
    from heedful.inspection.drawing.figure import add_caption, side_by_side

    trace = inspection.trace
    inputs = [trace.start, *trace.target_tokens] if trace.source is None else trace.source_tokens
    rows, columns = ([spell(name) for name in names] for names in ([*trace.target_tokens, trace.end], inputs))
    captions = [*sentence_captions(inspection, spell), *describe_saliency(saliency), saliency["note"]]
    return add_caption(side_by_side(*saliency_figures(saliency, rows, columns)), captions)


def saliency_figures(saliency: Mapping[str, Any], rows: Sequence[str], columns: Sequence[str]) -> list[Figure]:
    """Heatmaps of gradient x input, of its bound and of attention. rows: target tokens; columns: input tokens."""
    import torch

    from heedful.inspection.drawing.figure import heatmap

    values, bound = saliency_maps(saliency)
    figures = [
        heatmap(values, rows, columns, "saliency: gradient x input, in nats", color_limit(values), "signed"),
        heatmap(bound, rows, columns, "its bound: |gradient| |input|, in nats", color_limit(bound)),
    ]
    if "attention" in saliency:
        weights = torch.tensor(saliency["attention"])  # (target time, source time)
        figures.append(heatmap(weights, rows, columns, "attention, mean of all layers and heads", float(weights.max())))
    return figures


def saliency_maps(saliency: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Gradient x input and its bound, (target time, input time) each; inputs of a language model: the previous tokens."""
    import torch

    side = "source" if any(saliency["source"]) else "target"
    return torch.tensor(saliency[side]), torch.tensor(saliency[f"{side}_bound"])


def color_limit(values: Tensor) -> float:
    """The absolute value of the darkest color: the largest one, or a quantile if a few outliers would blank all others."""
    sizes = values.abs()[values != 0]
    if not len(sizes):
        return 1e-12
    largest, high = float(sizes.max()), float(sizes.quantile(TYPICAL_SHARE))
    return largest if largest <= OUTLIER_RATIO * high else high


def describe_saliency(saliency: Mapping[str, Any]) -> list[str]:
    captions = [
        "rows: target tokens; columns: input tokens",
        "gradient x input, blue: makes the target token more probable; red: less probable; its bound: the largest effect",
    ]
    for name, values in zip(("gradient x input", "the bound"), saliency_maps(saliency), strict=True):
        limit, largest = color_limit(values), float(values.abs().max())
        if largest > limit:
            captions.append(f"{name}: colors are clipped at {limit:.3g}; the largest value is {largest:.3g}")
    if "attention" in saliency:
        captions.append(format_agreement(saliency["agreement"]))
    return captions


def format_agreement(agreement: Mapping[str, float]) -> str:
    values = ", ".join(f"{name} {tau:+.2f}" for name, tau in agreement.items())
    return f"rank correlation with attention over source tokens, Kendall's tau (1: same order, 0: unrelated): {values}"


def draw_patching(inspection: Inspection, result: Mapping[str, Any], spell: Spell) -> Figure:
    from heedful.inspection.analyses.interventions import describe_patching, list_unpatched, recovered_by_side
    from heedful.inspection.drawing.figure import add_caption, side_by_side

    patched = result["patched"]
    recovered = {
        side: (names, [spell(label) for label in labels], nats)
        for side, (names, labels, nats) in recovered_by_side(dict(result), patched).items()
    }
    description = spell(describe_patching(patched).rstrip(":"))
    captions = [*sentence_captions(inspection, spell), description, PATCHING_COLORS, *list_unpatched(patched)]
    return add_caption(side_by_side(*patching_figures(recovered)), captions)


def patching_figures(recovered: Recovered) -> list[Figure]:
    """A heatmap for each side, hook points by positions, all with the same color scale."""
    import torch

    from heedful.inspection.drawing.figure import heatmap

    limit = max((abs(value) for _, _, nats in recovered.values() for row in nats for value in row), default=0.0) or 1e-12
    titles = {side: f"nats recovered at each {side} token" for side in recovered}
    titles |= {"initial": "nats recovered at each initial state"}
    return [
        heatmap(torch.tensor(nats), names, labels, titles[side], limit, "signed")
        for side, (names, labels, nats) in recovered.items()
    ]


def draw_lens(inspection: Inspection, lens: Mapping[str, Any], spell: Spell) -> Figure:
    from heedful.inspection.drawing.figure import add_caption

    return add_caption(lens_figure(lens, spell), [*sentence_captions(inspection, spell), *LENS_CAPTION])


def lens_figure(lens: Mapping[str, Any], spell: Spell = str) -> Figure:
    """The prediction of each layer at each target token; darker: more probable."""
    from heedful.inspection.drawing.figure import TokenCell, words

    cells = [
        [
            TokenCell(spell(piece), probability, rank == 1)
            for piece, probability, rank in zip(layer["predicted"], layer["probability"], layer["final_rank"], strict=True)
        ]
        for layer in lens["layers"]
    ]
    rows = [layer["name"].removesuffix(".out") for layer in lens["layers"]]
    return words(cells, rows, [spell(token) for token in lens["tokens"]], "logit lens: prediction of each layer")


def sentence_captions(inspection: Inspection, spell: Spell) -> list[str]:
    """Source and translation, shortened where they are long."""
    from heedful.inspection.drawing.text_heatmap import printable_token

    source, target = inspection.trace.source, inspection.trace.target
    sides = {"text": target} if source is None else {"source": source, "translation": target}
    return [spell(f"{name}: {printable_token(side.text, MAX_CAPTION)}") for name, side in sides.items()]


def axis_captions(inspection: Inspection, attention_map: AttentionMap) -> list[str]:
    """What the rows and the columns of an attention map are."""
    trace = inspection.trace
    target = "the text" if trace.source is None else "the translation"
    tokens = {"source": "tokens of the source", "target": f"previous tokens of {target}, from {trace.start}"}
    tokens["both"] = tokens["target"] if trace.source is None else f"{tokens['source']}, then {tokens['target']}"
    queries = (
        tokens["source"] if attention_map.kind.queries == "source" else f"tokens of {target}, at the step that predicts them"
    )
    blocks = [
        " (in blocks, by number)" * (names[:1] == ["#0"]) for names in (trace.queries(attention_map), trace.keys(attention_map))
    ]
    return [f"rows, queries: {queries}{blocks[0]}", f"columns, keys: {tokens[attention_map.kind.keys]}{blocks[1]}"]
