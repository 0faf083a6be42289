"""Faults of the files of a run: damaged, exchanged or duplicated checkpoints, links, clocks, a second process."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from faults_disk import UNPRIVILEGED
from faults_workshop import STEPS, Case, Finished, Outcome, Sandbox, expect, no_fault, weights

LAST, MORE = STEPS, STEPS + 5  # checkpoints: 30, 35 and 40
CONTINUE = ("train", "run", f"training.steps={MORE}", "--device", "cpu")
FILES = ("MANIFEST.json", "model.safetensors", "optimizer.safetensors", "state.json")

Damage = Callable[[Path], object]  # of a file, or of a run folder


def uninterrupted(sandbox: Sandbox) -> str:
    shutil.copytree(sandbox.folder / "run", sandbox.folder / "whole", symlinks=True)
    done = sandbox.injected(no_fault, "train", "whole", *CONTINUE[2:])
    assert done.code == 0, done.err
    return weights(sandbox.folder / "whole")


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flip(path: Path) -> None:
    """One bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def damaged_files(damage: Damage, sandbox: Sandbox) -> Outcome:
    run = sandbox.trained_run_copy()
    final, wrong, seen = uninterrupted(sandbox), [], ""
    shutil.copytree(run, sandbox.folder / "good", symlinks=True)
    for name in FILES:
        shutil.rmtree(run)
        shutil.copytree(sandbox.folder / "good", run, symlinks=True)
        damage(run / "checkpoints" / f"step-{LAST}" / name)
        done = sandbox.injected(no_fault, *CONTINUE)
        seen = reason(done)
        if done.code or name not in done.err or f"step {LAST - 5}" not in done.err or weights(run) != final:
            wrong.append(f"{name}: {done.message_line}")
    return Outcome(not wrong, "; ".join(wrong) or f"{len(FILES)} files, for example: {seen}")


def reason(done: Finished) -> str:
    """What a command that continues from an older checkpoint prints."""
    lines = [line for line in done.err.splitlines() if line.startswith(("checkpoint ", "continuing "))]
    return "; ".join(lines) or done.message_line


def checkpoint(run: Path, step: int = LAST) -> Path:
    return run / "checkpoints" / f"step-{step}"


def without_manifest(run: Path) -> None:
    (checkpoint(run) / "MANIFEST.json").unlink()


def stale_manifest(run: Path) -> None:
    shutil.copy(checkpoint(run, LAST - 5) / "MANIFEST.json", checkpoint(run) / "MANIFEST.json")


def weights_of_another_step(run: Path) -> None:
    shutil.copy(checkpoint(run, LAST - 5) / "model.safetensors", checkpoint(run) / "model.safetensors")


def exchanged_files(run: Path) -> None:
    folder = checkpoint(run)
    (folder / "model.safetensors").rename(folder / "other")
    (folder / "optimizer.safetensors").rename(folder / "model.safetensors")
    (folder / "other").rename(folder / "optimizer.safetensors")


def copied_as_a_later_step(run: Path) -> None:
    shutil.copytree(checkpoint(run, LAST - 5), checkpoint(run, LAST + 2))


def older_used(damage: Damage, step: int, sandbox: Sandbox) -> Outcome:
    """Training continues from this step to the same weights, and the damaged checkpoint is not deleted."""
    run = sandbox.trained_run_copy()
    final = uninterrupted(sandbox)
    damage(run)
    done = sandbox.injected(no_fault, *CONTINUE)
    outcome = expect(done, 0, message=f"continuing from step {step}", also=weights(run) == final)
    return Outcome(outcome.right, f"exit {done.code}; {reason(done)}" if outcome.right else outcome.text)


def two_damaged(run: Path) -> None:
    flip(checkpoint(run) / "model.safetensors")
    truncate(checkpoint(run, LAST - 5) / "optimizer.safetensors")


def another_manifest(sandbox: Sandbox) -> Outcome:
    """A checkpoint of a run with another seed."""
    run = sandbox.trained_run_copy()
    final = uninterrupted(sandbox)
    other = sandbox.injected(no_fault, "train", "recipe.toml", "seed=7", "--run", "other", "--device", "cpu")
    shutil.rmtree(checkpoint(run))
    shutil.copytree(checkpoint(sandbox.folder / "other"), checkpoint(run))
    done = sandbox.injected(no_fault, *CONTINUE)
    right = expect(done, 0, message="belongs to another run", also=weights(run) == final and other.code == 0).right
    return Outcome(right, f"exit {done.code}; {reason(done)}")


def all_damaged(sandbox: Sandbox) -> Outcome:
    run = sandbox.trained_run_copy()
    folders = sorted((run / "checkpoints").glob("step-*"))
    for folder in folders:
        flip(folder / "model.safetensors")
    done = sandbox.injected(no_fault, *CONTINUE)
    kept = sorted((run / "checkpoints").glob("step-*")) == folders
    return expect(done, 4, message="nothing was deleted", also=kept and len(folders) >= 3)


