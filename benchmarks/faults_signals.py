"""Faults of processes: signals in every phase, a kill without warning, a folder that moves, weights that are not numbers."""

from __future__ import annotations

import signal
from functools import partial

from faults_workshop import STEPS, Case, Place, Running, Seen, ends, weights

LONG = ("data.train={builtin=true,count=300000}", "data.valid={builtin=true,count=100}", "data.test={builtin=true,count=100}")


def start(place: Place) -> Running:
    return place.start("train", place.recipe(), "--run", "run", "--device", "cpu")


def until_saved(place: Place, running: Running) -> bool:
    return running.wait_for(lambda: (place.folder / "run/checkpoints/step-5/MANIFEST.json").exists())


def undisturbed(place: Place) -> str:
    place.heed("train", place.recipe(), "--run", "whole", "--device", "cpu")
    return weights(place.folder / "whole")


def in_training(number: signal.Signals, place: Place) -> Seen:
    running = start(place)
    saved = until_saved(place, running)
    running.send(number)
    stopped = place.finish(running)
    done = place.heed("train", "run", "--device", "cpu")
    same = weights(place.folder / "run") == undisturbed(place)
    if number == signal.SIGKILL:
        return ends(done, 0, also=saved and same and stopped.code == -signal.SIGKILL)
    return ends(stopped, 75, also=saved and same and done.code == 0)


def in_preparation(number: signal.Signals, place: Place) -> Seen:
    running = place.start("train", place.recipe(), *LONG, "--run", "run", "--device", "cpu")
    began = running.wait_for(lambda: (place.folder / "run/.lock").exists())
    running.send(number)
    done = place.finish(running)
    return ends(done, 75, says="stopped:", also=began)


def renamed_folder(place: Place) -> Seen:
    running = start(place)
    saved = until_saved(place, running)
    (place.folder / "run").rename(place.folder / "moved")
    done = place.finish(running)
    left = sorted(path.name for path in (place.folder / "run").rglob("*")) if (place.folder / "run").exists() else []
    return ends(done, 0, 4, also=saved and not left)


POISON = """
import sys
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from heedful.cli import run

count = 0

def poison(optimizer, *_):
    global count
    count += 1
    if count == 12:
        with torch.no_grad():
            optimizer.param_groups[0]["params"][0].view(-1)[0] = float("nan")

register_optimizer_step_post_hook(poison)
sys.exit(run(sys.argv[1:]))
"""
FINITE = """
import sys
from pathlib import Path
from safetensors.torch import load_file

folders = [path for path in Path(sys.argv[1]).glob("step-*")]
assert folders and all(t.isfinite().all() for folder in folders for t in load_file(folder / "model.safetensors").values())
"""


def poisoned_training(place: Place) -> Seen:
    done = place.python(POISON, "train", place.recipe(steps=100), "--run", "run", "--device", "cpu")
    finite = place.python(FINITE, place.folder / "run/checkpoints").code == 0
    return ends(done, 5, also=finite)


POISON_SAVED = """
import sys
from pathlib import Path
from safetensors.torch import load_file, save_file
from heedful.storage.manifest import NAME
from heedful.training.manifest import read_manifest, record

for folder in Path(sys.argv[1]).glob("step-*"):
    path, manifest = folder / "model.safetensors", read_manifest(folder)
    tensors = load_file(path)
    next(iter(tensors.values())).view(-1)[0] = float("nan")
    save_file(tensors, path)
    files = dict(manifest.files)
    files[path.name] = record(path, files[path.name].aliases)
    (folder / NAME).write_text(manifest.model_copy(update={"files": files}).render())
"""


def poisoned_translation(command: str, place: Place) -> Seen:
    place.trained()
    made = place.python(POISON_SAVED, place.folder / "run/checkpoints")
    done = place.shell(f"heed {command} --device cpu")
    return ends(done, 4, 5, also=made.code == 0)


RESUMED = f"exit 75, and the weights of an undisturbed run after {STEPS} steps"
CASES = [
    *(Case(f"{one.name} in training", RESUMED, partial(in_training, one)) for one in (signal.SIGTERM, signal.SIGHUP)),
    Case("SIGUSR1 in training", RESUMED, partial(in_training, signal.SIGUSR1)),
    Case("SIGKILL in training", "the weights of an undisturbed run", partial(in_training, signal.SIGKILL)),
    *(
        Case(f"{one.name} in preparation", "exit 75 with a message", partial(in_preparation, one))
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    ),
    Case("train, the run folder is renamed", "it goes on there, or exit 4; no second folder", renamed_folder),
    Case("train, a weight becomes NaN", "exit 5, all checkpoints finite", poisoned_training),
    Case(
        "translate, a weight is NaN",
        "exit 4 or 5",
        partial(poisoned_translation, "translate run source.txt"),
    ),
    Case("evaluate, a weight is NaN", "exit 4 or 5", partial(poisoned_translation, "evaluate run --bootstrap 0")),
]
