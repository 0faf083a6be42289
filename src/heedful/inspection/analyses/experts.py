"""Expert utilization of a mixture of experts, over sentences of the validation data.

layer                   expert 0  1    2    3    max/mean  tokens
encoder.0.feed_forward  31%       22%  25%  22%  1.24      3,211
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from heedful.data.samples import Sample
from heedful.errors import ConfigError
from heedful.evaluation.tables import table
from heedful.inspection.drawing.figure import Figure, heatmap
from heedful.inspection.page.blocks import Block, Table, Words, sentence
from heedful.inspection.result import Result
from heedful.nn.experts import Experts, expert_utilization
from heedful.nn.hooks import record
from heedful.nn.model import inference_context
from heedful.tasks.predictor import Predictor


@dataclass(frozen=True)
class ExpertLayer:
    """The experts of one layer."""

    tokens: int
    choices: list[float]  # share of the routed tokens that each expert receives
    weight: list[float]  # share of the gate weight
    max_over_mean: float  # load of the busiest expert over the mean load


@dataclass(frozen=True)
class ExpertsResult(Result):
    """The result of `experts`.

    >>> from heedful.inspection.analyses.experts import ExpertLayer
    >>> layer = ExpertLayer(tokens=100, choices=[0.75, 0.25], weight=[0.8, 0.2], max_over_mean=1.5)
    >>> print(heedful.inspection.ExpertsResult(sentences=9, used=1, layers={"decoder.0": layer}).rows()[1])
    ('decoder.0', '75%', '25%', '1.50', '100')
    """

    sentences: int
    used: int  # experts per token
    layers: dict[str, ExpertLayer]  # by path in the model

    @property
    def title(self) -> str:
        return "Expert utilization"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        return f"{self.header}\n{table(self.rows())}\n{self.legend}"

    def blocks(self) -> list[Block]:
        layers = list(self.layers.values())
        bars = {expert + 1: [layer.choices[expert] for layer in layers] for expert in range(len(layers[0].choices))}
        return [
            Words(f"{sentence(self.header)}."),
            Table(self.rows(), "experts", bars),
            Words(f"{sentence(self.legend)}.", "hint"),
        ]

    def figure(self) -> Figure:
        """Layers (rows) and experts (columns): share of the routed tokens."""
        shares = torch.tensor([layer.choices for layer in self.layers.values()])
        names = [f"expert {number}" for number in range(self.experts)]
        return heatmap(shares, list(self.layers), names, "share of routed tokens per expert", float(shares.max()))

    @property
    def experts(self) -> int:
        return max(len(layer.choices) for layer in self.layers.values())

    @property
    def header(self) -> str:
        routing = f"share of routed tokens per expert, {self.used} experts per token"
        return f"{routing}; {self.sentences} sentences of the run's validation data"

    @property
    def legend(self) -> str:
        worst = f"{self.experts / self.used:.2f} if every token is routed to the same {self.used}"
        return f"max/mean: load of the busiest expert over the mean load; 1.00 if all are used equally, {worst}"

    def rows(self) -> list[tuple[str, ...]]:
        """The table of all layers."""
        head = ("layer", "expert 0", *map(str, range(1, self.experts)), "max/mean", "tokens")
        rows = [
            (name, *(f"{share:.0%}" for share in layer.choices), f"{layer.max_over_mean:.2f}", f"{layer.tokens:,}")
            for name, layer in self.layers.items()
        ]
        return [head, *rows]


def experts(predictor: Predictor, sentences: int = 200) -> ExpertsResult:
    """Expert utilization: the share of tokens that each expert of each layer receives, over sentences of the run's validation
    data.

    >>> pairs = [(f"w{i} w{i + 1}", f"w{i + 1} w{i}") for i in range(20)]
    >>> small = {"dim": 16, "layers": 1, "heads": 2, "feed_forward": 32, "experts": 4}
    >>> outcome = heedful.train("demo", run="mixture", train=pairs, valid=pairs, model=small, training={"steps": 2})
    >>> result = heedful.inspection.experts(heedful.load("mixture"))
    >>> list(result.layers)
    ['encoder.0.feed_forward', 'decoder.0.feed_forward']
    """
    names = [name for name, module in predictor.model.named_modules() if isinstance(module, Experts)]
    if not names:
        raise ConfigError("this model has no experts", hint="train one with model.experts=8 or with the recipe demo-experts")
    gates, count = record_gates(predictor, names, list(islice(predictor.sample_texts("valid"), sentences)))
    used = int((next(iter(gates.values()))[0] > 0).sum())  # the same for every token
    return ExpertsResult(count, used, {name: summarize_gates(one) for name, one in gates.items()})


def record_gates(predictor: Predictor, names: Sequence[str], samples: Sequence[Sample]) -> tuple[dict[str, Tensor], int]:
    """The gate weights of each layer of experts, (tokens, experts), and the number of sentences; recorded sentence by sentence,
    so that no token is padding."""
    model, count = predictor.model, 0
    gates: dict[str, list[Tensor]] = {name: [] for name in names}
    for sample in samples:
        for batch in predictor.forced_batches([sample]):
            with inference_context(model), record(model, *(f"{name}.gates" for name in names)) as recorded:
                batch.logits()
            for name in names:
                gates[name].append(recorded[f"{name}.gates"])
            count += 1
    if not count:
        raise ConfigError(f"none of the {len(samples)} sentences of the validation data fits the model")
    return {name: torch.cat(parts) for name, parts in gates.items()}, count


def summarize_gates(gates: Tensor) -> ExpertLayer:
    shares, weights = expert_utilization(gates), gates.sum(0) / gates.sum()
    return ExpertLayer(len(gates), shares.tolist(), weights.tolist(), float(shares.max() * len(shares)))
