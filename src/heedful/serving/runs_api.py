"""Training runs: their state, metrics and checkpoints, read from the files of their folders while they train.

    GET /api/runs                         all runs
    POST /api/demo                        train the demo model, in a studio without a run
    GET /api/runs/demo/metrics            the records of metrics.jsonl
    GET /api/runs/demo/samples            the records of samples.jsonl: outputs for validation examples
    GET /api/runs/demo/checkpoints        whether each checkpoint agrees with its manifest

The runs are those of the models and those below the folders given to `heed studio --watch`. A request names a run; the name is
looked up among them and is never used as a path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from heedful.errors import CheckpointError, HeedfulError
from heedful.inspection.result import replace_non_finite
from heedful.runs.listing import find_runs, summarize_run
from heedful.serving.body import Body
from heedful.serving.calls import Call, Endpoint, Service
from heedful.serving.failures import ApiError
from heedful.storage.manifest import NAME
from heedful.training import samples_log
from heedful.training.checkpoint import verify
from heedful.training.metrics_log import read_metrics
from heedful.training.retention import best_folder, steps
from heedful.training.saved_state import load_saved

VERIFIED = 64  # results of verification that are kept


def runs_of(service: Service) -> dict[str, Path]:
    """The run folders by name; a second run of a name gets a number."""
    served = [model.folder for model in service.models]
    watched = [run for folder in service.watched for run in find_runs(folder)]
    return name_runs([*served, *watched])


def name_runs(folders: Iterable[Path]) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for folder in dict.fromkeys(one.resolve() for one in folders):
        name, number = folder.name, 2
        while name in named:
            name, number = f"{folder.name}-{number}", number + 1
        named[name] = folder
    return named


def find_run(call: Call) -> tuple[str, Path]:
    name: str = call.request.path_params["run"]
    named = runs_of(call.service)
    if name not in named:
        raise ApiError(404, f"there is no run {name!r:.80}; /api/runs lists them")
    return name, named[name]


async def runs(call: Call, given: None) -> Any:
    named = await asyncio.to_thread(runs_of, call.service)
    found = await asyncio.to_thread(lambda: [describe_run(name, folder) for name, folder in named.items()])
    demo = call.service.demo
    return {"runs": found, "demo": None if demo is None else demo.describe()}


def describe_run(name: str, folder: Path) -> dict[str, Any]:
    """The summary of a run, or why it cannot be read; the path of the folder is not shown."""
    try:
        found = summarize_run(folder).to_dict()
    except HeedfulError as error:
        return {"name": name, "damaged": hide(str(error.args[0]), folder, name)}
    shown: dict[str, Any] = replace_non_finite({**found, "folder": name, "name": name})
    return shown


async def metrics(call: Call, given: None) -> Any:
    name, folder = find_run(call)
    records = await asyncio.to_thread(read_metrics, folder / "metrics.jsonl")
    return replace_non_finite({"name": name, "records": records})


class DemoFields(Body):
    action: Literal["start", "stop"] = Field(description="Start or continue training, or save and stop.")


async def train_demo(call: Call, given: DemoFields) -> Any:
    demo = call.service.demo
    if demo is None:
        raise ApiError(404, "this server trains no model; `heed studio` without a run offers it")
    await asyncio.to_thread(demo.start if given.action == "start" else demo.stop)
    return demo.describe()


async def samples(call: Call, given: None) -> Any:
    name, folder = find_run(call)
    return {"name": name, "records": await asyncio.to_thread(read_metrics, folder / samples_log.NAME)}


async def checkpoints(call: Call, given: None) -> Any:
    name, folder = find_run(call)
    return {"name": name, "checkpoints": await asyncio.to_thread(list_checkpoints, name, folder)}


def list_checkpoints(name: str, folder: Path) -> list[dict[str, Any]]:
    """Every checkpoint with its metrics, and whether each byte agrees with its manifest."""
    best = best_folder(folder / "checkpoints")
    return [describe_checkpoint(name, folder, one, best) for one in steps(folder / "checkpoints")]


def describe_checkpoint(name: str, folder: Path, checkpoint: Path, best: Path | None) -> dict[str, Any]:
    problem = verify_once(checkpoint, stamp_of(checkpoint))
    metrics = {}
    if problem is None:
        try:
            metrics = load_saved(checkpoint).metrics
        except CheckpointError as error:
            problem = str(error.args[0])
    return {
        "name": checkpoint.name,
        "step": int(checkpoint.name.removeprefix("step-")),
        "verified": problem is None,
        "problem": None if problem is None else hide(problem, folder, name),
        "best": best is not None and best.resolve() == checkpoint.resolve(),
        "metrics": replace_non_finite(metrics),
    }


def stamp_of(checkpoint: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of the files: verification is repeated when they change."""
    try:
        status = [(path.name, path.stat()) for path in sorted(checkpoint.iterdir())]
    except OSError:
        return ((NAME, 0, 0),)
    return tuple((name, one.st_size, one.st_mtime_ns) for name, one in status)


@lru_cache(VERIFIED)
def verify_once(checkpoint: Path, stamp: tuple[tuple[str, int, int], ...]) -> str | None:
    """What is wrong with a checkpoint; None: nothing."""
    try:
        verify(checkpoint)
    except CheckpointError as error:
        return str(error.args[0])
    return None


def hide(text: str, folder: Path, name: str) -> str:
    return text.replace(str(folder), name)


ENDPOINTS = [
    Endpoint("GET", "/api/runs", runs, "List the training runs, with their state"),
    Endpoint("POST", "/api/demo", train_demo, "Train the demo model, in a studio without a run", fields=DemoFields),
    Endpoint("GET", "/api/runs/{run}/metrics", metrics, "The metrics of a training run, in order"),
    Endpoint("GET", "/api/runs/{run}/samples", samples, "Outputs for validation examples, over the steps of a run"),
    Endpoint("GET", "/api/runs/{run}/checkpoints", checkpoints, "The checkpoints of a run, verified"),
]
