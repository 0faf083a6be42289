"""Optimizers, and their state as plain named tensors, so that a checkpoint needs no pickle.

adam        "Adam", Kingma and Ba, 2015; as in "Attention Is All You Need"
adamw       the same, and matrices decay apart from the gradient (Loshchilov and Hutter, 2019)
sgd         with momentum, and Nesterov's if asked for: Sutskever et al., Luong et al., ConvS2S
adadelta    "Adadelta", Zeiler, 2012: Bahdanau et al.
rmsprop     the gradient over the root of its mean square (Tieleman and Hinton, 2012)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.errors import CheckpointError
from heedful.schema import Config, NonNegativeNumber, PositiveNumber, Probability, Problem, refuse, unused

SMALL = {"adadelta": 1e-6, "rmsprop": 1e-8}  # epsilons as published, where they are not that of the Transformer's Adam


class OptimizerConfig(Config):
    """The paper's Adam unless said otherwise."""

    name: Literal["adam", "adamw", "sgd", "adadelta", "rmsprop"] = "adam"
    """Optimizer."""
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    """Decay of both moments of adam and adamw."""
    epsilon: PositiveNumber = 1e-9
    """Added to the denominator; default: 1e-6 for adadelta, 1e-8 for rmsprop."""
    decay: NonNegativeNumber = 0.0
    """Weight decay of matrices; biases and norms have none."""
    momentum: Probability = 0.0
    """Momentum of sgd and rmsprop."""
    nesterov: bool = False
    """Nesterov momentum for sgd."""
    rho: Probability = 0.95
    """Decay of the mean of squared gradients of adadelta and rmsprop."""

    @model_validator(mode="before")
    @classmethod
    def _published(cls, given: Any) -> Any:
        name = given.get("name") if isinstance(given, dict) else None
        return {"epsilon": SMALL[name], **given} if name in SMALL else given

    @model_validator(mode="after")
    def _fits_together(self) -> OptimizerConfig:
        own = OPTIMIZERS[self.name].options
        others = {name for one in OPTIMIZERS.values() for name in one.options} - set(own)
        problems = unused(self, dict.fromkeys(sorted(others), f"training.optimizer.name is {self.name!r}"))
        if self.nesterov and not self.momentum:
            problems.append(Problem("nesterov", "given true, expected a momentum above 0 to look ahead with"))
        refuse(problems)
        return self


Groups = list[dict[str, Any]]


class Kind(NamedTuple):
    options: tuple[str, ...]  # those that have an effect
    make: Callable[[Groups, OptimizerConfig], torch.optim.Optimizer]


def adam(groups: Groups, config: OptimizerConfig) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, betas=config.betas, eps=config.epsilon, fused=True)


def sgd(groups: Groups, config: OptimizerConfig) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=1.0, momentum=config.momentum, nesterov=config.nesterov, fused=True)


def adadelta(groups: Groups, config: OptimizerConfig) -> torch.optim.Optimizer:
    return torch.optim.Adadelta(groups, rho=config.rho, eps=config.epsilon)


def rmsprop(groups: Groups, config: OptimizerConfig) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(groups, alpha=config.rho, eps=config.epsilon, momentum=config.momentum)


OPTIMIZERS = {
    "adam": Kind(("betas", "epsilon"), adam),
    "adamw": Kind(("betas", "epsilon", "decay"), adam),
    "sgd": Kind(("momentum", "nesterov", "decay"), sgd),
    "adadelta": Kind(("rho", "epsilon"), adadelta),
    "rmsprop": Kind(("rho", "epsilon", "momentum"), rmsprop),
}


def make_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Matrices decay, vectors do not. The schedule sets the rate before every step."""
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": config.decay}, {"params": vectors, "weight_decay": 0.0}]
    return OPTIMIZERS[config.name].make([group for group in groups if group["params"]], config)


def supports_found_inf(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its kernel leaves everything as it was where `found_inf` says so; fused ones do."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def parameter_names(model: nn.Module) -> dict[Tensor, str]:
    return {parameter: name for name, parameter in model.named_parameters()}


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Everything the optimizer remembers: "<parameter>:<what>" -> tensor."""
    names = parameter_names(model)
    return {
        f"{names[parameter]}:{what}": torch.as_tensor(value)
        for parameter, state in optimizer.state.items()
        for what, value in state.items()
        if value is not None
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor], where: Path | str = "the checkpoint"
) -> None:
    """Continue with what `optimizer_tensors` gave; without any tensors the optimizer starts anew, as after pruning."""
    parameters = dict(model.named_parameters())
    check_state(optimizer, parameters, tensors, where)
    for key, value in tensors.items():
        name, what = key.rsplit(":", 1)
        parameter = parameters[name]
        on_host = what == "step" and parameter.device.type == "cpu"
        optimizer.state[parameter][what] = value.clone() if on_host else value.to(parameter.device, copy=True)


def check_state(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor], tensors: Mapping[str, Tensor], where: Path | str
) -> None:
    """Every parameter has all of the state that such an optimizer keeps, in its own shape, or none of it."""
    kept = state_names(optimizer)
    found: dict[str, set[str]] = {}
    for key, value in tensors.items():
        name, _, what = key.rpartition(":")
        parameter = parameters.get(name)
        if parameter is None or what not in kept:
            raise mismatch_error(where, f"{key!r} is unknown")
        if value.shape != (parameter.shape if kept[what] else ()) or not value.is_floating_point():
            raise mismatch_error(where, f"{key!r} has type {value.dtype} and shape {tuple(value.shape)}")
        found.setdefault(name, set()).add(what)
    for name, there in found.items():
        if there != kept.keys():
            raise mismatch_error(where, f"{name} has no {', '.join(sorted(kept.keys() - there))}")


def state_names(optimizer: torch.optim.Optimizer) -> dict[str, bool]:
    """What such an optimizer remembers of a parameter, and whether it has the parameter's shape; a number has none."""
    probe = nn.Parameter(torch.zeros(2))
    probe.grad = torch.zeros(2)
    options = {name: value for name, value in optimizer.param_groups[0].items() if name not in ("params", "speed")}
    small = type(optimizer)([{"params": [probe], **options}])  # type: ignore[call-arg]
    small.step()
    return {name: torch.as_tensor(value).ndim > 0 for name, value in small.state[probe].items() if value is not None}


def mismatch_error(where: Path | str, why: str) -> CheckpointError:
    return CheckpointError(f"the optimizer state of {where} does not fit the model: {why}")
