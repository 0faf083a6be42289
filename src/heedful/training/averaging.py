"""Averages of weights: of several checkpoints, or an exponential moving average (EMA).

average  <-  decay_n x average + (1 - decay_n) x weights        after update n
decay_n   =  min(decay, (1 + n) / (10 + n))

The decay grows to its value: with a constant one, the average of a short run would still be mostly the initial weights.
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
from heedful.training.weights import refuse_misfit, shapes_of


def inference_weights(folder: Path) -> dict[str, Tensor]:
    """The weights to use: the running average where the run kept one, else the model's own."""
    return checkpoint.load_weights(folder, inference_stem(folder))


def inference_stem(folder: Path) -> str:
    return "average" if "average" in checkpoint.stems(folder) else "model"


def mean_of(folders: Sequence[Path]) -> dict[str, Tensor]:
    """The arithmetic mean of the checkpoints' weights, summed in double precision."""
    if not folders:
        raise CheckpointError("there is no checkpoint to average")
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for folder in folders:
        weights = inference_weights(folder)
        shapes = {name: weight.shape for name, weight in weights.items()}
        if total and shapes != {name: weight.shape for name, weight in total.items()}:
            raise CheckpointError(f"{folder} holds other weights than {folders[0]}; only one model's can be averaged")
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
        """Take in the weights after update `step`, 1 for the first."""
        now, decay = model.state_dict(), min(self.decay, (1 + step) / (10 + step))
        lerp_all(list(self.weights.values()), [now[name] for name in self.weights], 1 - decay)

    @torch.no_grad()
    def restore(self, weights: Mapping[str, Tensor], where: Path) -> None:
        """Continue with the average of a checkpoint."""
        refuse_misfit(shapes_of(self.weights), shapes_of(weights), where)
        for name, value in weights.items():
            self.weights[name].copy_(value)

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """The model with the average for weights."""
        own = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.weights)
        try:
            yield
        finally:
            model.load_state_dict(own)
