"""Faults of every task: full output, weights that are not finite, changed data, damaged checkpoints, signals, broken inputs.

Each case runs whole commands for all of TASKS, with the tiny data of tests/tiny_tasks.py, and names the tasks that fail. The
runs without a fault are trained once (`task_runs`); a case copies them, or trains with data of its own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from faults_files import truncate
from faults_hostile import checkpoints_of
from faults_numbers import in_backward, in_forward, in_step
from faults_workshop import ROOT, Case, Finished, Outcome, Sandbox, expect, no_fault, weights

sys.path.append(str(ROOT / "tests"))  # tiny data of every task

STEPS = 6  # of the tiny recipes; saved at 2, 4 and 6, validated at 3 and 6
DEVICE = ("--device", "cpu")
BROKEN: dict[str, tuple[str, str]] = {  # an input that the task cannot read, and a part of the message
    "masked": ("no mask", "has no mask"),
    "span": ("a question alone", "expected a question and a context"),
    "forecasting": ('{"date": ["2020-01-01", "2020-01-02"], "load": [1', "is not JSON"),
    "decisions": ('{"desired": NaN, "states": ["a1"]}', "is not JSON"),
    "image_classification": ("data:image/png;base64,AAAA", "is not an image"),
    "captioning": ("data:image/png;base64,AAAA", "is not an image"),
    "series_classification": ('{"x": [0, 1], "y": [0]}', "lists of different length"),
    "node_classification": ('{"nodes": [{"node": "u", "x": 1, "y": 0}], "edges": [["u", "v"]]}', "'v'"),
}


class Tried:
    """The outcome of a case, task by task."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.checks = 0
        self.example = ""

    def check(self, task: str, done: Finished, code: int, message: str = "", also: bool = True) -> None:
        """One command: its exit code, one sentence without a traceback, and whether `also` is true."""
        outcome = expect(done, code, message=message, also=also and done.err.count("error:") <= 1)
        self.checks += 1
        if message and not self.example:
            self.example = done.message_line
        if not outcome.right:
            self.wrong.append(f"{task}: {outcome.text}")

    def outcome(self, tasks: int, text: str = "") -> Outcome:
        seen = "; ".join(self.wrong) or text or f"{self.checks} commands, for example: {self.example}"
        return Outcome(not self.wrong and self.checks >= tasks > 10, f"{tasks} tasks: {seen}")


@cache
def task_runs() -> Path:
    """A folder for each task, with its data and a finished run named `run`; trained once and copied for each case."""
    sandbox = Sandbox(Path(tempfile.mkdtemp(prefix="heedful-faults-")))
    atexit.register(shutil.rmtree, sandbox.folder, ignore_errors=True)
    for task in all_tasks():
        folder = sandbox.folder / task
        folder.mkdir()
        done = sandbox.injected(no_fault, "train", write_recipe(task, folder), "--run", folder / "run", *DEVICE)
        assert done.code == 0, done.err
    return sandbox.folder


def all_tasks() -> list[str]:
    from heedful.tasks import TASKS

    return list(TASKS)


def write_recipe(task: str, folder: Path) -> Path:
    from tiny_tasks import write_tiny_recipe

    return write_tiny_recipe(task, folder)


def quick(task: str, command: str) -> list[str]:
    """Options that make a command fast."""
    from tiny_tasks import quick_arguments

    return quick_arguments(task, "predict" if command == "predict" else "evaluate")


def copied_runs(sandbox: Sandbox) -> Iterator[tuple[str, Path]]:
    """Every task, and a copy of its finished run."""
    for task in all_tasks():
        yield task, Path(shutil.copytree(task_runs() / task / "run", sandbox.folder / task, symlinks=True))


def predict(sandbox: Sandbox, task: str, inputs: str | Path, fault: Callable[[], object] = no_fault) -> Finished:
    """Predict with the copied run."""
    return sandbox.injected(fault, "predict", task, inputs, *quick(task, "predict"), *DEVICE)


def good_inputs(task: str) -> Path:
    return task_runs() / task / "inputs.txt"


def evaluate(sandbox: Sandbox, task: str, fault: Callable[[], object] = no_fault) -> Finished:
    return sandbox.injected(fault, "evaluate", task, *quick(task, "evaluate"), *DEVICE)


def full_output(sandbox: Sandbox) -> Outcome:
    """Standard output is /dev/full."""

    def fill() -> None:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)

    tried = Tried()
    for task, _ in copied_runs(sandbox):
        for done in (predict(sandbox, task, good_inputs(task), fill), evaluate(sandbox, task, fill)):
            tried.check(task, done, 4, "standard output cannot be written: No space left on device")
    return tried.outcome(len(all_tasks()))


def poison_weights(folder: Path) -> None:
    """One weight of a checkpoint becomes NaN, with a manifest that matches."""
    import torch
    from safetensors.torch import load_file, save_file

    from heedful.storage.manifest import NAME
    from heedful.training.manifest import read_manifest, record

    path, manifest = folder / "model.safetensors", read_manifest(folder)
    tensors = load_file(path)
    next(tensor for tensor in tensors.values() if tensor.is_floating_point()).view(-1)[0] = torch.nan
    save_file(tensors, path)
    files = dict(manifest.files) | {path.name: record(path, manifest.files[path.name].aliases)}
    (folder / NAME).write_text(manifest.model_copy(update={"files": files}).render())


def nan_weights(sandbox: Sandbox) -> Outcome:
    tried = Tried()
    for task, run in copied_runs(sandbox):
        for folder in checkpoints_of(run):
            poison_weights(folder)
        for done in (predict(sandbox, task, good_inputs(task)), evaluate(sandbox, task)):
            tried.check(task, done, 4, "has weights that are not finite")
    return tried.outcome(len(all_tasks()))


