"""heed train, average, sweep."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.bounds import MAX_COUNT
from heedful.cli.configs import warn_of_two_meanings
from heedful.cli.output import COMMAND_LINE, Device, Json, bytes_in_words, label, print_json, print_message, print_text, table

Recipe = Annotated[str, typer.Argument(help="A recipe file, or the name of one that `heed recipes` lists.")]


def train(
    recipe: Recipe,
    overrides: Annotated[list[str] | None, typer.Argument(help="model.dim=256 training.steps=200 …")] = None,
    run: Annotated[Path | None, typer.Option(help="The run folder; runs/<task>-<recipe> unless said.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would take, and do not train.")] = False,
    device: Device = None,
    json: Json = False,
) -> None:
    """Train by a recipe; the same command continues a run that was stopped."""
    began = time.monotonic()
    from heedful.config import read_run
    from heedful.recipe_files import find_recipe
    from heedful.running import default_folder, plan_run, train_config
    from heedful.training.time_limit import Stopwatch

    warn_of_two_meanings(recipe)
    path = find_recipe(recipe)
    config = read_run(path, overrides or [], origin=COMMAND_LINE).config
    if plan:
        facts = plan_run(config, device=device)
        print_json(facts) if json else print_text(
            table([("figure", "value"), *((label(name), spell(name, value)) for name, value in facts.items())])
        )
        return
    folder = run or (path.parent if path.name == "config.toml" else default_folder(config, path))
    outcome = train_config(config, folder, device=device, watch=Stopwatch(began))
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


def spell(name: str, value: Any) -> str:
    """A figure for people."""
    if name.endswith("bytes"):
        return bytes_in_words(value)
    if name.endswith("seconds"):
        return f"{value:,.0f} s ({value / 3600:.1f} h)"
    if name == "padding":
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def average(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    last: Annotated[int, typer.Option(min=0, max=MAX_COUNT, help="Average the last so many checkpoints.")] = 0,
    steps: Annotated[str, typer.Option(help="Or those of these steps: 1000,2000,3000.")] = "",
    json: Json = False,
) -> None:
    """Average checkpoints into checkpoints/average, to be used with --checkpoint average."""
    from heedful.errors import ConfigError
    from heedful.training import checkpoint, retention, run_folder
    from heedful.training.averaging import mean_weights

    if bool(last) == bool(steps):
        raise ConfigError("give either --last N or --steps A,B,C", hint=f"heed average {run} --last 5")
    run_folder.check_files(run)
    names = [f"step-{step.strip()}" for step in steps.split(",")] if steps else []
    folders = [retention.resolve(run, name) for name in names] or retention.steps(run / "checkpoints")[-last:]
    with run_folder.lock(run):
        state: dict[str, Any] = {"step": None, "of": [folder.name for folder in folders], "metrics": {}, "signatures": {}}
        made = checkpoint.save_named(run / "checkpoints", "average", {"model": mean_weights(folders)}, state)
    if json:
        print_json({"checkpoint": str(made), "of": state["of"]})
    else:
        print_message(f"{made}: the mean of {', '.join(folder.name for folder in folders)}")


def sweep(
    recipe: Recipe,
    grid: Annotated[list[str], typer.Argument(help="key=a,b,c …: every combination is trained.")],
    run: Annotated[Path | None, typer.Option(help="The folder for all runs; runs/sweep-<recipe> unless said.")] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Train every combination of the given values and print the table; stopped, the same command continues."""
    from itertools import product

    from heedful.config import read_run
    from heedful.recipe_files import find_recipe
    from heedful.running import train_config
    from heedful.settings.given import parse_value

    warn_of_two_meanings(recipe)
    path = find_recipe(recipe)
    root = run or Path("runs") / f"sweep-{path.stem}"
    pairs = [part.partition("=") for part in grid]
    axes = [(key, [values] if values[:1] in ("[", "{") else values.split(",")) for key, _, values in pairs]
    points = [dict(zip((key for key, _ in axes), chosen, strict=True)) for chosen in product(*(values for _, values in axes))]
    configs = [
        read_run(path, [f"{key}={value}" for key, value in point.items()], origin=COMMAND_LINE).config for point in points
    ]  # all, first
    varied = [key for key, values in axes if len(values) > 1]
    rows: list[dict[str, Any]] = []
    for point, config in zip(points, configs, strict=True):
        name = "_".join(f"{key}={point[key]}".replace("/", "-") for key in varied) or "run"
        print_message(f"--- {name}")
        outcome = train_config(config, root / name, device=device)
        rows.append({key: parse_value(point[key]) for key in varied} | outcome.metrics)
    if json:
        print_json({"runs": rows})
    else:
        head = list(rows[0])
        cells = [[f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name]) for name in head] for row in rows]
        print_text(table([head, *cells]))
