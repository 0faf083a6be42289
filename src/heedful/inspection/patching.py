"""Patching: put what one run had at a place into another run, and see how far the answer follows (causal tracing; Vig et
al., 2020; Meng et al., 2022).

    change(place, i, t) = log p(y_t | B, with A's value at position i of this place) - log p(y_t | B)

A and B are two sources; both runs are led through the same target y. A change as large as log p(y_t | A) - log p(y_t | B) says
that all the difference between A and B passes through this one place.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.inspection.attention_maps import inference_context, layer_of
from heedful.inspection.lens import LogitModel
from heedful.nn.hooks import hook, hook_points, record

PATCHABLE = re.compile(r".*\.(out|read|thought)")  # what a layer gives of each of its positions


class PatchEffect(NamedTuple):
    name: str  # of the tap
    layer: int
    change: Tensor  # (positions, target time)


class PatchingResult(NamedTuple):
    first: Tensor  # (target time,): log p of the target after A
    second: Tensor  # (target time,): after B
    effects: list[PatchEffect]
    left_out: list[str]  # places where A and B have different numbers of positions


def trace(model: LogitModel, sources: tuple[Tensor, Tensor], target_in: Tensor, target_out: Tensor) -> PatchingResult:
    """sources: A and B, each (1, source time); target_in and target_out (1, target time)."""
    assert isinstance(model, nn.Module), "models are modules"

    def logs(source: Tensor, rows: int = 1) -> Tensor:
        state = model.start(source.expand(rows, -1), None, room=0)
        found = model.project(model.step(target_in.expand(rows, -1), state).hidden).float().log_softmax(-1)
        return found.gather(-1, target_out.expand(rows, -1)[..., None])[..., 0]  # (rows, target time)

    names = [name for name in hook_points(model) if PATCHABLE.fullmatch(name)]
    with inference_context(model):
        with record(model, *names) as seen:
            first = logs(sources[0])[0]
        with record(model, *names) as other:
            second = logs(sources[1])[0]
        fitting = [name for name in names if name in seen and name in other and seen[name].shape == other[name].shape]
        places = []
        for name in fitting:
            value = seen[name][0]  # (positions, dim)
            with hook(model, name, lambda name, x, value=value: patch_diagonal(x, value)):  # type: ignore[misc]
                places.append(PatchEffect(name, layer_of(name), logs(sources[1], len(value)) - second))
    return PatchingResult(first, second, places, [name for name in names if name not in fitting])


def patch_diagonal(x: Tensor, value: Tensor) -> Tensor:
    """x (rows, positions, dim), value (positions, dim): row i gets the value of position i, and keeps its others."""
    x, place = x.clone(), torch.arange(len(value), device=x.device)
    x[place, place] = value.to(x)
    return x
