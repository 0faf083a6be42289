"""Weight averaging: the mean of several checkpoints, or an exponential moving average (EMA).

average  <-  decay_n x average + (1 - decay_n) x weights        after update n
decay_n   =  min(decay, (1 + n) / (10 + n))

The decay grows to its final value: with a constant one, the average of a short run would still be mostly the initial weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from heedful.errors import CheckpointError
from heedful.nn.torch_private import lerp_all
from heedful.training import checkpoint
from heedful.training.weights import check_shapes, shapes_of


def inference_weights(folder: Path) -> dict[str, Tensor]:
    """Load the weights for inference: the moving average if the run has one, else the model's own."""
    return checkpoint.load_weights(folder, inference_stem(folder))


def inference_stem(folder: Path) -> str:
    return "average" if "average" in checkpoint.stems(folder) else "model"


def mean_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Return the arithmetic mean of the weights of these checkpoints, summed in double precision."""
    if not folders:
        raise CheckpointError("no checkpoints to average")
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for folder in folders:
        weights = inference_weights(folder)
        shapes = {name: weight.shape for name, weight in weights.items()}
        if total and shapes != {name: weight.shape for name, weight in total.items()}:
            raise CheckpointError(f"{folder} and {folders[0]} have different weights; expected checkpoints of one model")
        for name, weight in weights.items():
            kinds[name] = weight.dtype
            total[name] = weight.double() + total[name] if name in total else weight.double()
    return {name: (value / len(folders)).to(kinds[name]) for name, value in total.items()}


class RunningAverage:
    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Update the average with the weights after update `step`, counted from 1."""
        current, decay = model.state_dict(), min(self.decay, (1 + step) / (10 + step))
        lerp_all(list(self.weights.values()), [current[name] for name in self.weights], 1 - decay)

    @torch.no_grad()
    def restore(self, weights: Mapping[str, Tensor], where: Path) -> None:
        """Load the average of a checkpoint."""
        check_shapes(shapes_of(self.weights), shapes_of(weights), where)
        for name, value in weights.items():
            self.weights[name].copy_(value)

    @contextmanager
    def applied_to(self, model: nn.Module) -> Iterator[None]:
        """Use the average as the weights of the model inside the block."""
        own = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.weights)
        try:
            yield
        finally:
            model.load_state_dict(own)
