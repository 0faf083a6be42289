"""The manifest of a checkpoint: the size and SHA-256 of every file, and of itself.

It is written last, so a folder without one was never finished. It is read strictly: rendering what was understood
must give back the very text, which ends in its own hash; so no altered byte goes unnoticed, in it or in the files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from heedful.errors import CheckpointError
from heedful.schema import Config, WholeNumber, ZeroOrCount
from heedful.storage.manifest import NAME, measure, seal
from heedful.storage.reading import read_bytes

FORMAT = 1
STEP = re.compile(r"step-(0|[1-9][0-9]*)")
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # a file of the folder itself: no separator, no leading dot


class FileRecord(Config):
    size: WholeNumber
    """Bytes."""
    sha256: str
    aliases: dict[str, str] = Field(default_factory=dict)
    """Tensors stored once under another name: alias -> stored name."""


class Manifest(Config):
    format: ZeroOrCount = FORMAT
    name: str
    """Of the folder, as it was written."""
    files: dict[str, FileRecord]

    def render(self) -> str:
        return seal(self.model_dump())


def record(path: Path, aliases: dict[str, str] | None = None) -> FileRecord:
    """Measure a written file by reading it back."""
    return FileRecord(**measure(path), aliases=aliases or {})


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint folder, or a CheckpointError that says what is wrong with it."""
    try:
        text = read_bytes(folder / NAME).decode()
        content = json.loads(text)
    except FileNotFoundError as error:
        raise CheckpointError(f"checkpoint {folder}: {NAME} is missing, so it was never finished") from error
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder}: {NAME} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(folder) from error
    if not isinstance(content, dict):
        raise _damaged(folder)
    refuse_newer(content, f"checkpoint {folder}")
    content.pop("sha256", None)
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        raise _damaged(folder) from error
    if manifest.render() != text:
        raise _damaged(folder)
    _check_names(folder, manifest)
    return manifest


def refuse_newer(content: dict[str, Any], what: str, known: int = FORMAT) -> None:
    """A format of a later release may mean anything: say so instead of guessing."""
    given = content.get("format")
    if isinstance(given, int) and given > known:
        raise CheckpointError(
            f"{what} has format {given}, but this version of heedful reads formats up to {known}",
            hint="read it with a newer version of heedful",
        )


def _check_names(folder: Path, manifest: Manifest) -> None:
    for name in manifest.files:
        if not PLAIN.fullmatch(name):
            raise CheckpointError(f"checkpoint {folder}: {NAME} names {name!r}; expected plain names of its own files")
    if STEP.fullmatch(folder.name) and folder.name != manifest.name:
        raise CheckpointError(f"checkpoint {folder}: {NAME} is that of {manifest.name}, so a folder was renamed")


def _damaged(folder: Path) -> CheckpointError:
    return CheckpointError(f"checkpoint {folder}: {NAME} is damaged: its content differs from its own hash")
