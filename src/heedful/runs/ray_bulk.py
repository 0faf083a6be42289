"""Bulk prediction on a cluster, by Ray Data: each shard is a task, and a task whose worker dies runs again elsewhere.

    ray.data: one row per shard  ->  map: predict the parts of the shard that are missing  ->  join

Ray moves no text: every task reads the files and commits its parts (`storage/parts.py`) on a disk that all machines share. So a
task that runs again continues where it stopped, one that runs twice changes nothing, and the bytes are those of `heed predict`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError
from heedful.runs.bulk import EVERY, BulkJob, predict_to_file, render_text
from heedful.runs.load import load
from heedful.storage.parts import Joined, Shard, check_output, join_parts, load_parts
from heedful.tasks import find_command

Name = str | os.PathLike[str]


def predict_on_ray(
    run: Name,
    files: Sequence[Name],
    output: Name,
    *,
    shards: int,
    search: Sequence[str] = (),
    device: str | None = None,
    every: int = EVERY,
    resources: dict[str, Any] | None = None,
) -> Joined:
    """Predict the inputs of files with a run, in tasks of the Ray cluster of this process, and join the output.

    search: search options such as "beam=5"; resources: of each task, such as {"num_gpus": 1}

    All paths must exist on every machine under the same name. The output has the rows that `heed predict` prints."""
    if shards < 1:
        raise ConfigError(f"shards: given {shards}, expected at least 1")
    ray = import_ray()
    folder, target = Path(run).resolve(), Path(output).resolve()  # a worker has another working directory
    sources = [str(Path(file).resolve()) for file in files]
    check_output(target, map(Path, sources))

    def predict_shard(row: dict[str, Any]) -> dict[str, Any]:
        from heedful.runs.ray_bulk import predict_one  # in the process of a worker

        predicted = predict_one(folder, sources, target, Shard(row["shard"], shards), search=search, device=device, every=every)
        return {"shard": row["shard"], "predicted": predicted}

    rows = ray.data.from_items([{"shard": number} for number in range(1, shards + 1)], override_num_blocks=shards)
    rows.map(predict_shard, **{"max_retries": -1, **(resources or {})}).materialize()
    return join_parts(load_parts(target), target)


def predict_one(
    run: Name, files: Sequence[str], output: Path, shard: Shard, *, search: Sequence[str], device: str | None, every: int
) -> int:
    """Predict the parts of a shard that are missing; return the number of inputs."""
    predictor = load(run, None, device, "fp32")
    options = find_command(predictor.run.task.name).predict()
    config = predictor.search_config(list(search))
    paths = [Path(file) for file in files]
    predictor.check_inputs(paths, options)
    job = BulkJob(predictor, paths, config, options, render_text, "text", [predictor.checkpoint], "fp32")
    return predict_to_file(job, output, shard, {}, every=every).predicted


def import_ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigError(
            "predicting on a cluster needs Ray, which is not installed", hint="pip install 'heedful[ray]'"
        ) from error
    return ray
