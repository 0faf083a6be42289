"""Activation patching (causal tracing; Vig et al., 2020; Meng et al., 2022): insert an activation of one run into another and
measure the change of the output.

    change(point, i, t) = log p(y_t | B, with A's activation at position i of this hook point) - log p(y_t | B)

A and B are two sources; both runs decode the same target y. A change of log p(y_t | A) - log p(y_t | B) means that the whole
difference between A and B passes through this activation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.nn.hooks import hook, record
from heedful.nn.model import LayerOutput, Model, inference_context
from heedful.tasks.encoded_example import Forward


class PatchEffect(NamedTuple):
    output: LayerOutput
    change: Tensor  # (positions, outputs)


class PatchingResult(NamedTuple):
    first: Tensor  # (outputs,): log p of the target given A
    second: Tensor  # (outputs,): given B
    effects: list[PatchEffect]
    left_out: list[LayerOutput]  # where A and B have different numbers of positions, or several rows of them, as sentences


class Pass(NamedTuple):
    """The pass over an example, and what it predicts."""

    forward: Forward
    log_probabilities: Callable[[Tensor], Tensor]  # hidden states (rows, target time, dim) -> log p, (rows, outputs)

    def run(self, model: Model, rows: int = 1) -> Tensor:
        """log p of the outputs, (rows, outputs)."""
        return self.log_probabilities(self.forward(model, rows).hidden)


def patch_passes(model: Model, a: Pass, b: Pass) -> PatchingResult:
    """Patch every layer output of run A into run B, which predict the same outputs."""
    outputs = model.layer_outputs()
    names = [output.name for output in outputs]
    with inference_context(model):
        with record(model, *names) as recorded:
            first = a.run(model)[0]
        with record(model, *names) as recorded_b:
            second = b.run(model)[0]
        shapes = {name: (recorded[name].shape, recorded_b[name].shape) for name in recorded.keys() & recorded_b.keys()}
        both = {name for name, (first_shape, shape) in shapes.items() if first_shape == shape and shape[0] == 1}
        effects = []
        for output in outputs:
            if output.name in both:
                value = recorded[output.name][0]  # (positions, dim)
                with hook(model, output.name, lambda name, x, value=value: patch_diagonal(x, value)):  # type: ignore[misc]
                    effects.append(PatchEffect(output, b.run(model, len(value)) - second))
    return PatchingResult(first, second, effects, [output for output in outputs if output.name not in both])


def patch_diagonal(x: Tensor, value: Tensor) -> Tensor:
    """x (rows, positions, dim), value (positions, dim): replace position i of row i only."""
    x, index = x.clone(), torch.arange(len(value), device=x.device)
    x[index, index] = value.to(x)
    return x
