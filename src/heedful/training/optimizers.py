"""Optimizers, and their state as plain named tensors, so that a checkpoint needs no pickle.

adam        "Adam", Kingma and Ba, 2015; as in "Attention Is All You Need"
adamw       Adam with decoupled weight decay of matrices (Loshchilov and Hutter, 2019)
sgd         with momentum, optionally Nesterov's: Sutskever et al., Luong et al., ConvS2S
adadelta    "Adadelta", Zeiler, 2012: Bahdanau et al.
rmsprop     the gradient divided by its root mean square (Tieleman and Hinton, 2012)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import Config, Epsilon, NonNegativeNumber, Probability, Problem, refuse, unused
from heedful.errors import CheckpointError

SMALL = {"adadelta": 1e-6, "rmsprop": 1e-8}  # published epsilons that differ from that of the Transformer's Adam


class OptimizerConfig(Config):
    """Default: Adam as in "Attention Is All You Need"."""

    name: Literal["adam", "adamw", "sgd", "adadelta", "rmsprop"] = "adam"
    """Optimizer."""
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    """Decay rates of the two moments of adam and adamw."""
    epsilon: Epsilon = 1e-9
    """Added to the denominator; default for adadelta: 1e-6, for rmsprop: 1e-8."""
    decay: NonNegativeNumber = 0.0
    """Weight decay of matrices; biases and norms are not decayed."""
    momentum: Probability = 0.0
    """Momentum of sgd and rmsprop."""
    nesterov: bool = False
    """Nesterov momentum for sgd."""
    rho: Probability = 0.95
    """Decay rate of the mean squared gradient of adadelta and rmsprop."""

    @model_validator(mode="before")
    @classmethod
    def _published(cls, given: Any) -> Any:
        name = given.get("name") if isinstance(given, dict) else None
        return {"epsilon": SMALL[name], **given} if name in SMALL else given

    @model_validator(mode="after")
    def _fits_together(self) -> OptimizerConfig:
        own = OPTIMIZERS[self.name].options
        others = {name for kind in OPTIMIZERS.values() for name in kind.options} - set(own)
        problems = unused(self, dict.fromkeys(sorted(others), f"training.optimizer.name is {self.name!r}"))
        if self.nesterov and not self.momentum:
            problems.append(Problem("nesterov", "given true, expected momentum > 0"))
        refuse(problems)
        return self


Groups = list[dict[str, Any]]


class Kind(NamedTuple):
    options: tuple[str, ...]  # options that have an effect
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
    """Build the optimizer: weight decay for matrices only. The schedule sets the learning rate before every step."""
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": config.decay}, {"params": vectors, "weight_decay": 0.0}]
    return OPTIMIZERS[config.name].make([group for group in groups if group["params"]], config)


def supports_found_inf(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its kernel skips the update if `found_inf` is 1; fused optimizers do."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def parameter_names(model: nn.Module) -> dict[Tensor, str]:
    return {parameter: name for name, parameter in model.named_parameters()}


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The state of the optimizer: {"<parameter>:<state>": tensor}."""
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
    """Load the result of `optimizer_tensors`; if it is empty, as after pruning, the optimizer starts from zero."""
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
    """Check that every parameter has all state tensors of such an optimizer, in its own shape, or none."""
    expected = state_names(optimizer)
    given: dict[str, set[str]] = {}
    for key, value in tensors.items():
        name, _, what = key.rpartition(":")
        parameter = parameters.get(name)
        if parameter is None or what not in expected:
            raise mismatch_error(where, f"{key!r} is unknown")
        shape = tuple(parameter.shape) if expected[what] else ()
        if value.shape != shape:
            raise mismatch_error(where, f"{key!r} has shape {tuple(value.shape)}, expected {shape}")
        if not value.is_floating_point():
            raise mismatch_error(where, f"{key!r} has type {value.dtype}, expected a floating-point type")
        given.setdefault(name, set()).add(what)
    for name, states in given.items():
        if states != expected.keys():
            raise mismatch_error(where, f"{name} has no {', '.join(sorted(expected.keys() - states))}")


def state_names(optimizer: torch.optim.Optimizer) -> dict[str, bool]:
    """{name of a state tensor: whether it has the shape of the parameter (else it is a scalar)} of such an optimizer."""
    probe = nn.Parameter(torch.zeros(2))
    probe.grad = torch.zeros(2)
    options = {name: value for name, value in optimizer.param_groups[0].items() if name not in ("params", "speed")}
    small = type(optimizer)([{"params": [probe], **options}])  # type: ignore[call-arg]
    small.step()
    return {name: torch.as_tensor(value).ndim > 0 for name, value in small.state[probe].items() if value is not None}


def mismatch_error(where: Path | str, why: str) -> CheckpointError:
    return CheckpointError(
        f"the optimizer state of {where} does not fit the model: {why}",
        hint="restore the checkpoint from a backup, or move it out of its folder to continue from the previous one",
    )
