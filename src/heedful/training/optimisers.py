"""Adam and AdamW, and their state as plain named tensors, so that a checkpoint needs no pickle."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat, model_validator
from torch import Tensor, nn

from heedful.schema import Config, Probability, refuse_unused


class OptimiserConfig(Config):
    """The paper's Adam unless said otherwise."""

    name: Literal["adam", "adamw"] = "adam"
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    epsilon: PositiveFloat = 1e-9
    decay: NonNegativeFloat = 0.0  # of weights, not of biases and norms

    @model_validator(mode="after")
    def _fits_together(self) -> OptimiserConfig:
        if self.name == "adam":
            refuse_unused(self, {"decay": "Adam has no decoupled weight decay; use name 'adamw'"})
        return self


def make_optimiser(config: OptimiserConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Matrices decay, vectors do not."""
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": config.decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], betas=config.betas, eps=config.epsilon, fused=True)


def parameter_names(model: nn.Module) -> dict[Tensor, str]:
    return {parameter: name for name, parameter in model.named_parameters()}


def optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Everything the optimiser remembers: "<parameter>:<what>" -> tensor."""
    names = parameter_names(model)
    return {
        f"{names[parameter]}:{what}": torch.as_tensor(value)
        for parameter, state in optimiser.state.items()
        for what, value in state.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, what = key.rsplit(":", 1)
        parameter = parameters[name]
        on_host = what == "step" and parameter.device.type == "cpu"
        optimiser.state[parameter][what] = value.clone() if on_host else value.to(parameter.device, copy=True)
