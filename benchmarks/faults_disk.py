"""Disk faults: a full disk at every size, and a cache that is truncated while it is read."""

from __future__ import annotations

import signal
import subprocess
import time
from functools import partial
from pathlib import Path

from faults_workshop import Case, Outcome, Sandbox, expect, weights

# Root ignores permissions unless it gives up these capabilities; other users have none.
UNPRIVILEGED = """
heed() {
  if [ "$(id -u)" = 0 ]; then
    setpriv --bounding-set=-dac_override,-dac_read_search,-fowner "$PYTHON" -m heedful "$@"
  else
    "$PYTHON" -m heedful "$@"
  fi
}
"""
TRAIN = "heed train recipe.toml training.steps=60 --run run --device cpu"
TRANSLATE = "heed translate run source.txt --device cpu"
SIZES = (4, 8, 12, 16, 24, 32, 64, 128, 256)  # kB: the disk is full at one file after another


def full_disk(kilobytes: int, sandbox: Sandbox) -> Outcome:
    recipe, disk = sandbox.recipe(), sandbox.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", disk], check=True)
    try:
        done = sandbox.heed("train", recipe, "--run", "disk/run", "--device", "cpu")
        left = [path.name for path in Path(disk).rglob(".tmp-*")]
    finally:
        subprocess.run(["umount", disk], check=True)
    return expect(done, 4, message="error: ", also=not left and "standard output" not in done.err)  # the message names the file


def truncated_cache(sandbox: Sandbox) -> Outcome:
    """Tokens are memory-mapped: reading a truncated part is an invalid access."""
    recipe = sandbox.recipe(steps=100_000)
    running = sandbox.start("train", recipe, "--run", "run", "--device", "cpu")
    started = running.wait_for(lambda: any((sandbox.folder / "run/checkpoints").glob("step-*")))
    for path in (sandbox.folder / "cache").rglob("*.values"):
        with path.open("r+b") as file:
            file.truncate(0)
    time.sleep(2)
    if running.alive():  # if its pages are in memory, it continues
        running.send(signal.SIGTERM)
    done = sandbox.finish(running, 60)
    again = sandbox.heed("train", recipe, "training.steps=40", "--run", "other", "--device", "cpu")
    return expect(done, 0, 3, 4, 75, also=started and again.code == 0)


def unreadable_checkpoints(mode: int, command: str, sandbox: Sandbox) -> Outcome:
    """As a user whom the permissions apply to; afterwards the run is as good as before."""
    run = sandbox.trained_run_copy()
    before, metrics = weights(run), (run / "metrics.jsonl").read_bytes()
    (run / "checkpoints").chmod(mode)
    done = sandbox.shell(f"{UNPRIVILEGED} {command}")
    (run / "checkpoints").chmod(0o755)
    again = sandbox.heed("translate", "run", "source.txt", "--device", "cpu")
    unchanged = weights(run) == before and (run / "metrics.jsonl").read_bytes() == metrics
    return expect(done, 4, message="run/checkpoints cannot be read: Permission denied", also=again.code == 0 and unchanged)


def unmounted_checkpoints(sandbox: Sandbox) -> Outcome:
    """The checkpoints are on another disk, which is mounted again after the command."""
    run = sandbox.trained_run_copy()
    before, disk = weights(run), sandbox.folder / "disk"
    (run / "checkpoints").rename(sandbox.folder / "real")
    (run / "checkpoints").symlink_to(disk)
    done = sandbox.shell(TRAIN)
    disk.symlink_to(sandbox.folder / "real")
    again = sandbox.heed("translate", "run", "source.txt", "--device", "cpu")
    return expect(done, 4, message="which does not exist", also=again.code == 0 and weights(run) == before)


CASES = [
    *(
        Case(
            7,
            f"{command.split()[1]}, checkpoints with mode {mode:03o}",
            "exit 4, one sentence, and the run is unchanged",
            partial(unreadable_checkpoints, mode, command),
        )
        for mode in (0o000, 0o444)
        for command in (TRAIN, TRANSLATE)
    ),
    Case(7, "train, the disk of the checkpoints is not mounted", "exit 4, and the run is unchanged", unmounted_checkpoints),
    *(
        Case(
            4,
            f"train, a full disk of {size} kB",
            "exit 4, one sentence, no temporary files",
            partial(full_disk, size),
            needs_root=True,
        )
        for size in SIZES
    ),
    Case(11, "train, the cache is truncated", "a documented exit code, and another run works", truncated_cache),
]
