"""Faults of disks: every size at which a run's folder can be full, and a cache that shrinks while it is read."""

from __future__ import annotations

import signal
import subprocess
import time
from functools import partial
from pathlib import Path

from faults_workshop import Case, Place, Seen, ends

SIZES = (4, 8, 12, 16, 24, 32, 64, 128, 256)  # kB: the disk is full at one file after the other


def full_disk(kilobytes: int, place: Place) -> Seen:
    recipe, disk = place.recipe(), place.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", disk], check=True)
    try:
        done = place.heed("train", recipe, "--run", "disk/run", "--device", "cpu")
        left = [path.name for path in Path(disk).rglob(".tmp-*")]
    finally:
        subprocess.run(["umount", disk], check=True)
    return ends(done, 4, says="error: ", also=not left and "standard output" not in done.err)  # it names the file


def truncated_cache(place: Place) -> Seen:
    """The tokens are mapped: what is cut off them is an access to nothing."""
    recipe = place.recipe(steps=100_000)
    running = place.start("train", recipe, "--run", "run", "--device", "cpu")
    began = running.wait_for(lambda: any((place.folder / "run/checkpoints").glob("step-*")))
    for path in (place.folder / "cache").rglob("*.values"):
        with path.open("r+b") as file:
            file.truncate(0)
    time.sleep(2)
    if running.alive():  # its pages may be in memory: then it goes on
        running.send(signal.SIGTERM)
    done = place.finish(running, 60)
    again = place.heed("train", recipe, "training.steps=40", "--run", "other", "--device", "cpu")
    return ends(done, 0, 3, 4, 75, also=began and again.code == 0)


CASES = [
    *(
        Case(
            f"train, a full disk of {size} kB", "exit 4, one sentence, no file left", partial(full_disk, size), needs_root=True
        )
        for size in SIZES
    ),
    Case("train, the cache is cut off", "a documented exit code, and another run works", truncated_cache),
]
