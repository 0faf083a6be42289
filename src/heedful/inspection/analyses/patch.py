"""Activation patching between two inputs: how much of the log-probability one activation restores.

                 Elena  doesn't  sleep  …
encoder.0.out     0.01     0.02   8.02
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.inspection.analyses.example_text import ExampleText, example_names, example_text
from heedful.inspection.analyses.matrix import rounded_matrix
from heedful.inspection.drawing.figure import Figure, add_caption, heatmap, side_by_side
from heedful.inspection.measures.interventions import patch_input
from heedful.inspection.page.blocks import Block, Heading, Pictures, Words, sentence
from heedful.inspection.result import Result
from heedful.search import SearchConfig
from heedful.tasks.predictor import Predictor

COLORS = "blue: the target becomes more probable; red: less probable"


class PatchedOutput(NamedTuple):
    """A layer output that was patched, one position at a time."""

    side: str  # source, target or state
    layer: int
    name: str  # of the hook point
    change: Tensor  # (positions, outputs), in nats


class Recovered(NamedTuple):
    """The nats recovered on one side."""

    names: list[str]  # of hook points
    labels: list[str]  # of positions
    nats: list[list[float]]  # (hook points, positions), summed over the outputs


@dataclass(frozen=True)
class PatchResult(Result):
    """Activations of the run on `example`, patched into the run on `other`.

    >>> result = heedful.inspection.patch(translator, "w1 w2", "w1 w3")
    >>> list(result.recovered())
    ['source', 'target']
    """

    example: ExampleText
    other: str
    log_probability: Tensor  # (outputs,): of the target given the input of the example
    other_log_probability: Tensor  # (outputs,): given the other input
    places: list[PatchedOutput]
    left_out: list[str]  # hook points that were not patched, because the inputs differ in length or have several sequences
    positions: dict[str, list[str]]  # side -> labels of its positions

    @property
    def title(self) -> str:
        return "Activation patching"

    @property
    def subject(self) -> Sequence[str]:
        return self.example.subject

    def to_dict(self) -> dict[str, Any]:
        logs = {"source": self.log_probability.tolist(), "other": self.other_log_probability.tolist()}
        places = [one._asdict() | {"change": one.change.tolist()} for one in self.places]
        patched = {"other": self.other, "log_probability": logs, "places": places, "left_out": self.left_out}
        return self.example.to_dict() | {"patched": patched}

    def text(self) -> str:
        parts = [self.example.numbered(), "", f"{self.describe()}:"]
        parts += [rounded_matrix(*one) for one in self.recovered().values()]
        return "\n".join([*parts, *self.describe_left_out()])

    def blocks(self) -> list[Block]:
        figures = self.heatmaps()
        pictures = [Pictures(figures, f"{sentence(COLORS)}.")] if figures else []
        left_out = (Words(sentence(text)) for text in self.describe_left_out())
        heading = Heading(f"Activations patched into the run on {self.other!r}")
        return [heading, Words(f"{sentence(self.describe())}."), *pictures, *left_out]

    def figure(self) -> Figure:
        captions = [*self.example.captions(), self.describe(), COLORS, *self.describe_left_out()]
        return add_caption(side_by_side(*self.heatmaps()), captions)

    def heatmaps(self) -> list[Figure]:
        """A heatmap for each side, hook points by positions, all with the same color scale."""
        recovered = self.recovered()
        limit = max((abs(value) for one in recovered.values() for row in one.nats for value in row), default=0.0) or 1e-12
        titles = {side: f"nats recovered at each {side} token" for side in recovered}
        titles |= {"state": "nats recovered at each initial state"}
        return [
            heatmap(torch.tensor(one.nats), one.names, one.labels, titles[side], limit, "signed")
            for side, one in recovered.items()
        ]

    def recovered(self) -> dict[str, Recovered]:
        """The nats recovered, by side; without sides where nothing was patched."""
        found: dict[str, Recovered] = {}
        for side in ("source", "state", "target"):
            places = [one for one in self.places if one.side == side]
            most = max((len(one.change) for one in places), default=0)
            labels = self.positions.get(side) or [f"vector {at}" for at in range(most)]
            places = [one for one in places if len(one.change) == len(labels)]
            if places:
                found[side] = Recovered([one.name for one in places], labels, [one.change.sum(1).tolist() for one in places])
        return found

    def describe(self) -> str:
        first, second = float(self.log_probability.sum()), float(self.other_log_probability.sum())
        return (
            f"log p of the target: {first:.3f} given this input, {second:.3f} given {self.other!r}. Nats recovered when one "
            "position is patched with its activation under this input"
        )

    def describe_left_out(self) -> list[str]:
        names = ", ".join(self.left_out)
        return [f"not patched because the inputs differ in length or have several sequences: {names}"] if names else []


def patch(
    predictor: Predictor, text: str, other: str, *, target: str | None = None, config: SearchConfig | None = None
) -> PatchResult:
    """Activation patching (Vig et al., 2020; Meng et al., 2022): insert the activation at one position, computed from `text`,
    into the run on `other`; both predict the target of `text`.

    >>> result = heedful.inspection.patch(translator, "w1 w2", "w1 w3", target="w2 w1")
    >>> result.places[0].change.shape
    torch.Size([3, 3])
    """
    example = predictor.encode_example(text, target, config)
    found = patch_input(predictor, example, other)
    if not found.effects:
        raise ConfigError(
            f"{text!r} and {other!r} have different numbers of tokens, so they share no position to patch; expected texts of "
            "equal length"
        )
    places = [PatchedOutput(*effect.output, effect.change) for effect in found.effects]
    positions = {"source": example.source_tokens, "target": example.queries}
    left_out = [output.name for output in found.left_out]
    return PatchResult(
        example_text(example, example_names(predictor)), other, found.first, found.second, places, left_out, positions
    )
