"""Head pruning: the curve of BLEU against the number of heads kept, for each kind of attention.

    python benchmarks/pruning.py RUN --base multi30k-en-de --recipe multi30k-en-de-pruned --limit 560

RUN is a converged model; if it does not exist, it is trained with the recipe --base. For every penalty and kind, one run
continues training RUN with gates; the heads with closed gates are removed, and the pruned model is scored on the validation and
test data. For comparison, heads are removed by the gradient of their gates (Michel et al., 2019), without training. Of the
gated models of each kind within half a BLEU point of RUN on the validation data, the one with the fewest heads of that kind is
then compared with RUN: size, and the time of training steps and of translation, in alternating blocks (not with --blocks 0).
With --work the runs are kept, and the same command measures only missing points, and the speed; for this the machine should be
otherwise idle.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peers.laps import alternate
from peers.machine import machine_info
from pruning_picture import draw
from quality import STOPPED, Clock, Failed, call

from heedful.data.splits import splits_of
from heedful.runs import build
from heedful.runs.config import read_run
from heedful.runs.load import read_folder
from heedful.runs.prune import count_parameters
from heedful.runs.recipes import find_recipe, settings_digest
from heedful.runs.train import make_trainer, prepare_data
from heedful.tasks.translation.data import examples_of
from heedful.tasks.translation.predictor import Translator
from heedful.training.progress import Progress

HERE = Path(__file__).parent
FREEZE = {"encoder": ["decoder*"], "decoder": ["encoder*"], "cross": ["encoder*"]}  # must not compensate for removed heads
ALLOWED = 0.5  # maximum loss of BLEU
SPLITS = ("valid", "test")


class Point(NamedTuple):
    method: str
    kind: str  # encoder, decoder, cross, or all
    amount: float  # gates: the penalty; gradient: the number of heads kept

    @property
    def name(self) -> str:
        return f"{self.method}-{self.kind}-{self.amount:g}"


class Plan(NamedTuple):
    """Settings shared by all points."""

    base: Path
    work: Path
    recipe: str
    also: list[str]  # for every run with gates
    clock: Clock


def heed(arguments: Sequence[str], log: Path, clock: Clock) -> dict[str, Any]:
    """The JSON output of a command; empty for training that was stopped."""
    code, output = call(["heedful", *arguments, "--json"], log, clock)
    if code == STOPPED:
        return {}
    if code:
        raise Failed(f"`heed {arguments[0]}` ended with {code}\n{log.read_text(errors='replace')[-1500:]}")
    results: dict[str, Any] = json.loads(output.splitlines()[-1])
    return results


def scores(run: Path, plan: Plan, splits: Sequence[str] = SPLITS) -> dict[str, Any]:
    """BLEU with its confidence interval and exact match for each split."""
    command = ["evaluate", str(run), "--metrics", "bleu,exact_match", "--split"]
    results_by_split = {split: heed([*command, split], plan.work / f"{run.name}.log", hard(plan.clock)) for split in splits}
    return {split: {"loss": one["loss"], **one["scores"]} for split, one in results_by_split.items()}


def hard(clock: Clock) -> Clock:
    return Clock(clock.hard, clock.hard)


def file_bytes(run: Path) -> int:
    return (run / "checkpoints" / "best" / "model.safetensors").stat().st_size


def by_gates(point: Point, plan: Plan) -> dict[str, Any]:
    """Continue training with gates and remove the heads with closed gates."""
    gated, log = plan.work / f"{point.name}-gated", plan.work / f"{point.name}.log"
    kinds, freeze = [] if point.kind == "all" else [point.kind], FREEZE.get(point.kind, [])
    overrides = [f"training.init={plan.base}", f"training.gates.penalty={point.amount:g}"]
    overrides += [f"training.gates.kinds={json.dumps(kinds)}", f"training.gates.freeze={json.dumps(freeze)}"]
    started = time.monotonic()
    heed(["train", plan.recipe, *overrides, *plan.also, "--run", str(gated)], log, plan.clock)
    seconds = round(time.monotonic() - started, 1)
    return {"train_seconds": seconds} | heed(["prune", str(gated), "--out", str(plan.work / point.name)], log, hard(plan.clock))


def by_gradient(point: Point, plan: Plan) -> dict[str, Any]:
    """Remove the heads with the smallest gradients, without training."""
    heads = heads_of(plan)
    kinds = heads if point.kind == "all" else {point.kind: heads[point.kind]}
    keep = [part for kind in kinds for part in ("--keep", f"{kind}={round(point.amount * heads[kind] / sum(kinds.values()))}")]
    log = plan.work / f"{point.name}.log"
    return heed(["prune", str(plan.base), "--out", str(plan.work / point.name), *keep], log, hard(plan.clock))


METHODS: dict[str, Callable[[Point, Plan], dict[str, Any]]] = {"gates": by_gates, "gradient": by_gradient}


def load_or_compute(path: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Read the file; if it does not exist, compute and write it."""
    if not path.exists():
        path.write_text(json.dumps(compute()))
    results: dict[str, Any] = json.loads(path.read_text())
    return results


