"""run.json: the provenance of a run, and the fingerprint that identifies its files.

    format         of the run folder
    data           SHA-256 of every data file
    environment    versions of packages, the commit
    files          SHA-256 of config.toml, the tokenizers and a dictionary
    first_config   SHA-256 of config.toml at the start of the run
    fingerprint    SHA-256 of `first_config`, `data` and the other `files`; every checkpoint stores it in its state
    sha256         of all of the above

Any changed byte, and any config.toml, tokenizer or checkpoint of another run, is detected when the run is loaded. A run of
format 1 has no checksums: it loads with a warning.

Only config.toml changes after the start (`training.steps` may be raised). run.json lists the next version of it before it
is written, so a process killed in between leaves a folder that still verifies.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, model_validator

from heedful.errors import CheckpointError, ConfigError, DataError
from heedful.storage.manifest import seal
from heedful.storage.reading import read_bytes, sha256_of
from heedful.storage.writing import replace_text
from heedful.training.manifest import refuse_newer
from heedful.training.readable import exists, refuse_broken_link, require_readable, unreadable

NAME = "run.json"
FORMAT = 2
UNVERIFIED = 1  # the format of runs without checksums
CONFIG = "config.toml"
CHECKPOINTS = "checkpoints"
TOKENIZERS = ("tokenizer.json", "source.tokenizer.json", "target.tokenizer.json")
DICTIONARY = "dictionary.tsv"
BOUND = (CONFIG, *TOKENIZERS, DICTIONARY)

RESTORE = "restore the file from a backup, or train the run again"

UNVERIFIED_KEYS = frozenset({"format", "data", "environment", "pruned"})

logger = logging.getLogger(__name__)


class Pruned(BaseModel):
    """The origin of a pruned run."""

    run: str
    checkpoint: str
    heads: dict[str, list[int]]
    left: dict[str, list[int]]

    @model_validator(mode="after")
    def _same_kinds(self) -> Pruned:
        if self.heads.keys() != self.left.keys():
            raise ValueError("`heads` and `left` have different kinds of heads")
        return self


class Facts(BaseModel):
    """The schema of run.json."""

    data: dict[str, str] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)
    first_config: str | None = None
    fingerprint: str | None = None
    next_config: str | None = None
    pruned: Pruned | None = None


def write_facts(run: Path, facts: Mapping[str, Any]) -> None:
    """Write run.json: the format first, its own hash last."""
    replace_text(run / NAME, seal({"format": FORMAT} | dict(facts)))


def read_facts(run: Path) -> dict[str, Any]:
    """Read run.json; CheckpointError if it is missing, damaged or of a newer format."""
    path = run / NAME
    try:
        text = read_bytes(path).decode()
        facts = json.loads(text)
    except FileNotFoundError as error:
        refuse_broken_link(path, error)
        raise not_a_run(run) from error
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({describe_json_error(error)})") from error
    if not isinstance(facts, dict) or type(facts.get("format")) is not int:
        raise _damaged(path, "it has no format")
    refuse_newer(facts, f"run folder {run}", FORMAT)
    if facts["format"] != UNVERIFIED or not facts.keys() <= UNVERIFIED_KEYS:
        facts.pop("sha256", None)
        if seal(facts) != text:
            raise _damaged(path, "its content does not match its hash")
    try:
        Facts.model_validate(facts, strict=True)
    except ValidationError as error:
        raise _damaged(path, f"{error.errors()[0]['loc'][0]}: {error.errors()[0]['msg']}") from error
    if facts.get("fingerprint") not in (None, _fingerprint(facts)):
        raise _damaged(path, "its fingerprint does not match the files it lists")
    return {"data": {}, "environment": {}} | facts


def record_files(run: Path) -> None:
    """Record the hashes of the files of a new run, and its fingerprint."""
    facts = read_facts(run)
    files = {name: sha256_of(run / name) for name in BOUND if (run / name).exists()}
    facts |= {"files": files, "first_config": files.get(CONFIG)}
    write_facts(run, facts | {"fingerprint": _fingerprint(facts)})


def replace_config(run: Path, text: str) -> None:
    """Replace config.toml of an existing run."""
    facts = read_facts(run)
    if facts["format"] == UNVERIFIED:
        replace_text(run / CONFIG, text)
        return
    digest = hashlib.sha256(text.encode()).hexdigest()
    if digest == facts["files"].get(CONFIG) and "next_config" not in facts:
        return
    write_facts(run, facts | {"next_config": digest})
    replace_text(run / CONFIG, text)
    facts["files"][CONFIG] = digest
    write_facts(run, {name: value for name, value in facts.items() if name != "next_config"})


def check_files(run: Path) -> None:
    """Raise CheckpointError if the config or a tokenizer differs from the one that the run was trained with."""
    facts = read_facts(run)
    if facts["format"] == UNVERIFIED:
        logger.warning("%s was written by an earlier version of heedful, without checksums of its files", run)
        return
    recorded = facts.get("files", {})
    for name in BOUND:
        path = run / name
        if name not in recorded and not exists(path):
            continue
        try:
            digest = sha256_of(path)
        except FileNotFoundError as error:
            refuse_broken_link(path, error)
            raise CheckpointError(f"run folder {run} is damaged: {name} is missing", hint=RESTORE) from error
        except OSError as error:
            raise unreadable(path, error) from error
        accepted = {recorded.get(name), facts.get("next_config") if name == CONFIG else None}
        if digest not in accepted:
            raise CheckpointError(
                f"{path} differs from the one that the run was trained with", hint=_how_to_restore(name, name in recorded)
            )


@contextmanager
def damage_as_checkpoint_error(run: Path) -> Iterator[None]:
    """A file of a run folder that is invalid is an error of the run, whether it is a config or a tokenizer."""
    try:
        yield
    except (ConfigError, DataError) as error:
        raise CheckpointError(f"run folder {run} is damaged: {error.args[0]}", hint=RESTORE) from error


def fingerprint_of(run: Path) -> str | None:
    """The fingerprint that every checkpoint of the run stores; None without run.json."""
    return read_facts(run).get("fingerprint") if exists(run / NAME) else None


def not_a_run(run: Path) -> CheckpointError:
    """The error for a folder without run.json, which may be a part of a run folder."""
    place = run.resolve()
    owner = next((folder.parent for folder in (place, place.parent) if folder.name == CHECKPOINTS), None)
    if owner is None or not (owner / NAME).is_file():
        return CheckpointError(f"{run} is not a run folder: {NAME} is missing")
    if place.name == CHECKPOINTS:
        return CheckpointError(f"{run} has the checkpoints of the run {owner}; expected the run folder", hint=f"give {owner}")
    return CheckpointError(
        f"{run} is a checkpoint of the run {owner}; expected the run folder",
        hint=f"give the run folder; --checkpoint {place.name} selects the checkpoint",
    )


def require_readable_files(run: Path) -> None:
    """Raise CheckpointError if run.json, the config or a tokenizer exists but cannot be opened."""
    for name in (NAME, *BOUND):
        require_readable(run / name)


def _fingerprint(facts: Mapping[str, Any]) -> str:
    others = {name: digest for name, digest in facts.get("files", {}).items() if name != CONFIG}
    content = json.dumps([facts.get("first_config"), others, facts.get("data", {})], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _how_to_restore(name: str, recorded: bool) -> str:
    if not recorded:
        return f"move it out of the folder: the run was trained without {name}"
    if name == CONFIG:
        return f"{RESTORE}; use `-s` to change search options, and a new run for other options"
    return RESTORE


def describe_json_error(error: Exception) -> str:
    return "too deeply nested" if isinstance(error, RecursionError) else str(error)


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {why}", hint=RESTORE)
