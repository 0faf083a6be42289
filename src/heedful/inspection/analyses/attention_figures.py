"""Figures of attention: the word alignment, the grid of the heads of a kind, one head as heatmap or as lines. Captions name the
texts, the rows and the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.errors import ConfigError
from heedful.inspection.analyses.example_text import MAX_CAPTION
from heedful.inspection.drawing import figure
from heedful.inspection.drawing.figure import Figure
from heedful.inspection.drawing.text_heatmap import printable_token
from heedful.inspection.measures.attention_maps import AttentionMap
from heedful.nn.model import SELF

if TYPE_CHECKING:
    from heedful.inspection.analyses.attention import AttentionResult


def attention_figure(result: AttentionResult) -> Figure:
    if result.selection.is_one_map:
        return draw_map(result)
    if result.selection.kind is None and result.alignment is not None:
        return draw_alignment(result)
    maps = result.displayable_maps()
    kinds = list(dict.fromkeys(one.kind.name for one in maps))
    return figure.stack(*(draw_grid(result, [one for one in maps if one.kind.name == kind]) for kind in kinds))


def draw_grid(result: AttentionResult, maps: list[AttentionMap]) -> Figure:
    """All heads of one kind."""
    by, trace = result.selection.by, result.trace
    layers = [(one.layer, result.values_of(one)) for one in maps]
    is_rollout = by == "rollout"
    title = f"{maps[0].kind.name}: {'rollout, heads of a layer merged' if is_rollout else f'all heads, {by}'}"
    grid = figure.head_grid(layers, title, relative=by != "weights", merged=is_rollout)
    tokens = [printable_token(" ".join(names), MAX_CAPTION) for names in (trace.queries(maps[0]), trace.keys(maps[0]))]
    axes = [f"{axis}: {names}" for axis, names in zip(axis_captions(result, maps[0]), tokens, strict=True)]
    return figure.add_caption(grid, [*result.example.captions(), *axes])


def draw_map(result: AttentionResult) -> Figure:
    """One head, or the rollout of one layer."""
    selection, trace = result.selection, result.trace
    attention_map, (values, *_) = result.select_map()
    shown = f"head {selection.head}, {selection.by}" if selection.head is not None else "rollout, heads merged"
    limit = max(float(values.max()), 1e-12) if selection.by != "weights" else 1.0
    title = f"{selection.kind} · layer {attention_map.layer} · {shown}"
    draw = figure.lines if selection.lines else figure.heatmap
    picture = draw(values, trace.queries(attention_map), trace.keys(attention_map), title, limit)
    axes = [] if selection.lines else axis_captions(result, attention_map)
    return figure.add_caption(picture, [*result.example.captions(), *axes])


def draw_alignment(result: AttentionResult) -> Figure:
    words = result.alignment_words()
    assert words is not None and result.alignment is not None, "there is attention to a source"
    if not len(result.alignment):
        raise ConfigError(f"the {result.names.output} is empty, so no word is aligned", hint="give one with a target")
    picture = figure.heatmap(result.alignment, words[1], words[0], "soft alignment, mean of all heads", palette="gray")
    source = "words of the source" if result.names.input == "text" else f"{result.names.parts} of the {result.names.input}"
    axes = [f"rows: words of the {result.names.output}", f"columns: {source}"]
    return figure.add_caption(picture, [*result.example.captions(), *axes])


def axis_captions(result: AttentionResult, attention_map: AttentionMap) -> list[str]:
    """What the rows and the columns of an attention map are."""
    trace, example, names = result.trace, result.trace.example, result.names
    given = f"{names.parts} of the {names.input}"
    if example.source is None:
        target, source = given, ""
    else:
        target, source = f"tokens of the {names.output}", "tokens of the source" if names.input == "text" else given
    begin = "" if example.start is None else f", from {example.start}"
    end = "" if example.end is None else f" to {example.end}"
    steps = f"{example.start}, then {target}" if begin and not end else f"{target}{begin}{end}"
    keys = steps if attention_map.kind == SELF else f"previous {target}{begin}"
    tokens = {"source": source, "target": keys, "both": keys if example.source is None else f"{source}, then {keys}"}
    queries = steps if example.reads_end else f"{target}, at the step that predicts them"
    if attention_map.kind.queries == "source":
        queries = source
    blocks = [
        " (in blocks, by number)" * (shown[:1] == ["#0"]) for shown in (trace.queries(attention_map), trace.keys(attention_map))
    ]
    return [f"rows, queries: {queries}{blocks[0]}", f"columns, keys: {tokens[attention_map.kind.keys]}{blocks[1]}"]