def measure_base(plan: Plan) -> dict[str, Any]:
    """Size and scores of the model before pruning."""
    model: Any = Translator.load(plan.base, device="cpu").model
    results = {"heads": heads_of(plan), "bytes": file_bytes(plan.base), "parameters": count_parameters(model)}
    return results | {"scores": scores(plan.base, plan), "overrides": plan.also, "place": machine_info()}


def measure_point(point: Point, plan: Plan) -> dict[str, Any]:
    shutil.rmtree(plan.work / point.name, ignore_errors=True)  # an interrupted attempt
    pruned, run = METHODS[point.method](point, plan), plan.work / point.name
    results = point._asdict() | {"name": point.name} | {name: pruned[name] for name in ("heads", "parameters")}
    results |= {name: pruned[name] for name in ("train_seconds",) if name in pruned}
    return results | {"bytes": file_bytes(run), "scores": scores(run, plan, SPLITS if point.method == "gates" else SPLITS[:1])}


def measure(point: Point, plan: Plan) -> dict[str, Any] | None:
    """Measure one point of the curve; on failure print the error and return None."""
    try:
        results = load_or_compute(plan.work / f"{point.name}.json", lambda: measure_point(point, plan))
    except Exception as error:
        print(f"{point.name}: no result: {type(error).__name__}: {error}", flush=True)
        return None
    heads = {kind: sum(layers) for kind, layers in results["heads"].items()}
    print(f"{point.name}: {heads}, valid BLEU {results['scores']['valid']['bleu']['value']:.2f}", flush=True)
    return results


def heads_of(plan: Plan) -> dict[str, int]:
    return {kind: sum(layers) for kind, layers in read_folder(plan.base)[0].model.heads_by_kind.items()}


def best_within(points: Sequence[dict[str, Any]], kind: str, floor: float) -> dict[str, Any] | None:
    """Of the gated models of this kind with BLEU >= floor, the one with the fewest heads; of several, the best one."""
    gated = [one for one in points if one["method"] == "gates" and one["kind"] == kind]
    good = [one for one in gated if one["scores"]["valid"]["bleu"]["value"] >= floor]
    counted = heads_counted(kind)
    return min(good, key=lambda one: (counted(one), -one["scores"]["valid"]["bleu"]["value"]), default=None)


def heads_counted(kind: str) -> Callable[[dict[str, Any]], int]:
    return lambda one: sum(sum(layers) for name, layers in one["heads"].items() if kind in ("all", name))


def speeds(runs: dict[str, Path], also: list[str], *, updates: int, lines: int, blocks: int) -> dict[str, Any]:
    """Milliseconds per training step and per translated validation sentence, and the speed-up of each run over the first."""
    steps, translations = {}, {}
    for name, folder in runs.items():
        config = read_run(folder / "config.toml", also).config
        progress = Progress(folder / "unused.jsonl", report_every=10**9)
        progress.console.quiet = True
        data = build.data_of(config)
        report = build.check(config, data, progress.print)
        trainer = make_trainer(config, folder, *prepare_data(config, folder, data, report), build.choose_device(), progress)
        trainer.model.train()
        batches = list(islice(trainer.task.stream(0, 0), updates))
        translator = Translator.load(folder)
        sources = examples_of(splits_of(config.data).valid, config.data.max_ratio).sources[:lines]
        steps[name] = lambda trainer=trainer, batches=batches: float([trainer.update([batch])[1] for batch in batches][-1])
        translations[name] = lambda translator=translator, sources=sources: len(translator.translate(sources))
    first, *others = runs
    results: dict[str, Any] = {"updates": updates, "sentences": lines, "threads": torch.get_num_threads()}
    for what, systems, count in (("training_step", steps, updates), ("sentence", translations, lines)):
        for run in systems.values():
            run()  # a shape is captured when it occurs for the second time
        laps = alternate(systems, blocks=blocks)
        results[what] = {"milliseconds": {name: lap.seconds / count * 1e3 for name, lap in laps.items()}}
        results[what]["times_as_fast"] = {name: laps[name].ratio[first] for name in others}
    return results