def clock_jumps(seconds: float, sandbox: Sandbox) -> Outcome:
    """The clock jumps during training, and all files seem to be written at the other time."""
    run = sandbox.trained_run_copy()
    final = uninterrupted(sandbox)
    for path in run.rglob("*"):
        os.utime(path, (time.time() + seconds, time.time() - seconds))

    def jump() -> None:
        own = time.time
        time.time = lambda: own() + seconds

    done = sandbox.injected(jump, *CONTINUE)
    return expect(done, 0, also=weights(run) == final)


def linked(place: Callable[[Path], Path], sandbox: Sandbox) -> Outcome:
    """The folder is on another disk, and a symbolic link in its place."""
    run = sandbox.trained_run_copy()
    final, folder = uninterrupted(sandbox), place(run)
    folder.rename(sandbox.folder / "elsewhere")
    folder.symlink_to(sandbox.folder / "elsewhere")
    done = sandbox.injected(no_fault, *CONTINUE)
    return expect(done, 0, also=folder.is_symlink() and weights(run) == final)


def read_only(sandbox: Sandbox) -> Outcome:
    run = sandbox.trained_run_copy()
    before, folders = weights(run), [run, run / "checkpoints"]
    for folder in folders:
        folder.chmod(0o555)
    done = sandbox.shell(f"{UNPRIVILEGED} heed {' '.join(CONTINUE)}")
    for folder in folders:
        folder.chmod(0o755)
    return expect(done, 4, message="error: ", also=weights(run) == before)


def two_trainers(sandbox: Sandbox) -> Outcome:
    recipe = sandbox.recipe(steps=100_000)
    first = sandbox.fork(no_fault, "train", recipe, "--run", "run", "--device", "cpu")
    saved = first.wait_for(lambda: (sandbox.folder / "run/checkpoints/step-5/MANIFEST.json").exists())
    second = sandbox.injected(no_fault, "train", recipe, "--run", "run", "--device", "cpu")
    alive = first.alive()
    os.kill(first.pid, 15)
    done = sandbox.finish(first)
    return expect(second, 4, message="is in use by process", also=saved and alive and done.code == 75)


def newer_format(name: str, sandbox: Sandbox) -> Outcome:
    """A format of a later version, with a valid checksum."""
    from heedful.storage.manifest import seal

    run = sandbox.trained_run_copy()
    for path in [run / "run.json"] if name == "run folder" else list((run / "checkpoints").glob("*/MANIFEST.json")):
        content: dict[str, Any] = json.loads(path.read_text())
        content.pop("sha256")
        path.write_text(seal(content | {"format": 99}))
    done = sandbox.injected(no_fault, "translate", "run", "source.txt", "--device", "cpu")
    return expect(done, 4, message="has format 99")


OLDER = "reported by name, the checkpoint before it is used, identical final weights"
EXIT = "exit 4, one sentence, the run is unchanged"
DAY = 86_400.0
CASES = [
    Case(5, "each file of the newest checkpoint truncated", OLDER, partial(damaged_files, truncate)),
    Case(5, "each file of the newest checkpoint zeroed", OLDER, partial(damaged_files, zero)),
    Case(5, "one bit of each file of the newest checkpoint flipped", OLDER, partial(damaged_files, flip)),
    Case(6, "no manifest", OLDER, partial(older_used, without_manifest, LAST - 5)),
    Case(6, "the manifest of an older checkpoint", OLDER, partial(older_used, stale_manifest, LAST - 5)),
    Case(6, "the weights of an older checkpoint", OLDER, partial(older_used, weights_of_another_step, LAST - 5)),
    Case(6, "model and optimizer exchanged", OLDER, partial(older_used, exchanged_files, LAST - 5)),
    Case(6, "the newest checkpoint is that of another run", OLDER, another_manifest),
    Case(6, "the two newest checkpoints damaged", OLDER, partial(older_used, two_damaged, LAST - 10)),
    Case(6, "all checkpoints damaged", "exit 4, nothing is deleted", all_damaged),
    Case(7, "an older checkpoint copied to a later step", OLDER, partial(older_used, copied_as_a_later_step, LAST)),
    Case(7, "the clock jumps back by a day", "exit 0, identical weights", partial(clock_jumps, -DAY)),
    Case(7, "the clock jumps forward by ten years", "exit 0, identical weights", partial(clock_jumps, 3650 * DAY)),
    Case(7, "the run folder is a symbolic link", "exit 0, identical weights", partial(linked, lambda run: run)),
    Case(7, "checkpoints is a symbolic link", "exit 0, identical weights", partial(linked, lambda run: run / "checkpoints")),
    Case(7, "train, a read-only run folder", EXIT, read_only),
    Case(7, "two training processes, one run folder", "exit 4 for the second; the first continues", two_trainers),
    Case(18, "a run folder of a later format", EXIT, partial(newer_format, "run folder")),
    Case(18, "checkpoints of a later format", EXIT, partial(newer_format, "checkpoints")),
]
