"""heed train, average, sweep."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.configs import warn_if_ambiguous
from heedful.cli.output import (
    COMMAND_LINE,
    Device,
    Json,
    format_bytes,
    format_name,
    print_json,
    print_message,
    print_text,
    table,
)
from heedful.config.bounds import MAX_COUNT, MAX_PROCESSES

Recipe = Annotated[str, typer.Argument(help="A recipe file, or a name listed by `heed recipes`.")]


def train(
    recipe: Recipe,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Options to override: model.dim=256 training.steps=200 …")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Run folder. Default: runs/<task>-<recipe>.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Estimate time and memory, without training.")] = False,
    processes: Annotated[
        int, typer.Option(min=1, max=MAX_PROCESSES, help="Processes to train with on this machine, one for each GPU.")
    ] = 1,
    max_restarts: Annotated[
        int, typer.Option(min=0, max=MAX_COUNT, help="Restarts after a process was killed or crashed.")
    ] = 0,
    device: Device = None,
    json: Json = False,
) -> None:
    """Train a model from a recipe.

    The same command resumes a stopped run."""
    start = time.monotonic()
    from heedful.runs.build import choose_device
    from heedful.runs.load import read_recipe
    from heedful.runs.plan import advise
    from heedful.runs.processes import is_first_rank, is_rank, train_in_processes
    from heedful.runs.recipes import find_recipe, naming_folder
    from heedful.runs.train import default_folder, plan_run, train_config
    from heedful.training.progress import long_run_warning
    from heedful.training.time_limit import LONG, Stopwatch

    warn_if_ambiguous(recipe)
    path = find_recipe(recipe)
    config = read_recipe(path, overrides or [], origin=COMMAND_LINE).config
    if plan:
        with naming_folder(path):
            facts = plan_run(config, device=device)
        print_json(facts) if json else print_text(
            table([("figure", "value"), *((format_name(name), format_value(name, value)) for name, value in facts.items())])
        )
        advice = advise(config, choose_device(device), path)
        if advice and facts["training_seconds"] > LONG:
            print_message(long_run_warning(facts["training_seconds"], advice))
        return
    folder = run or default_folder(config, path)
    if (processes > 1 or max_restarts) and not is_rank():
        arguments = ["train", recipe, *(overrides or []), "--run", str(folder), *(["--device", device] if device else [])]
        code = train_in_processes([*arguments, *(["--json"] if json else [])], processes, max_restarts, print_message)
        if code:
            raise typer.Exit(code)
        return
    outcome = train_config(config, folder, recipe=path, device=device, watch=Stopwatch(start))
    if not is_first_rank():
        return
    if json:
        print_json(
            {
                "run": str(folder),
                "step": outcome.step,
                "metrics": outcome.metrics,
                "best": outcome.best,
                "seconds": round(outcome.seconds, 3),
                "already_done": outcome.already_done,
            }
        )
    else:
        print_message(f"run folder: {folder}")


def format_value(name: str, value: Any) -> str:
    """A figure with its unit."""
    if name.endswith("bytes"):
        return format_bytes(value)
    if name.endswith("seconds"):
        return f"{value:,.0f} s ({value / 3600:.1f} h)"
    if name == "padding":
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def average(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    last: Annotated[int | None, typer.Option(min=1, max=MAX_COUNT, help="Number of newest checkpoints to average.")] = None,
    steps: Annotated[str, typer.Option(help="Steps of the checkpoints to average: 1000,2000,3000.")] = "",
    json: Json = False,
) -> None:
    """Average the weights of checkpoints.

    Writes checkpoints/average of the run, for use with --checkpoint average."""
    from heedful.errors import CheckpointError, ConfigError
    from heedful.training import checkpoint, retention, run_folder
    from heedful.training.averaging import mean_weights

    if last is not None and steps:
        raise ConfigError("given both --last and --steps, expected one of them", hint="remove one of them")
    if last is None and not steps:
        raise ConfigError("expected --last N or --steps A,B,C", hint=f"run heed average {run} --last 5")
    retention.require_run(run)
    run_folder.check_files(run)
    names = [f"step-{step.strip()}" for step in steps.split(",")] if steps else []
    folders = [retention.resolve(run, name) for name in names] or retention.steps(run / "checkpoints")[-(last or 0) :]
    if not folders:
        raise CheckpointError(f"{run} has no checkpoint yet", hint="train it with heed train")
    with run_folder.lock(run):
        state: dict[str, Any] = {"step": None, "of": [folder.name for folder in folders], "metrics": {}, "signatures": {}}
        folder = checkpoint.save_named(run / "checkpoints", "average", {"model": mean_weights(folders)}, state)
    if json:
        print_json({"checkpoint": str(folder), "of": state["of"]})
    else:
        print_message(f"{folder}: mean of {', '.join(state['of'])}")


def sweep(
    recipe: Recipe,
    grid: Annotated[list[str], typer.Argument(help="Values to combine: key=a,b,c …")],
    run: Annotated[Path | None, typer.Option(help="Folder of all runs. Default: runs/sweep-<recipe>.")] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Train every combination of the given values and print a table.

    The same command resumes a stopped sweep."""
    from itertools import product

    from heedful.config.given import parse_value
    from heedful.runs.load import read_recipe
    from heedful.runs.recipes import find_recipe
    from heedful.runs.train import train_config

    warn_if_ambiguous(recipe)
    path = find_recipe(recipe)
    root = run or Path("runs") / f"sweep-{path.stem}"
    pairs = [part.partition("=") for part in grid]
    axes = [(key, [values] if values[:1] in ("[", "{") else values.split(",")) for key, _, values in pairs]
    points = [dict(zip((key for key, _ in axes), chosen, strict=True)) for chosen in product(*(values for _, values in axes))]
    configs = [
        read_recipe(path, [f"{key}={value}" for key, value in point.items()], origin=COMMAND_LINE).config for point in points
    ]  # all are checked before the first is trained
    varied = [key for key, values in axes if len(values) > 1]
    rows: list[dict[str, Any]] = []
    for point, config in zip(points, configs, strict=True):
        name = "_".join(f"{key}={point[key]}".replace("/", "-") for key in varied) or "run"
        print_message(f"--- {name}")
        outcome = train_config(config, root / name, recipe=path, device=device)
        rows.append({key: parse_value(point[key]) for key in varied} | outcome.metrics)
    if json:
        print_json({"runs": rows})
    else:
        head = list(rows[0])
        cells = [[f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name]) for name in head] for row in rows]
        print_text(table([head, *cells]))
