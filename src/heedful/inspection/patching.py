"""Activation patching (causal tracing; Vig et al., 2020; Meng et al., 2022): insert an activation of one run into another and
measure the change of the output.

    change(point, i, t) = log p(y_t | B, with A's activation at position i of this hook point) - log p(y_t | B)

A and B are two sources; both runs decode the same target y. A change of log p(y_t | A) - log p(y_t | B) means that the whole
difference between A and B passes through this activation.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.inspection.attention_maps import inference_context, layer_of
from heedful.inspection.lens import LogitModel
from heedful.nn.hooks import hook, hook_points, record

PATCHABLE = re.compile(r".*\.(out|read|thought)")  # layer outputs by position


class PatchEffect(NamedTuple):
    name: str  # of the hook point
    layer: int
    change: Tensor  # (positions, target time)


class PatchingResult(NamedTuple):
    first: Tensor  # (target time,): log p of the target given A
    second: Tensor  # (target time,): given B
    effects: list[PatchEffect]
    left_out: list[str]  # hook points where A and B have different numbers of positions


def trace(model: LogitModel, sources: tuple[Tensor, Tensor], target_in: Tensor, target_out: Tensor) -> PatchingResult:
    """Patch every layer output of run A into run B. sources: A and B, each (1, source time); target_in and target_out
    (1, target time)."""
    assert isinstance(model, nn.Module), "models are modules"

    def log_probabilities(source: Tensor, rows: int = 1) -> Tensor:
        state = model.start(source.expand(rows, -1), None, room=0)
        logs = model.project(model.step(target_in.expand(rows, -1), state).hidden).float().log_softmax(-1)
        return logs.gather(-1, target_out.expand(rows, -1)[..., None])[..., 0]  # (rows, target time)

    names = [name for name in hook_points(model) if PATCHABLE.fullmatch(name)]
    with inference_context(model):
        with record(model, *names) as recorded:
            first = log_probabilities(sources[0])[0]
        with record(model, *names) as recorded_b:
            second = log_probabilities(sources[1])[0]
        patchable = [
            name for name in names if name in recorded and name in recorded_b and recorded[name].shape == recorded_b[name].shape
        ]
        effects = []
        for name in patchable:
            value = recorded[name][0]  # (positions, dim)
            with hook(model, name, lambda name, x, value=value: patch_diagonal(x, value)):  # type: ignore[misc]
                effects.append(PatchEffect(name, layer_of(name), log_probabilities(sources[1], len(value)) - second))
    return PatchingResult(first, second, effects, [name for name in names if name not in patchable])


def patch_diagonal(x: Tensor, value: Tensor) -> Tensor:
    """x (rows, positions, dim), value (positions, dim): replace position i of row i only."""
    x, index = x.clone(), torch.arange(len(value), device=x.device)
    x[index, index] = value.to(x)
    return x
