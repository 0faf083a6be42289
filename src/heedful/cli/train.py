"""heed train, average, sweep."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from heedful.config.bounds import MAX_COUNT, MAX_GPUS, MAX_NODES, MAX_NUMBER, MAX_PROCESSES

if TYPE_CHECKING:
    from heedful.runs.scaling import Cluster, Scaled

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
    nodes: Annotated[int | None, typer.Option(min=1, max=MAX_NODES, help="With --plan: machines to train on.")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, max=MAX_GPUS, help="With --plan: GPUs of each machine.")] = None,
    node_link: Annotated[
        float | None, typer.Option(min=0.001, max=MAX_NUMBER, help="With --plan: GB/s that a GPU sends inside its machine.")
    ] = None,
    network_link: Annotated[
        float | None, typer.Option(min=0.001, max=MAX_NUMBER, help="With --plan: GB/s that a GPU sends to other machines.")
    ] = None,
    gpu_price: Annotated[
        float | None, typer.Option(min=0, max=MAX_NUMBER, help="With --plan: price of a GPU for an hour.")
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Train a model from a recipe.

    The same command resumes a stopped run."""
    start = time.monotonic()
    from heedful.errors import ConfigError
    from heedful.runs.build import choose_device
    from heedful.runs.load import read_recipe
    from heedful.runs.plan import advise
    from heedful.runs.processes import is_first_rank, is_rank, train_in_processes
    from heedful.runs.recipes import find_recipe, naming_folder
    from heedful.runs.scaling import scale_plan
    from heedful.runs.train import default_folder, plan_run, train_config
    from heedful.training.progress import long_run_warning
    from heedful.training.time_limit import LONG, Stopwatch

    warn_if_ambiguous(recipe)
    path = find_recipe(recipe)
    config = read_recipe(path, overrides or [], origin=COMMAND_LINE).config
    cluster = cluster_of(nodes=nodes, gpus=gpus, node_link=node_link, network_link=network_link, price=gpu_price)
    if cluster is not None and not plan:
        raise ConfigError("--nodes, --gpus, links and prices have an effect with --plan only", hint="add --plan")
    if plan:
        with naming_folder(path):
            facts = plan_run(config, device=device)
        scaling = [] if cluster is None else scale_plan(facts, cluster)
        if json:
            print_json(facts | ({"scaling": [one._asdict() for one in scaling]} if scaling else {}))
        else:
            figures = ((format_name(name), format_value(name, value)) for name, value in facts.items())
            print_text(table([("figure", "value"), *figures]))
            if scaling:
                print_text("\n" + table(scaling_rows(scaling)))
            if scaling and choose_device(device).type == "cpu":
                print_message("measured on this CPU; for the time and memory of a GPU, plan on a machine with one")
        ranks, rows = max((one.ranks for one in scaling), default=1), facts["rows_per_step"]
        if ranks > rows:
            print_message(f"an update has {rows:,} rows, so only {rows:,} of {ranks:,} GPUs have work; use a larger batch")
        advice = advise(config, choose_device(device), path)
        if advice and facts["training_seconds"] > LONG:
            print_message(long_run_warning(facts["training_seconds"], advice))
        return
    folder = run or default_folder(config, path)
    if (processes > 1 or max_restarts) and is_rank():
        raise ConfigError(
            "--processes and --max-restarts have no effect in a process that torchrun has started",
            hint="use --nproc-per-node and --max-restarts of torchrun, before the program",
        )
    if processes > 1 or max_restarts:
        choose_device(device)  # an error once, not in each process
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


def cluster_of(**given: Any) -> Cluster | None:
    """The cluster of the options that are given; None if there are none."""
    from heedful.runs.scaling import Cluster

    values = {name: value for name, value in given.items() if value is not None}
    return Cluster(**({"nodes": 1, "gpus": 1} | values)) if values else None


def scaling_rows(scaling: Sequence[Scaled]) -> list[tuple[str, ...]]:
    """A column for each number of GPUs and each strategy."""
    listed = {
        "seconds per step": [f"{one.seconds_per_step:.3g}" for one in scaling],
        "of them communication": [f"{one.communication_seconds_per_step:.3g}" for one in scaling],
        "efficiency": [f"{one.efficiency:.0%}" for one in scaling],
        "training, minutes": [f"{one.training_seconds / 60:,.1f}" for one in scaling],
        "memory per GPU": [format_bytes(round(one.memory_bytes_per_rank)) for one in scaling],
        "sent per step and GPU": [format_bytes(round(one.sent_bytes_per_step_and_rank)) for one in scaling],
        "checkpoint": [format_bytes(one.checkpoint_bytes) for one in scaling],
        "GPU hours": [f"{one.gpu_hours:,.2f}" for one in scaling],
    }
    if any(one.cost for one in scaling):
        listed["cost"] = [f"{one.cost:,.2f}" for one in scaling]
    head = ("GPUs, strategy", *(f"{one.ranks:,} {one.strategy}" if one.ranks > 1 else "1" for one in scaling))
    return [head, *((name, *cells) for name, cells in listed.items())]


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
