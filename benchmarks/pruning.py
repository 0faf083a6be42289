"""How many heads can go, and what that costs: the curve of BLEU against heads kept, for each kind of attention.

    python benchmarks/pruning.py RUN --base multi30k-en-de --recipe multi30k-en-de-pruned --limit 560 \
        --also "training.precision=bf16 training.cuda_graphs=true data.pad_to_multiple_of=16"

RUN is a converged model; where it is not there, it is trained first, by the recipe --base. Every penalty on every kind is a
run of its own that goes on from RUN with gates; what they close is taken out, and what is left is scored on the validation
and the test data. Beside that, heads are taken out by the gradient of their gates (Michel et al., 2019), without any training.
Of the gated models of each kind within half a BLEU point of RUN on the validation data, the one with the fewest heads of that
kind is then measured against RUN: size, and the time of training steps and of translating, in alternating blocks (none of that
with --blocks 0). With --work the runs are kept, and the same command again measures only what is missing, and the speed, for
which it should be alone.
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
from peers.machine import about_here
from pruning_picture import draw
from quality import STOPPED, Clock, Failed, call

from heedful import build
from heedful.config import read_run
from heedful.data.splits import splits_of
from heedful.pruning import count_parameters
from heedful.recipe_files import find_recipe, settings_digest
from heedful.running import make_trainer
from heedful.training.progress import Progress

HERE = Path(__file__).parent
FREEZE = {"encoder": ["decoder*"], "decoder": ["encoder*"], "cross": ["encoder*"]}  # must not take over what heads did
ALLOWED = 0.5  # BLEU that may be lost
SPLITS = ("valid", "test")


class Point(NamedTuple):
    method: str
    kind: str  # encoder, decoder, cross, or all
    amount: float  # of gates the penalty, of a ranking the heads that stay

    @property
    def name(self) -> str:
        return f"{self.method}-{self.kind}-{self.amount:g}"


class Plan(NamedTuple):
    """What all points share."""

    base: Path
    work: Path
    recipe: str
    also: list[str]  # for every run with gates
    clock: Clock


def heed(arguments: Sequence[str], log: Path, clock: Clock) -> dict[str, Any]:
    """What a verb says in JSON; a training that was told to stop says nothing."""
    code, said = call(["heedful", *arguments, "--json"], log, clock)
    if code == STOPPED:
        return {}
    if code:
        raise Failed(f"`heed {arguments[0]}` ended with {code}\n{log.read_text(errors='replace')[-1500:]}")
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def scores(run: Path, plan: Plan, splits: Sequence[str] = SPLITS) -> dict[str, Any]:
    """BLEU with its interval, and exact matches, of each split."""
    asked = ["evaluate", str(run), "--metrics", "bleu,exact_match", "--split"]
    told = {split: heed([*asked, split], plan.work / f"{run.name}.log", hard(plan.clock)) for split in splits}
    return {split: {"loss": one["loss"], **one["scores"]} for split, one in told.items()}


def hard(clock: Clock) -> Clock:
    return Clock(clock.hard, clock.hard)


def file_bytes(run: Path) -> int:
    return (run / "checkpoints" / "best" / "model.safetensors").stat().st_size


def by_gates(point: Point, plan: Plan) -> dict[str, Any]:
    """Go on training with gates, take out what they close."""
    gated, log = plan.work / f"{point.name}-gated", plan.work / f"{point.name}.log"
    kinds, freeze = [] if point.kind == "all" else [point.kind], FREEZE.get(point.kind, [])
    overrides = [f"training.init={plan.base}", f"training.gates.penalty={point.amount:g}"]
    overrides += [f"training.gates.kinds={json.dumps(kinds)}", f"training.gates.freeze={json.dumps(freeze)}"]
    began = time.monotonic()
    heed(["train", plan.recipe, *overrides, *plan.also, "--run", str(gated)], log, plan.clock)
    seconds = round(time.monotonic() - began, 1)
    return {"train_seconds": seconds} | heed(["prune", str(gated), "--out", str(plan.work / point.name)], log, hard(plan.clock))


def by_gradient(point: Point, plan: Plan) -> dict[str, Any]:
    """Take out whatever matters least, without any training."""
    heads = heads_of(plan)
    kinds = heads if point.kind == "all" else {point.kind: heads[point.kind]}
    keep = [part for kind in kinds for part in ("--keep", f"{kind}={round(point.amount * heads[kind] / sum(kinds.values()))}")]
    log = plan.work / f"{point.name}.log"
    return heed(["prune", str(plan.base), "--out", str(plan.work / point.name), *keep], log, hard(plan.clock))


METHODS: dict[str, Callable[[Point, Plan], dict[str, Any]]] = {"gates": by_gates, "gradient": by_gradient}


def known(path: Path, find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What stands in the file, or else what is found now."""
    if not path.exists():
        path.write_text(json.dumps(find()))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def whole(plan: Plan) -> dict[str, Any]:
    """The model that heads are taken out of, and where it was scored."""
    model: Any = build.load_translator(plan.base, device="cpu").model
    found = {"heads": heads_of(plan), "bytes": file_bytes(plan.base), "parameters": count_parameters(model)}
    return found | {"scores": scores(plan.base, plan), "overrides": plan.also, "place": about_here()}


