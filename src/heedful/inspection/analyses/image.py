"""An image with its patches by attention: of each word of a caption, or of the label.

captioning        the cross-attention of the step that predicts a word; of a word of several tokens, their mean
classification    the attention of [CLS] to the patches in each layer, or without [CLS] the mean over all patches, and attention
                  rollout, which combines all layers (Abnar and Zuidema, 2020)

Weights are the mean of all heads, and of all layers of cross-attention, unless a layer or a head is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.evaluation.tables import table
from heedful.inspection.analyses.attention import require_attention
from heedful.inspection.drawing.figure import Figure
from heedful.inspection.drawing.image_figure import ShadedImage, image_figure, relative, weight_range
from heedful.inspection.drawing.text_heatmap import columns, printable_token
from heedful.inspection.measures.merge_words import merge_into_words
from heedful.inspection.measures.trace import Trace, trace_example, views_of, words_of
from heedful.inspection.page.blocks import Block, Pictures, Table, Words, sentence
from heedful.inspection.result import Result
from heedful.search import SearchConfig
from heedful.tasks.predictor import Predictor

SHADES = " ░▒▓█"
LINE = 100  # characters of a line of grids
TOP = 3  # patches listed for each word
NOTE = "Attention weights are not an explanation."


@dataclass(frozen=True)
class ImageResult(Result):
    """The result of `image`.

    >>> import torch
    >>> from heedful.inspection.drawing.image_figure import ShadedImage
    >>> shaded = [ShadedImage("red", torch.tensor([[0.1, 0.7], [0.1, 0.1]]))]
    >>> result = heedful.inspection.ImageResult("a.png", "red", None, torch.zeros(4, 4, 3), shaded, "head 0")
    >>> result.to_dict()["maps"][0]["top"]
    '1,2'
    """

    image: str  # its path; a data URI is shortened
    output: str  # the caption, or the label
    label: str | None  # the output, where it is a label
    pixels: Tensor  # (height, width, channels)
    maps: Sequence[ShadedImage]  # of each word, or of each layer
    source: str  # the attention that the weights are of

    analysis = "image"

    @property
    def title(self) -> str:
        return "Attention to the patches of the image" if self.label is not None else "Attention of each word to the image"

    @property
    def subject(self) -> Sequence[str]:
        return [self.image, self.output]

    @property
    def legend(self) -> str:
        low, high = weight_range(self.maps)
        shading = f"a patch is faded by its weight, from the largest, {high:.3g}, to the smallest, {low:.3g}"
        return f"weights: {self.source}; {shading}; the largest one of each image is outlined and named by row and column"

    def to_dict(self) -> dict[str, Any]:
        maps = [{"name": one.name, "top": place(*one.top), "weights": one.weights.tolist()} for one in self.maps]
        return {"image": self.image, "output": self.output, "attention": self.source, "maps": maps}

    def text(self) -> str:
        low, high = weight_range(self.maps)
        lines, row = [f"{self.image}  ->  {self.output}", ""], list[list[str]]()
        for one in self.maps:
            grid = draw_grid(one, low, high)
            if row and sum(columns(cells[0]) + 3 for cells in [*row, grid]) > LINE:
                lines += [*join_grids(row), ""]
                row = []
            row.append(grid)
        shades = f"{' '.join(SHADES[:0:-1])} and blank: from {high:.3g} to {low:.3g}"
        return "\n".join([*lines, *join_grids(row), "", table(self.rows()), f"weights: {self.source}; {shades}. {NOTE}"])

    def rows(self) -> list[tuple[str, str]]:
        listed = []
        for one in self.maps:
            values, at = one.weights.flatten().topk(min(TOP, one.weights.numel()))
            across = one.weights.shape[1]
            top = ", ".join(
                f"{place(i // across, i % across)} {v:.2f}" for i, v in zip(at.tolist(), values.tolist(), strict=True)
            )
            listed.append((printable_token(one.name), top))
        return [("word" if self.label is None else "attention", "patches of the largest weight, as row,column"), *listed]

    def blocks(self) -> list[Block]:
        pictures = Pictures([self.figure()], f"{sentence(self.legend)}. {NOTE}")
        return [Words(f"{sentence(self.output)}."), pictures, Table(self.rows(), "patches by attention")]

    def figure(self) -> Figure:
        output = f"{'caption' if self.label is None else 'label'}: {printable_token(self.output, 160)}"
        return image_figure(self.pixels, self.maps, self.title, [sentence(output), f"{sentence(self.legend)}."])


def place(row: int, column: int) -> str:
    """The name of a patch, by row and column from 1."""
    return f"{row + 1},{column + 1}"


def draw_grid(one: ShadedImage, low: float, high: float) -> list[str]:
    """The name and a line of shades for each row of patches, all of the same width; low, high: weights of the first and the
    last shade."""
    shares = relative(one.weights, low, high)
    shade = [[SHADES[min(int(len(SHADES) * value), len(SHADES) - 1)] for value in row] for row in shares.tolist()]
    lines = [printable_token(one.name), *("".join(2 * cell for cell in row) for row in shade)]
    width = max(map(columns, lines))
    return [line + " " * (width - columns(line)) for line in lines]


def join_grids(grids: Sequence[list[str]]) -> list[str]:
    return ["   ".join(parts).rstrip() for parts in zip(*grids, strict=True)]


def image(
    predictor: Predictor,
    text: str,
    target: str | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    config: SearchConfig | None = None,
) -> ImageResult:
    """The patches of an image by attention, for each word of its caption, or for its label. text: path of the image, or a data
    URI; target: another caption, or another label; layer, head: of the attention, default: the mean of all.

    >>> from heedful.data.image_files import encode_data_uri
    >>> import numpy
    >>> picture = encode_data_uri(numpy.zeros((6, 8, 3), "uint8"))
    >>> result = heedful.inspection.image(heedful.load(captioning_run), picture, "a red one")
    >>> [one.name for one in result.maps], tuple(result.maps[0].weights.shape)
    (['a', 'red', 'one'], (3, 4))
    """
    example = predictor.encode_example(text, target, config)
    pixels = example.pixels
    if pixels is None:
        raise ConfigError(
            f"the inputs of a run of task {predictor.run.task.name!r} are texts; expected a run whose inputs are images",
            hint="use heed inspect attention",
        )
    trace = trace_example(predictor, example)
    require_attention(trace)
    model: Any = predictor.model.base_model
    grid = [size // model.config.patch for size in pixels.shape[:2]]
    if example.source is not None:
        weights, source = word_weights(trace, layer, head)
    else:
        weights, source = layer_weights(trace, layer, head)
        if layer is None and head is None:
            weights.append(("rollout", to_patches(trace, views_of(predictor, trace).rollout[-1].weights.mean(0))))
    maps = [ShadedImage(name, values.float().cpu().reshape(grid)) for name, values in weights]
    patches = example.target if example.source is None else example.source
    output = example.target.text if example.label is None else example.label
    return ImageResult(patches.text, output, example.label, pixels.cpu(), maps, source)


NamedWeights = list[tuple[str, Tensor]]  # (patches,) each


def word_weights(trace: Trace, layer: int | None, head: int | None) -> tuple[NamedWeights, str]:
    """The attention of each word of the caption to the patches, of an empty one that of the end token, and of what it is."""
    chosen, source = select(trace, "cross", layer, head)
    target, patches = trace.example.target, len(trace.example.source_tokens)
    if not target.ids:
        return [(trace.example.end or "end", chosen.mean(0)[0].float().cpu())], f"cross-attention, {source}"
    merged = merge_into_words(chosen.mean(0)[: len(target.ids)].float().cpu(), range(patches), target.words)
    return list(zip(words_of(target), merged, strict=True)), f"cross-attention, {source}"


def layer_weights(trace: Trace, layer: int | None, head: int | None) -> tuple[NamedWeights, str]:
    """The attention to the patches in each layer, or in one."""
    layers = [one.layer for one in trace.maps] if layer is None else [layer]
    chosen = [(f"layer {at}", to_patches(trace, select(trace, "self", at, head)[0].mean(0))) for at in layers]
    of_class = "attention of [CLS]" if trace.example.start is not None else "attention, mean over all patches"
    return chosen, f"{of_class}, {'mean of all heads' if head is None else f'head {head}'}"


def to_patches(trace: Trace, weights: Tensor) -> Tensor:
    """Weights (query, key) over [CLS] and patches -> of [CLS], or the mean of all queries, to the patches: (patches,)."""
    has_class = trace.example.start is not None
    return weights[0, 1:] if has_class else weights.mean(0)


def select(trace: Trace, kind: str, layer: int | None, head: int | None) -> tuple[Tensor, str]:
    """The weights (heads, query, key) of a kind of attention in all layers, or in one, of all heads, or of one."""
    maps = {one.layer: one.weights for one in trace.maps if one.kind.name == kind}
    if layer is not None and layer not in maps:
        raise ConfigError(f"layer: given {layer}, expected one of: {', '.join(map(str, maps))} ({kind}-attention)")
    if head is not None and layer is None and kind == "cross":
        raise ConfigError("head has no effect without a layer", hint="add a layer")
    weights = torch.cat([heads for at, heads in maps.items() if layer in (None, at)])
    if head is None:
        return weights, f"mean of all heads of {'all layers' if layer is None else f'layer {layer}'}"
    if head >= len(weights):
        raise ConfigError(f"head: given {head}, expected 0 to {len(weights) - 1}")
    return weights[head : head + 1], f"layer {layer}, head {head}"
