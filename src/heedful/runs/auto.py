"""Options whose default is "auto": resolved once, when a run is started, for its device and its data.

                             GPU                                       CPU, mps
    training.precision       bf16 if its units multiply bf16           fp32
    training.cuda_graphs     true, unless the config forbids it        false
    data.pad_to_multiple_of  16 with CUDA graphs, so few are captured  1

    task.labels              those of the training data, for tasks that collect them
    task.variables           the columns of the training data, for forecasting
    task.features            the columns of the features of nodes, or the numbers of a state
    task.actions             the actions, for decisions

A value that was set is kept. The run folder stores the resolved values, and a run is continued with them on any device.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from heedful.runs.config import Run
from heedful.tasks import find_task

OFF: dict[str, object] = {"training.precision": "fp32", "training.cuda_graphs": False, "data.pad_to_multiple_of": 1}
AUTO = (*OFF, "task.labels", "task.variables", "task.actions", "task.features")  # every option that can be "auto"
FEW_SHAPES = 16  # the multiple that the results on Multi30k were measured with


def resolve(config: Run, device: torch.device) -> Run:
    """Replace every "auto" by the value for this device, or for the data of the task."""
    graphs = config.training.cuda_graphs
    if graphs == "auto":
        graphs = allows_cuda_graphs(config)
    graphs = graphs and device.type == "cuda"
    chosen = {
        "training.precision": "bf16" if multiplies_bf16(device) else "fp32",
        "training.cuda_graphs": graphs,
        "data.pad_to_multiple_of": FEW_SHAPES if graphs else 1,
    }
    return replace_auto(config, chosen | dict(find_task(config.task.name).resolve(config)))


def resolve_as_stored(config: Run, stored: Run) -> Run:
    """Replace every "auto" by the value of the run that is continued."""
    return replace_auto(config, {path: value_of(stored, path) for path in AUTO})


def allows_cuda_graphs(config: Run) -> bool:
    """Whether a training step can be captured, and few shapes occur.

    Not with FSDP, which gathers weights in every step; not with torch.compile, which captures graphs itself; not with
    activation checkpointing, which reads the state of the random generator; not with a search in every update; not without
    padding, where most batches have a shape of their own."""
    training = config.training
    unpadded = value_of(config, "data.pad_to_multiple_of") == 1
    sharded = training.distributed == "fsdp"
    return not (sharded or training.compile or training.recompute or config.task.searches_in_updates or unpadded)


def multiplies_bf16(device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def describe_choices(given: Run, resolved: Run) -> str:
    """One line on what "auto" turned on, and how to turn it off; empty if it turned on nothing."""
    chosen = {path: value_of(resolved, path) for path in OFF if value_of(given, path) == "auto"}
    on = {path: value for path, value in chosen.items() if value != OFF[path]}
    if not on:
        return ""
    return f"chosen for this GPU: {as_overrides(on)}; to turn off: {as_overrides({path: OFF[path] for path in on})}"


def as_overrides(values: Mapping[str, object]) -> str:
    return " ".join(f"{path}={str(value).lower()}" for path, value in values.items())


def value_of(config: Run, path: str) -> object:
    """The value of an option; None if the config has no such option: plain text is not padded."""
    table, name = path.split(".")
    value: object = getattr(getattr(config, table), name, None)
    return value


def replace_auto(config: Run, values: Mapping[str, object]) -> Run:
    for path, value in values.items():
        if value_of(config, path) == "auto":
            table, name = path.split(".")
            part = getattr(config, table).model_copy(update={name: value})
            config = config.model_copy(update={table: part})
    return config