def pruned(point: Point, plan: Plan) -> dict[str, Any]:
    shutil.rmtree(plan.work / point.name, ignore_errors=True)  # what was broken off
    made, run = METHODS[point.method](point, plan), plan.work / point.name
    found = point._asdict() | {"name": point.name} | {name: made[name] for name in ("heads", "parameters")}
    found |= {name: made[name] for name in ("train_seconds",) if name in made}
    return found | {"bytes": file_bytes(run), "scores": scores(run, plan, SPLITS if point.method == "gates" else SPLITS[:1])}


def measure(point: Point, plan: Plan) -> dict[str, Any] | None:
    """A point of the curve, or why there is none."""
    try:
        found = known(plan.work / f"{point.name}.json", lambda: pruned(point, plan))
    except Exception as error:
        print(f"{point.name}: no result: {type(error).__name__}: {error}", flush=True)
        return None
    heads = {kind: sum(layers) for kind, layers in found["heads"].items()}
    print(f"{point.name}: {heads}, valid BLEU {found['scores']['valid']['bleu']['value']:.2f}", flush=True)
    return found


def heads_of(plan: Plan) -> dict[str, int]:
    return {kind: sum(layers) for kind, layers in build.read_folder(plan.base)[0].model.heads_by_kind.items()}


def best_within(points: Sequence[dict[str, Any]], kind: str, floor: float) -> dict[str, Any] | None:
    """Of the models with gates on this kind that are good enough, the one with the fewest such heads, of several the best."""
    gated = [one for one in points if one["method"] == "gates" and one["kind"] == kind]
    good = [one for one in gated if one["scores"]["valid"]["bleu"]["value"] >= floor]
    counted = heads_counted(kind)
    return min(good, key=lambda one: (counted(one), -one["scores"]["valid"]["bleu"]["value"]), default=None)


def heads_counted(kind: str) -> Callable[[dict[str, Any]], int]:
    return lambda one: sum(sum(layers) for name, layers in one["heads"].items() if kind in ("all", name))


def speeds(runs: dict[str, Path], also: list[str], *, updates: int, lines: int, blocks: int) -> dict[str, Any]:
    """Milliseconds of a training step and of translating validation sentences, and how many times as fast as the first run
    each of the others is."""
    steps, translations = {}, {}
    for name, folder in runs.items():
        config = read_run(folder / "config.toml", also).config
        progress = Progress(folder / "unused.jsonl", report_every=10**9)
        progress.console.quiet = True
        trainer = make_trainer(config, folder, build.check(config, progress.say), build.choose_device(), progress)
        trainer.model.train()
        fed = list(islice(trainer.task.stream(0, 0), updates))
        translator = build.load_translator(folder)
        sources = build.examples_of(splits_of(config.data).valid, config.data.max_ratio).sources[:lines]
        steps[name] = lambda trainer=trainer, fed=fed: float([trainer.update([one])[1] for one in fed][-1])
        translations[name] = lambda translator=translator, sources=sources: len(translator.translate(sources))
    first, *others = runs
    found: dict[str, Any] = {"updates": updates, "sentences": lines, "threads": torch.get_num_threads()}
    for what, systems, count in (("training_step", steps, updates), ("sentence", translations, lines)):
        for run in systems.values():
            run()  # shapes are captured when they occur for the second time
        laps = alternate(systems, blocks=blocks)
        found[what] = {"milliseconds": {name: lap.seconds / count * 1e3 for name, lap in laps.items()}}
        found[what]["times_as_fast"] = {name: laps[name].ratio[first] for name in others}
    return found