def points_of(args: argparse.Namespace, plan: Plan) -> list[Point]:
    heads = heads_of(plan)
    totals = heads | {"all": sum(heads.values())}
    gates = [Point("gates", kind, penalty) for kind in args.kinds for penalty in args.penalties]
    parts = (0.75, 0.5, 0.375, 0.25, 0.125)
    ranked = [Point("gradient", kind, round(part * totals[kind])) for kind in args.kinds for part in parts]
    return [one for one in (*gates, *ranked) if one.method in args.methods]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a converged run; trained with --base if it does not exist")
    parser.add_argument("--base", default="multi30k-en-de", help="the recipe of the run")
    parser.add_argument("--recipe", default="multi30k-en-de-pruned", help="the recipe of training with gates")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["encoder", "all"])
    parser.add_argument(
        "--penalties", type=lambda text: [float(one) for one in text.split(",")], default=[0.01, 0.02, 0.05, 0.1]
    )
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS))
    parser.add_argument("--also", type=shlex.split, default=[], help="overrides for every run", metavar='"key=value …"')
    parser.add_argument("--gated", type=shlex.split, default=[], help="overrides for runs with gates", metavar='"key=value …"')
    parser.add_argument("--together", type=int, default=8, help="runs in parallel")
    parser.add_argument("--limit", type=float, default=3600, help="time limit in seconds, without the speed measurement")
    parser.add_argument("--blocks", type=int, default=7, help="blocks per system in the speed measurement")
    parser.add_argument("--updates", type=int, default=20, help="updates per block")
    parser.add_argument("--work", type=Path, help="folder that keeps the runs")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "pruning.json")
    parser.add_argument("--picture", type=Path, default=HERE.parent / "docs" / "pictures" / "pruning.png")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    now = time.monotonic()
    with tempfile.TemporaryDirectory() as passing:
        clock = Clock(now + args.limit * 0.7, now + args.limit)
        work = (args.work or Path(passing)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        plan = Plan(args.run.resolve(), work, args.recipe, [*args.also, *args.gated], clock)
        if not (plan.base / "run.json").exists():
            heed(["train", args.base, *args.also, "--run", str(plan.base)], plan.work / "base.log", clock)
        before = load_or_compute(work / "whole.json", lambda: measure_base(plan))
        floor = before["scores"]["valid"]["bleu"]["value"] - ALLOWED
        print(f"{plan.base.name}: {before['heads']}, valid BLEU {floor + ALLOWED:.2f}", flush=True)
        with ThreadPoolExecutor(args.together) as several:
            measured = list(several.map(lambda point: measure(point, plan), points_of(args, plan)))
        points = [one for one in measured if one is not None]
        best = {kind: best_within(points, kind, floor) for kind in args.kinds}
        chosen = {kind: one["name"] for kind, one in best.items() if one is not None}
        results = {"recipe": args.recipe, "settings": settings_digest(find_recipe(args.recipe))}
        results |= {"overrides": before.pop("overrides"), "whole": before, "allowed": ALLOWED}
        results |= {"points": points, "chosen": chosen, **before.pop("place")}
        if chosen and args.blocks:
            runs = {"whole": plan.base} | {kind: plan.work / name for kind, name in chosen.items()}
            speed = speeds(runs, args.also, updates=args.updates, lines=200, blocks=args.blocks)
            results["speed"] = speed | machine_info()
    args.output.write_text(json.dumps(results, indent=1) + "\n")
    draw(results, args.picture)
    return 0 if len(points) == len(measured) else 1


if __name__ == "__main__":
    sys.exit(main())