@contextmanager
def changed(path: Path) -> Iterator[None]:
    """Two lines of a file exchanged, or one bit of its last byte but two changed."""
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    at = next((number for number in range(2, len(lines)) if lines[number] != lines[1]), None)
    if at is None:
        other = bytearray(content)
        other[-3] ^= 1
        path.write_bytes(bytes(other))
    else:
        lines[1], lines[at] = lines[at], lines[1]
        path.write_bytes(b"".join(lines))
    yield
    path.write_bytes(content)


def training_files(task: str) -> list[str]:
    """The files that training reads."""
    from tiny_tasks import example_of

    return [name for name in example_of(task).files if not name.startswith("test") and "-test" not in name]


def changed_data(sandbox: Sandbox) -> Outcome:
    """Each file that training reads is changed after a stop at step 3, and then as before again."""
    tried, files = Tried(), 0
    for task in all_tasks():
        folder = sandbox.folder / task
        folder.mkdir()
        command = ("train", write_recipe(task, folder), "--run", folder / "run", *DEVICE)
        stopped = sandbox.injected(partial(in_forward, interrupt, 3), *command)
        tried.check(task, stopped, 75)
        for name in training_files(task):
            files += 1
            with changed(folder / name):
                done = sandbox.injected(no_fault, *command)
            tried.check(task, done, 3, name)
        done = sandbox.injected(no_fault, *command)
        tried.check(task, done, 0, also=weights(folder / "run") == weights(task_runs() / task / "run"))
    return tried.outcome(len(all_tasks()), f"{files} files, for example: {tried.example}; with the data, identical weights")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def stopped(sandbox: Sandbox) -> Outcome:
    """SIGTERM in the forward pass, the backward pass and the optimizer step of an update, in turn from task to task."""
    tried, phases = Tried(), (partial(in_forward, at=3), partial(in_backward, at=3), partial(in_step, at=3))
    for number, task in enumerate(all_tasks()):
        folder = task_runs() / task
        command = ("train", folder / f"{task}.toml", "--run", task, *DEVICE)
        tried.check(task, sandbox.injected(partial(phases[number % 3], interrupt), *command), 75, f"saved at step 3 of {STEPS}")
        done = sandbox.injected(no_fault, *command)
        tried.check(task, done, 0, also=weights(sandbox.folder / task) == weights(folder / "run"))
    return tried.outcome(len(all_tasks()), f"exit 75 each, for example: {tried.example}; identical weights and optimizer state")


def truncated(sandbox: Sandbox) -> Outcome:
    """The weights, the optimizer, the state or the manifest of the newest checkpoint, in turn from task to task; the weights
    for a prediction."""
    tried, names = Tried(), ("model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json")
    for number, (task, run) in enumerate(copied_runs(sandbox)):
        name, newest = names[number % len(names)], run / "checkpoints" / f"step-{STEPS}"
        content = (newest / "model.safetensors").read_bytes()
        truncate(newest / "model.safetensors")
        done = sandbox.injected(
            no_fault, "predict", task, good_inputs(task), "--checkpoint", newest.name, *quick(task, "predict"), *DEVICE
        )
        tried.check(task, done, 4, f"model.safetensors has {len(content) // 2:,} bytes, expected {len(content):,}")
        (newest / "model.safetensors").write_bytes(content)
        truncate(newest / name)
        done = sandbox.injected(no_fault, "train", task, *DEVICE)
        same = weights(run) == weights(task_runs() / task / "run") and name in done.err
        tried.check(task, done, 0, f"continuing from step {STEPS - 2}", also=same)
    return tried.outcome(
        len(all_tasks()), "exit 4 of each prediction; training continues from the checkpoint before, identical"
    )


def broken_inputs(sandbox: Sandbox) -> Outcome:
    """The second of two inputs: not UTF-8, with a NUL byte, or not of the form that the task reads."""
    from tiny_tasks import example_of

    tried = Tried()
    for task, _ in copied_runs(sandbox):
        good = example_of(task).inputs[0].encode()
        kinds = [
            (b"\xff\xfe" + good, "line 2: byte 1 is not UTF-8"),
            (good[:3] + b"\0" + good[3:], "line 2: the text contains a NUL byte"),
        ]
        if task in BROKEN:
            kinds.append((BROKEN[task][0].encode(), BROKEN[task][1]))
        for line, message in kinds:
            sandbox.write("bad.txt", good + b"\n" + line + b"\n")
            tried.check(task, predict(sandbox, task, "bad.txt"), 3, message)
    return tried.outcome(len(all_tasks()))


CASES = [
    Case(16, "predict and evaluate, >/dev/full, every task", "exit 4, one sentence", full_output, prepare=task_runs),
    Case(8, "predict and evaluate, a weight is NaN, every task", "exit 4, one sentence", nan_weights, prepare=task_runs),
    Case(11, "train, each file of the data is changed during the run, every task",
         "exit 3 when it is continued, and the file is named; with the data, identical weights", changed_data,
         prepare=task_runs),
    Case(3, "SIGTERM in an update, every task", "exit 75, and the same command ends with the weights of an uninterrupted run",
         stopped, prepare=task_runs),
    Case(5, "a file of the newest checkpoint truncated, every task",
         "exit 4 of a prediction; training uses the checkpoint before, identical final weights", truncated, prepare=task_runs),
    Case(11, "predict, an input that is not UTF-8, has a NUL byte or another form, every task",
         "exit 3, one sentence with the line or the input", broken_inputs, prepare=task_runs),
]  # fmt: skip
