"""Saliency of input tokens by gradient x input, compared with attention.

gradient x input of each source token, in nats
        Elena  doesn't  sleep
dorme    0.11     0.35   2.20
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from heedful.inspection.analyses.example_text import ExampleText, example_names, example_text
from heedful.inspection.analyses.matrix import choose_unit, rounded_matrix
from heedful.inspection.drawing.figure import Figure, add_caption, heatmap, side_by_side
from heedful.inspection.measures.interventions import saliency_of
from heedful.inspection.measures.saliency import NOTE, Saliency, agreement, midpoints
from heedful.inspection.page.blocks import Block, Pictures, Words, sentence
from heedful.inspection.result import Result
from heedful.nn.source_attention import mean_source_weights, source_attentions
from heedful.search import SearchConfig
from heedful.tasks.predictor import Predictor

TYPICAL_SHARE, OUTLIER_RATIO = 0.95, 2.0  # colors end at this quantile where the largest value is this many times larger


@dataclass(frozen=True)
class SaliencyResult(Result):
    """The influence of each input token on each output.

    >>> result = heedful.inspection.saliency(translator, "w1 w2", "w2 w1")
    >>> sorted(result.agreement)
    ['bound', 'gradient x input']
    """

    example: ExampleText
    saliency: Saliency  # of source tokens and of previous target tokens, with bounds
    attention: Tensor | None = None  # (outputs, source time): mean of all layers and heads
    agreement: dict[str, float] | None = None  # Kendall's tau with attention, by measure
    unit: str = "nats"  # of log p, or of outputs that are numbers

    @property
    def title(self) -> str:
        return "Saliency"

    @property
    def subject(self) -> Sequence[str]:
        return self.example.subject

    @property
    def values(self) -> Tensor:
        """Gradient x input, (outputs, inputs): of the source, or without one of the previous tokens."""
        return self.saliency.target if self.example.source is None else self.saliency.source

    @property
    def bound(self) -> Tensor:
        """Upper bounds of the absolute values, (outputs, inputs)."""
        return self.saliency.target_bound if self.example.source is None else self.saliency.source_bound

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {name: values.tolist() for name, values in self.saliency._asdict().items()}
        found |= {"note": NOTE, "unit": self.unit}
        if self.attention is not None:
            found |= {"attention": self.attention.tolist(), "agreement": self.agreement}
        return self.example.to_dict() | {"inputs": self.example.columns, "saliency": found}

    def text(self) -> str:
        rows, columns = self.example.rows, self.example.columns
        tokens = "source" if self.example.source is not None else "input" if self.example.reads_all else "previous"
        titles = {f"gradient x input of each {tokens} token": self.values, "|gradient| |input|, its bound": self.bound}
        parts = [self.example.numbered(), ""]
        unit, unit_name = choose_unit(self.values.tolist(), self.unit)
        for title, values in titles.items():
            parts += [f"{title}, in {unit_name}", rounded_matrix(rows, columns, (values / unit).tolist())]
        if self.attention is not None:
            parts += ["attention, mean of all layers and heads", rounded_matrix(rows, columns, self.attention.tolist())]
            parts.append(self.describe_agreement())
        return "\n".join([*parts, NOTE])

    def blocks(self) -> list[Block]:
        caption = ". ".join(map(sentence, self.describe()))
        return [Pictures(self.heatmaps(), f"{caption}."), Words(NOTE, "note")]

    def figure(self) -> Figure:
        return add_caption(side_by_side(*self.heatmaps()), [*self.example.captions(), *self.describe(), NOTE])

    def heatmaps(self) -> list[Figure]:
        """Gradient x input, its bound, and attention; rows: outputs, columns: input tokens."""
        rows, columns = self.example.rows, self.example.columns
        figures = [
            heatmap(
                self.values, rows, columns, f"saliency: gradient x input, in {self.unit}", color_limit(self.values), "signed"
            ),
            heatmap(self.bound, rows, columns, f"its bound: |gradient| |input|, in {self.unit}", color_limit(self.bound)),
        ]
        if self.attention is not None:
            title = "attention, mean of all layers and heads"
            figures.append(heatmap(self.attention, rows, columns, title, float(self.attention.max())))
        return figures

    def describe(self) -> list[str]:
        effects = (
            ("makes the output more probable", "less probable") if self.unit == "nats" else ("raises the output", "lowers it")
        )
        captions = [
            "rows: outputs; columns: input tokens",
            f"gradient x input, blue: {effects[0]}; red: {effects[1]}; its bound: the largest effect",
        ]
        for name, values in {"gradient x input": self.values, "the bound": self.bound}.items():
            limit, largest = color_limit(values), float(values.abs().max())
            if largest > limit:
                captions.append(f"{name}: colors are clipped at {limit:.3g}; the largest value is {largest:.3g}")
        return captions if self.attention is None else [*captions, self.describe_agreement()]

    def describe_agreement(self) -> str:
        values = ", ".join(f"{name} {tau:+.2f}" for name, tau in (self.agreement or {}).items())
        return f"rank correlation with attention over source tokens, Kendall's tau (1: same order, 0: unrelated): {values}"


def color_limit(values: Tensor) -> float:
    """The absolute value of the darkest color: the largest one, or a quantile if a few outliers would blank all others."""
    sizes = values.abs()[values != 0]
    if not len(sizes):
        return 1e-12
    largest, high = float(sizes.max()), float(sizes.quantile(TYPICAL_SHARE))
    return largest if largest <= OUTLIER_RATIO * high else high


def saliency(
    predictor: Predictor,
    text: str,
    target: str | None = None,
    *,
    steps: int = 1,
    config: SearchConfig | None = None,
) -> SaliencyResult:
    """Gradient x input of every input token for every output. steps: more than one computes integrated gradients
    (Sundararajan et al., 2017) with as many steps from zero embeddings to those of the text.

    >>> heedful.inspection.saliency(translator, "w1 w2", "w2 w1").values.shape
    torch.Size([3, 3])
    """
    example = predictor.encode_example(text, target, config)
    found = saliency_of(predictor, example, (1.0,) if steps == 1 else midpoints(steps))
    model = predictor.model
    if example.source is None or not source_attentions(model):
        return SaliencyResult(example_text(example, example_names(predictor)), found, unit=example.outputs.unit)
    weights = mean_source_weights(model, example.source_ids, example.target_in)
    ranked = {"gradient x input": found.source.abs(), "bound": found.source_bound}
    agreements = {name: agreement(values, weights) for name, values in ranked.items()}
    return SaliencyResult(example_text(example, example_names(predictor)), found, weights, agreements)
