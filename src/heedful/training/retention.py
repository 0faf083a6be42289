"""Which checkpoints there are, which one to take, and which to keep.

    checkpoints/step-100  step-200  step-300  best -> step-200  average

Continuing takes the newest that verifies, belongs to the run and has finite weights; reading a model takes `best`, else the
newest. Kept are the last k and the best ones; nothing is deleted before the newest has been read back and found whole."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from heedful.errors import CheckpointError, ConfigError, nearest
from heedful.storage.folders import remove
from heedful.storage.writing import replace_link
from heedful.training.checkpoint import REPLACED, belongs_to_run, is_complete, verifies, verify_usable
from heedful.training.manifest import STEP

BEST = "best"
LAST = "last"
AVERAGE = "average"

logger = logging.getLogger(__name__)


def steps(checkpoints: Path) -> list[Path]:
    """The folders of all steps, oldest first, whole or not."""
    found = checkpoints.glob("step-*") if checkpoints.is_dir() else ()
    return sorted((path for path in found if STEP.fullmatch(path.name) and path.is_dir()), key=number)


def newest(checkpoints: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that verifies and has finite weights, and a sentence for each newer one, which is left as it is."""
    troubles: list[str] = []
    for folder in _candidates(checkpoints):
        try:
            verify_usable(folder)
        except CheckpointError as error:
            troubles.append(str(error.args[0]))
        else:
            return folder, troubles
    if troubles:
        raise CheckpointError(
            f"none of the checkpoints in {checkpoints} can be used: {'; '.join(troubles)}",
            hint="nothing was deleted; move the folder away to begin anew, or train in another with --run",
        )
    return None, troubles


def newest_unverified(checkpoints: Path) -> Path | None:
    """The newest checkpoint that is complete and belongs to the run; its content is not verified."""
    return next((folder for folder in _candidates(checkpoints) if is_complete(folder) and belongs_to_run(folder)), None)


def resolve(run: Path, which: str | None = None) -> Path:
    """The folder of "best", "last", "average" or "step-N"; None is the best, else the newest that verifies."""
    if run.is_file():
        raise CheckpointError(f"{run} is a file; expected a run folder")
    if not run.is_dir():
        close = nearest(run.name, (path.name for path in run.parent.iterdir())) if run.parent.is_dir() else None
        hint = f"did you mean {run.parent / close}?" if close else None
        raise CheckpointError(f"there is no run folder {run}", hint=hint)
    checkpoints = run / "checkpoints"
    best = best_folder(checkpoints)
    if best is None and (checkpoints / BEST).is_symlink():
        logger.warning("the best checkpoint of %s, %s, is gone", run, (checkpoints / BEST).readlink())
    if which in (None, BEST) and best is not None:
        return best
    if which in (None, LAST):
        folder, troubles = newest(checkpoints)
        for trouble in troubles:
            logger.warning("%s; an older one is taken", trouble)
        if folder is None:
            raise CheckpointError(f"there is no checkpoint in {run} yet", hint="heed train makes them")
        return folder
    named = _existing(checkpoints, which) if which == AVERAGE or STEP.fullmatch(which) else None
    if named is None:
        raise _missing(run, which)
    return named


def best_folder(checkpoints: Path) -> Path | None:
    """The folder that the link `best` names, if it is there."""
    link = checkpoints / BEST
    return _existing(checkpoints, link.readlink().name) if link.is_symlink() else None


def point_best(checkpoints: Path, name: str) -> None:
    """Let `best` name this folder ("step-N" or "average"); a reader sees the old link or the new one."""
    assert (checkpoints / name).is_dir(), f"{checkpoints / name} must exist before it can be the best"
    replace_link(checkpoints / BEST, name)


def prune(checkpoints: Path, *, keep_last: int, best_steps: Collection[int] = ()) -> list[Path]:
    """Delete what is neither among the last k whole ones nor among the best, and say what was deleted.

    What does not verify is left for a person to look at, and does not count as one of the last."""
    assert keep_last >= 1, f"the newest checkpoint is always kept, but keep_last is {keep_last}"
    current, _ = newest(checkpoints)
    if current is None:
        return []
    older = [folder for folder in reversed(steps(checkpoints)) if folder != current and is_complete(folder)]
    kept = {f"step-{step}" for step in best_steps}
    best = best_folder(checkpoints)
    removed = []
    for folder in older[keep_last - 1 :]:
        is_older = number(folder) < number(current)
        if is_older and folder.name not in kept and folder != best and verifies(folder):
            remove(folder)
            removed.append(folder)
    return removed


def _candidates(checkpoints: Path) -> list[Path]:
    """Newest first: each step's folder, then the one it was replacing when a process died."""
    current = steps(checkpoints)
    aside = [path for path in checkpoints.glob(f"step-*{REPLACED}") if STEP.fullmatch(path.name.removesuffix(REPLACED))]
    return sorted([*current, *aside], key=number, reverse=True)


def _existing(checkpoints: Path, name: str) -> Path | None:
    """The folder of that name, or the one that stands aside while it is being replaced."""
    return next((path for end in ("", REPLACED) if (path := checkpoints / (name + end)).is_dir()), None)


def number(folder: Path) -> int:
    match = STEP.match(folder.name)
    assert match is not None, f"{folder} is not the folder of a step"
    return int(match[1])


def _missing(run: Path, which: str) -> CheckpointError | ConfigError:
    names = [folder.name for folder in steps(run / "checkpoints")]
    there = ", ".join(names) or "none"
    if which not in (BEST, AVERAGE) and not STEP.fullmatch(which):
        close = nearest(which, (BEST, LAST, AVERAGE, *names))
        return ConfigError(
            f"unknown checkpoint {which!r}; expected one of: best, last, average, step-N (there are: {there})",
            hint=f"did you mean {close!r}?" if close else None,
        )
    hints = {BEST: "no validation has chosen one yet: take last", AVERAGE: "heed average makes one"}
    return CheckpointError(f"there is no checkpoint {which!r} in {run}; there are: {there}", hint=hints.get(which))
