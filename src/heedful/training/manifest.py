"""The manifest of a checkpoint: the size and SHA-256 of every file, the names of tied tensors, and its own SHA-256.

    model.safetensors                     a stem in one file
    model/shard-00001-….safetensors       a stem in parts, one file of each rank that wrote it (sharded_checkpoint.py)

It is written last, so a folder without one is incomplete. Rendering the parsed manifest must reproduce its text, so any
changed byte is detected, in the manifest or in the files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from heedful.config.base import Config, NonNegativeInteger, ZeroOrCount
from heedful.errors import CheckpointError
from heedful.storage.manifest import NAME, Damaged, measure, read_checked, seal
from heedful.storage.reading import read_bytes, reason_of

FORMAT = 1
SHARDED = 2  # format of a checkpoint with a stem in parts, which earlier versions cannot read
SUFFIX = ".safetensors"
STATE = "state.json"
CHANGED = f"{NAME} is damaged: its content does not match its hash"
STEP = re.compile(r"step-(0|[1-9][0-9]*)")
NAMES = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"  # no separator, no leading dot
PLAIN = re.compile(rf"{NAMES}(/{NAMES})?")  # a file in the folder, or in the folder of a stem


class FileRecord(Config):
    size: NonNegativeInteger
    """Bytes."""
    sha256: str
    aliases: dict[str, str] = Field(default_factory=dict)
    """Tied tensors: alias -> name of the stored tensor."""


class Manifest(Config):
    format: ZeroOrCount = FORMAT
    name: str
    """Name of the folder when it was written."""
    files: dict[str, FileRecord]

    def render(self) -> str:
        return seal(self.model_dump())

    def stems(self) -> list[str]:
        """The stems of tensors: "model", "optimizer", …"""
        return list(dict.fromkeys(stem_of(name) for name in self.files if name.endswith(SUFFIX)))

    def files_of(self, stem: str) -> dict[str, FileRecord]:
        """The files with the tensors of a stem: one, or one for each part."""
        return {name: file for name, file in self.files.items() if name.endswith(SUFFIX) and stem_of(name) == stem}


def stem_of(name: str) -> str:
    """The stem that a file of tensors belongs to."""
    return name.split("/")[0].removesuffix(SUFFIX)


def record(path: Path, aliases: dict[str, str] | None = None) -> FileRecord:
    """Record the size and SHA-256 of a file."""
    return FileRecord(**measure(path), aliases=aliases or {})


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a checkpoint; CheckpointError if it is missing, damaged or of a newer format."""
    try:
        text = read_bytes(folder / NAME).decode()
        content = json.loads(text)
    except FileNotFoundError as error:
        raise damaged(folder, f"{NAME} is missing, so the checkpoint is incomplete") from error
    except OSError as error:
        raise damaged(folder, f"{NAME} cannot be read: {reason_of(error)}") from error
    except (ValueError, RecursionError) as error:
        raise damaged(folder, CHANGED) from error
    if not isinstance(content, dict):
        raise damaged(folder, CHANGED)
    refuse_newer(content, f"checkpoint {folder}")
    content.pop("sha256", None)
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise damaged(folder, CHANGED) from error
    if manifest.render() != text:
        raise damaged(folder, CHANGED)
    _check_names(folder, manifest)
    return manifest


def read_state(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """Read the state of a checkpoint, verified."""
    record = manifest.files.get(STATE)
    if record is None:
        raise CheckpointError(f"checkpoint {folder} has no {STATE}")
    try:
        state = json.loads(read_checked(folder / STATE, record.size, record.sha256))
    except Damaged as damage:
        raise damaged(folder, str(damage)) from damage
    except (ValueError, RecursionError) as error:
        raise damaged(folder, f"{STATE} is not JSON: {error}") from error
    if not isinstance(state, dict):
        raise damaged(folder, f"{STATE} holds a {type(state).__name__}, expected an object")
    return state


def refuse_newer(content: dict[str, Any], what: str, newest: int = SHARDED) -> None:
    """Raise CheckpointError for a format of a later release."""
    given = content.get("format")
    if isinstance(given, int) and given > newest:
        raise CheckpointError(
            f"{what} has format {given}, but this version of heedful reads formats up to {newest}",
            hint="install a newer version of heedful",
        )


def _check_names(folder: Path, manifest: Manifest) -> None:
    for name in manifest.files:
        if not PLAIN.fullmatch(name):
            raise damaged(folder, f"{NAME} lists {name!r}; expected names of files in the folder")
    if STEP.fullmatch(folder.name) and folder.name != manifest.name:
        raise damaged(folder, f"{NAME} belongs to {manifest.name}; the folder was renamed")


def damaged(folder: Path, why: str) -> CheckpointError:
    """The error for a checkpoint that cannot be used."""
    return CheckpointError(
        f"checkpoint {folder}: {why}", hint="restore it from a backup, or use another one with --checkpoint, as in step-N"
    )
