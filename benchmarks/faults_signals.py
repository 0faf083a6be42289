"""Process faults: signals in every phase, SIGKILL, a renamed run folder, NaN weights."""

from __future__ import annotations

import signal
from functools import partial

from faults_workshop import STEPS, Case, Outcome, Running, Sandbox, expect, weights

LONG = ("data.train={builtin=true,count=300000}", "data.valid={builtin=true,count=100}", "data.test={builtin=true,count=100}")


def start(sandbox: Sandbox) -> Running:
    return sandbox.start("train", sandbox.recipe(), "--run", "run", "--device", "cpu")


def until_saved(sandbox: Sandbox, running: Running) -> bool:
    return running.wait_for(lambda: (sandbox.folder / "run/checkpoints/step-5/MANIFEST.json").exists())


def uninterrupted(sandbox: Sandbox) -> str:
    sandbox.heed("train", sandbox.recipe(), "--run", "whole", "--device", "cpu")
    return weights(sandbox.folder / "whole")


def in_training(number: signal.Signals, sandbox: Sandbox) -> Outcome:
    running = start(sandbox)
    saved = until_saved(sandbox, running)
    running.send(number)
    stopped = sandbox.finish(running)
    done = sandbox.heed("train", "run", "--device", "cpu")
    same = weights(sandbox.folder / "run") == uninterrupted(sandbox)
    if number == signal.SIGKILL:
        return expect(done, 0, also=saved and same and stopped.code == -signal.SIGKILL)
    return expect(stopped, 75, also=saved and same and done.code == 0)


def in_preparation(number: signal.Signals, sandbox: Sandbox) -> Outcome:
    running = sandbox.start("train", sandbox.recipe(), *LONG, "--run", "run", "--device", "cpu")
    started = running.wait_for(lambda: (sandbox.folder / "run/.lock").exists())
    running.send(number)
    done = sandbox.finish(running)
    return expect(done, 75, message="stopped:", also=started)


def renamed_folder(sandbox: Sandbox) -> Outcome:
    running = start(sandbox)
    saved = until_saved(sandbox, running)
    (sandbox.folder / "run").rename(sandbox.folder / "moved")
    done = sandbox.finish(running)
    left = sorted(path.name for path in (sandbox.folder / "run").rglob("*")) if (sandbox.folder / "run").exists() else []
    return expect(done, 0, 4, also=saved and not left)


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


def poisoned_training(sandbox: Sandbox) -> Outcome:
    done = sandbox.python(POISON, "train", sandbox.recipe(steps=100), "--run", "run", "--device", "cpu")
    finite = sandbox.python(FINITE, sandbox.folder / "run/checkpoints").code == 0
    return expect(done, 5, also=finite)


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


def poisoned_translation(command: str, sandbox: Sandbox) -> Outcome:
    sandbox.trained_run_copy()
    poisoned = sandbox.python(POISON_SAVED, sandbox.folder / "run/checkpoints")
    done = sandbox.shell(f"heed {command} --device cpu")
    return expect(done, 4, 5, also=poisoned.code == 0)


RESUMED = f"exit 75, and the weights of an uninterrupted run after {STEPS} steps"
CASES = [
    *(Case(3, f"{one.name} in training", RESUMED, partial(in_training, one)) for one in (signal.SIGTERM, signal.SIGHUP)),
    Case(3, "SIGUSR1 in training", RESUMED, partial(in_training, signal.SIGUSR1)),
    Case(2, "SIGKILL in training", "the weights of an uninterrupted run", partial(in_training, signal.SIGKILL)),
    *(
        Case(3, f"{one.name} in preparation", "exit 75 with a message", partial(in_preparation, one))
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    ),
    Case(7, "train, the run folder is renamed", "continues in the renamed folder, or exit 4; no second folder", renamed_folder),
    Case(8, "train, a weight becomes NaN", "exit 5, all checkpoints finite", poisoned_training),
    Case(
        8,
        "translate, a weight is NaN",
        "exit 4 or 5",
        partial(poisoned_translation, "translate run source.txt"),
    ),
    Case(8, "evaluate, a weight is NaN", "exit 4 or 5", partial(poisoned_translation, "evaluate run --bootstrap 0")),
]
