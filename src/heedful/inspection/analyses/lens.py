"""Logit lens: the prediction of each decoder layer.

   token   layer 0      layer 1
0  Io      Io 0.41      Io 0.99
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from heedful.evaluation.tables import table
from heedful.inspection.analyses.example_text import ExampleText, example_names, example_text
from heedful.inspection.drawing.figure import Figure, TokenCell, add_caption, words
from heedful.inspection.measures.interventions import lens_of
from heedful.inspection.page.blocks import Block, Pictures, Table, Words, sentence
from heedful.inspection.result import Result
from heedful.search import SearchConfig
from heedful.tasks.predictor import Predictor

LEGEND = (
    "logit lens: each layer's most probable output and its probability, computed with the model's own output "
    "layers; rank 1: most probable"
)
CAPTION = (
    "rows: layers, the last one at the bottom; columns: outputs",
    "shade: probability of the predicted token",
    "•: same prediction as the last layer",
)


class LensLayer(NamedTuple):
    """The predictions from the output of one layer; one value for each output."""

    name: str  # of the hook point
    predicted: list[str]  # the most probable choices
    probability: list[float]  # their probabilities
    final_rank: list[int]  # rank of the last layer's predictions
    final_probability: list[float]  # their probabilities


@dataclass(frozen=True)
class LensResult(Result):
    """The predictions of every layer for the target of an example.

    >>> result = heedful.inspection.lens(translator, "w1 w2", target="w2 w1")
    >>> result.layers[-1].predicted == result.final
    True
    """

    analysis: ClassVar[str] = "lens"

    example: ExampleText
    tokens: list[str]  # the outputs: tokens of the target and its end token, or a label
    final: list[str]  # predictions of the last layer
    layers: list[LensLayer]

    @property
    def title(self) -> str:
        return "Logit lens"

    @property
    def subject(self) -> Sequence[str]:
        return self.example.subject

    def to_dict(self) -> dict[str, Any]:
        texts = {"source": self.example.source, "target": self.example.target}
        return texts | {"tokens": self.tokens, "final": self.final, "layers": [layer._asdict() for layer in self.layers]}

    def text(self) -> str:
        return f"{table(self.rows())}\n{LEGEND}"

    def blocks(self) -> list[Block]:
        caption = f"{sentence('; '.join(CAPTION))}."
        return [
            Words(f"{sentence(LEGEND)}.", "hint"),
            Pictures([self.grid()], caption),
            Table(self.rows(), "prediction of each layer"),
        ]

    def figure(self) -> Figure:
        return add_caption(self.grid(), [*self.example.captions(), *CAPTION])

    def grid(self) -> Figure:
        """The prediction of each layer for each output; darker: more probable."""
        cells = [
            [
                TokenCell(piece, probability, rank == 1)
                for piece, probability, rank in zip(layer.predicted, layer.probability, layer.final_rank, strict=True)
            ]
            for layer in self.layers
        ]
        return words(cells, self.layer_names(), self.tokens, "logit lens: prediction of each layer")

    def rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("", "token", *self.layer_names(), "rank of the final prediction")]
        for position, token in enumerate(self.tokens):
            predicted = [f"{layer.predicted[position]} {layer.probability[position]:.2f}" for layer in self.layers]
            ranks = " ".join(str(layer.final_rank[position]) for layer in self.layers)
            rows.append((str(position), token, *predicted, ranks))
        return rows

    def layer_names(self) -> list[str]:
        return [layer.name.removesuffix(".out") for layer in self.layers]


def lens(predictor: Predictor, text: str, target: str | None = None, config: SearchConfig | None = None) -> LensResult:
    """Logit lens (nostalgebraist, 2020): what each decoder layer predicts, for the translation of a text or for `target`, for
    the text itself, or for its label.

    >>> [layer.name for layer in heedful.inspection.lens(translator, "w1 w2").layers]
    ['decoder.0.out', 'decoder.1.out']
    """
    example = predictor.encode_example(text, target, config)
    found, spell = lens_of(predictor, example), example.outputs.spell
    final = found.logits[-1].argmax(-1)  # (outputs,)
    best = found.logits.float().softmax(-1).max(-1)
    ranks, probabilities = found.ranks(final).tolist(), found.probabilities(final).tolist()
    layers = [
        LensLayer(name, spell(best.indices[layer].tolist()), best.values[layer].tolist(), ranks[layer], probabilities[layer])
        for layer, name in enumerate(found.names)
    ]
    return LensResult(example_text(example, example_names(predictor)), example.outputs.pieces, spell(final.tolist()), layers)
