"""Parsing and validation of the state of a checkpoint: a file that verifies may still lack parts. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from heedful.errors import CheckpointError
from heedful.training.manifest import STEP, read_manifest, read_state
from heedful.training.train_state import TrainState

if TYPE_CHECKING:
    from torch import Tensor

COUNTERS = ("step", "epoch", "cursor", "tokens")  # required to continue training


class SavedState(BaseModel):
    """State of a training step, or of an average of checkpoints, which has no train_state."""

    model_config = ConfigDict(frozen=True)

    train_state: TrainState | None = None
    step: int | None = None  # of an average: the step at which it was computed
    metrics: dict[str, float] = Field(default_factory=dict)
    signatures: dict[str, str] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)


def load_saved(folder: Path) -> SavedState:
    return parse_state(folder, read_state(folder, read_manifest(folder)))


def load_train_state(folder: Path) -> TrainState:
    """Load the training state of a checkpoint."""
    return require_train_state(folder, load_saved(folder))


def parse_state(folder: Path, state: Mapping[str, Any]) -> SavedState:
    given = state.get("train_state")
    if given is not None:
        missing = [name for name in COUNTERS if not isinstance(given, Mapping) or name not in given]
        if missing:
            raise _unusable(folder, f"train_state.{missing[0]} is missing")
    try:
        train_state = None if given is None else {"position": given["step"], **given}  # earlier versions had no position
        saved = SavedState.model_validate({**state, "train_state": train_state})
    except ValidationError as error:
        first = error.errors()[0]
        raise _unusable(folder, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if saved.train_state is not None:
        _check(folder, saved.train_state)
    return saved


def require_train_state(folder: Path, saved: SavedState) -> TrainState:
    if saved.train_state is None:
        raise _unusable(folder, "train_state is missing")
    return saved.train_state


def require_tensors(tensors: Mapping[str, Mapping[str, Tensor]], stem: str, folder: Path) -> Mapping[str, Tensor]:
    """Return the tensors of one stem; CheckpointError if they are missing."""
    if stem not in tensors:
        raise _unusable(folder, f"{stem}.safetensors is missing")
    return tensors[stem]


def _check(folder: Path, train_state: TrainState) -> None:
    for name in COUNTERS:
        if getattr(train_state, name) < 0:
            raise _unusable(folder, f"train_state.{name} is {getattr(train_state, name)}, expected 0 or more")
    named = STEP.fullmatch(folder.name)
    if named and int(named[1]) != train_state.step:
        raise _unusable(folder, f"train_state.step is {train_state.step}")


def _unusable(folder: Path, why: str) -> CheckpointError:
    sentence = f"training cannot continue from checkpoint {folder}: {why}"
    return CheckpointError(sentence, hint="move this checkpoint out of its folder to continue from the previous one")
