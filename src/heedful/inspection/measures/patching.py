"""Activation patching (causal tracing; Vig et al., 2020; Meng et al., 2022): insert an activation of one run into another and
measure the change of the output.

    change(point, i, t) = log p(y_t | B, with A's activation at position i of this hook point) - log p(y_t | B)

A and B are two sources; both runs decode the same target y. A change of log p(y_t | A) - log p(y_t | B) means that the whole
difference between A and B passes through this activation.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.nn.hooks import hook, record
from heedful.nn.model import LayerOutput, SequenceModel, inference_context


class PatchEffect(NamedTuple):
    output: LayerOutput
    change: Tensor  # (positions, target time)


class PatchingResult(NamedTuple):
    first: Tensor  # (target time,): log p of the target given A
    second: Tensor  # (target time,): given B
    effects: list[PatchEffect]
    left_out: list[LayerOutput]  # where A and B have different numbers of positions


def trace(model: SequenceModel, sources: tuple[Tensor, Tensor], target_in: Tensor, target_out: Tensor) -> PatchingResult:
    """Patch every layer output of run A into run B. sources: A and B, each (1, source time); target_in and target_out
    (1, target time)."""

    def log_probabilities(source: Tensor, rows: int = 1) -> Tensor:
        logs = model.forced_logits(source.expand(rows, -1), None, target_in.expand(rows, -1)).float().log_softmax(-1)
        return logs.gather(-1, target_out.expand(rows, -1)[..., None])[..., 0]  # (rows, target time)

    outputs = model.layer_outputs()
    names = [output.name for output in outputs]
    with inference_context(model):
        with record(model, *names) as recorded:
            first = log_probabilities(sources[0])[0]
        with record(model, *names) as recorded_b:
            second = log_probabilities(sources[1])[0]
        both = {name for name in recorded.keys() & recorded_b.keys() if recorded[name].shape == recorded_b[name].shape}
        effects = []
        for output in outputs:
            if output.name in both:
                value = recorded[output.name][0]  # (positions, dim)
                with hook(model, output.name, lambda name, x, value=value: patch_diagonal(x, value)):  # type: ignore[misc]
                    effects.append(PatchEffect(output, log_probabilities(sources[1], len(value)) - second))
    return PatchingResult(first, second, effects, [output for output in outputs if output.name not in both])


def patch_diagonal(x: Tensor, value: Tensor) -> Tensor:
    """x (rows, positions, dim), value (positions, dim): replace position i of row i only."""
    x, index = x.clone(), torch.arange(len(value), device=x.device)
    x[index, index] = value.to(x)
    return x