def points_of(given: argparse.Namespace, plan: Plan) -> list[Point]:
    heads = heads_of(plan)
    totals = heads | {"all": sum(heads.values())}
    gates = [Point("gates", kind, penalty) for kind in given.kinds for penalty in given.penalties]
    parts = (0.75, 0.5, 0.375, 0.25, 0.125)
    ranked = [Point("gradient", kind, round(part * totals[kind])) for kind in given.kinds for part in parts]
    return [one for one in (*gates, *ranked) if one.method in given.methods]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a converged run; where there is none, it is trained by --base")
    parser.add_argument("--base", default="multi30k-en-de", help="the recipe of the run")
    parser.add_argument("--recipe", default="multi30k-en-de-pruned", help="how to go on with gates")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["encoder", "all"])
    parser.add_argument(
        "--penalties", type=lambda text: [float(one) for one in text.split(",")], default=[0.01, 0.02, 0.05, 0.1]
    )
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS))
    parser.add_argument("--also", type=shlex.split, default=[], help="what to override in every run", metavar='"key=value …"')
    parser.add_argument("--gated", type=shlex.split, default=[], help="and in those with gates", metavar='"key=value …"')
    parser.add_argument("--together", type=int, default=8, help="runs at once")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for everything but the speed")
    parser.add_argument("--blocks", type=int, default=7, help="of each system, when the speed is measured")
    parser.add_argument("--updates", type=int, default=20, help="in each block")
    parser.add_argument("--work", type=Path, help="where to keep the runs")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "pruning.json")
    parser.add_argument("--picture", type=Path, default=HERE.parent / "docs" / "pictures" / "pruning.png")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    now = time.monotonic()
    with tempfile.TemporaryDirectory() as passing:
        clock = Clock(now + given.limit * 0.7, now + given.limit)
        work = (given.work or Path(passing)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        plan = Plan(given.run.resolve(), work, given.recipe, [*given.also, *given.gated], clock)
        if not (plan.base / "run.json").exists():
            heed(["train", given.base, *given.also, "--run", str(plan.base)], plan.work / "base.log", clock)
        before = known(work / "whole.json", lambda: whole(plan))
        floor = before["scores"]["valid"]["bleu"]["value"] - ALLOWED
        print(f"{plan.base.name}: {before['heads']}, valid BLEU {floor + ALLOWED:.2f}", flush=True)
        with ThreadPoolExecutor(given.together) as several:
            measured = list(several.map(lambda point: measure(point, plan), points_of(given, plan)))
        points = [one for one in measured if one is not None]
        best = {kind: best_within(points, kind, floor) for kind in given.kinds}
        chosen = {kind: one["name"] for kind, one in best.items() if one is not None}
        found = {"recipe": given.recipe, "settings": settings_digest(find_recipe(given.recipe))}
        found |= {"overrides": before.pop("overrides"), "whole": before, "allowed": ALLOWED}
        found |= {"points": points, "chosen": chosen, **before.pop("place")}
        if chosen and given.blocks:
            runs = {"whole": plan.base} | {kind: plan.work / name for kind, name in chosen.items()}
            speed = speeds(runs, given.also, updates=given.updates, lines=200, blocks=given.blocks)
            found["speed"] = speed | about_here()
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    draw(found, given.picture)
    return 0 if len(points) == len(measured) else 1


if __name__ == "__main__":
    sys.exit(main())
