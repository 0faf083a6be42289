"""Selecting a checkpoint, and deleting old ones.

    checkpoints/step-100  step-200  step-300  best -> step-200  average

Training continues from the newest that verifies, belongs to the run and has finite weights; loading a model uses `best`, else
the newest. The last k and the best ones are kept; nothing is deleted before the newest has been read back and verified."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from heedful.errors import CheckpointError, ConfigError, nearest
from heedful.storage.folders import remove
from heedful.storage.writing import replace_link
from heedful.training.checkpoint import REPLACED, belongs_to_run, is_complete, shapes, verifies, verify_usable
from heedful.training.facts import CHECKPOINTS, not_a_run
from heedful.training.facts import NAME as FACTS
from heedful.training.manifest import STEP
from heedful.training.readable import exists, list_folder

BEST = "best"
LAST = "last"
AVERAGE = "average"

logger = logging.getLogger(__name__)


def steps(checkpoints: Path) -> list[Path]:
    """The folders of all steps, oldest first, damaged ones included; CheckpointError if they cannot be listed."""
    return sorted((path for path in list_folder(checkpoints) if STEP.fullmatch(path.name) and may_be_folder(path)), key=number)


def may_be_folder(path: Path) -> bool:
    """Whether this is a folder, or a link to one that may be out of reach."""
    return path.is_symlink() or path.is_dir()


def newest(checkpoints: Path) -> tuple[Path | None, list[str]]:
    """Return the newest usable checkpoint, and an error message for each newer one, which is left unchanged."""
    errors: list[str] = []
    for folder in _candidates(checkpoints):
        try:
            verify_usable(folder)
        except CheckpointError as error:
            errors.append(str(error.args[0]))
        else:
            return folder, errors
    if errors:
        raise CheckpointError(
            f"no checkpoint in {checkpoints} can be used: {'; '.join(errors)}",
            hint="move the folder away to start again, or choose another with --run; nothing was deleted",
        )
    return None, errors


def newest_shapes(checkpoints: Path) -> tuple[Path, dict[str, tuple[int, ...]]] | None:
    """The newest checkpoint that is complete and belongs to the run, and the shapes of its weights; no content is verified."""
    for folder in _candidates(checkpoints):
        if is_complete(folder) and belongs_to_run(folder):
            with suppress(CheckpointError):  # a damaged header
                return folder, shapes(folder, "model")
    return None


def resolve(run: Path, which: str | None = None) -> Path:
    """Return the folder of "best", "last", "average" or "step-N"; None: the best, else the newest that verifies."""
    require_run(run)
    checkpoints = run / CHECKPOINTS
    best = best_folder(checkpoints)
    if which in (None, BEST) and best is not None:
        return best
    if which in (None, LAST):
        folder, errors = newest(checkpoints)
        for error in errors:
            logger.warning("%s; using an older checkpoint", error)
        if folder is None:
            raise CheckpointError(f"{run} has no checkpoint yet", hint="train it with heed train")
        if which is None and (checkpoints / BEST).is_symlink():
            missing = (checkpoints / BEST).readlink()
            logger.warning("the best checkpoint of %s, %s, is missing; using %s", run, missing, folder.name)
        return folder
    named = _existing(checkpoints, which) if which == AVERAGE or STEP.fullmatch(which) else None
    if named is None:
        raise _missing(run, which)
    return named


def require_run(run: Path) -> None:
    """Raise CheckpointError unless this is a run folder whose checkpoints can be listed."""
    if run.is_file():
        raise CheckpointError(f"{run} is a file; expected a run folder")
    if not exists(run):
        close = nearest(run.name, (path.name for path in list_folder(run.parent)))
        hint = f"did you mean {run.parent / close}?" if close else None
        raise CheckpointError(f"run folder {run} does not exist", hint=hint)
    list_folder(run / CHECKPOINTS)
    if not exists(run / FACTS) and not exists(run / CHECKPOINTS):
        raise not_a_run(run)


def best_folder(checkpoints: Path) -> Path | None:
    """The folder that the link `best` points to, if it exists."""
    link = checkpoints / BEST
    return _existing(checkpoints, link.readlink().name) if link.is_symlink() else None


def point_best(checkpoints: Path, name: str) -> None:
    """Point `best` to this folder ("step-N" or "average"); a reader sees the old link or the new one."""
    assert (checkpoints / name).is_dir(), f"{checkpoints / name} must exist before it can be the best"
    replace_link(checkpoints / BEST, name)


def prune(checkpoints: Path, *, keep_last: int, best_steps: Collection[int] = ()) -> list[Path]:
    """Delete checkpoints that are neither among the last k complete ones nor among the best; return the deleted ones.

    Damaged checkpoints are not deleted, and do not count among the last k."""
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
    """Newest first: the folder of each step, then the one that it was replacing when a process was killed."""
    current = steps(checkpoints)
    ends = [path for path in list_folder(checkpoints) if path.name.endswith(REPLACED)]
    aside = [path for path in ends if STEP.fullmatch(path.name.removesuffix(REPLACED))]
    return sorted([*current, *aside], key=number, reverse=True)


def _existing(checkpoints: Path, name: str) -> Path | None:
    """The folder of that name, or the one set aside while it is being replaced."""
    return next((path for end in ("", REPLACED) if (path := checkpoints / (name + end)).is_dir()), None)


def number(folder: Path) -> int:
    match = STEP.match(folder.name)
    assert match is not None, f"{folder} is not the folder of a step"
    return int(match[1])


def _missing(run: Path, which: str) -> CheckpointError | ConfigError:
    names = [folder.name for folder in steps(run / CHECKPOINTS)]
    available = ", ".join(names) or "none"
    if which not in (BEST, AVERAGE) and not STEP.fullmatch(which):
        close = nearest(which, (BEST, LAST, AVERAGE, *names))
        return ConfigError(
            f"unknown checkpoint {which!r}; expected one of: best, last, average, step-N (available: {available})",
            hint=f"did you mean {close!r}?" if close else None,
        )
    hints = {BEST: "use last: there was no validation yet", AVERAGE: "create it with heed average"}
    return CheckpointError(f"{run} has no checkpoint {which!r}; available: {available}", hint=hints.get(which))
