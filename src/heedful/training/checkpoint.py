"""A checkpoint: tensors (safetensors) and a state (JSON) in a folder that is whole or not there.

    .tmp-…/  write and flush every file -> MANIFEST.json last -> rename to step-N -> flush the parent

Kill the process at any instant: the folders that bear a step's name verify. Nothing is pickled. Tensors that share
one storage (tied embeddings) are stored once; loading gives the same tensor back under each of its names.

The weights are finite: others are never written, so the last good checkpoint is never replaced by one that is lost. The state
holds the fingerprint of the run (facts.py): a checkpoint that was copied from another run is refused.

A folder being replaced stands aside as step-N.replaced until the new one is in place; one that does not verify is
set aside as step-N.damaged and never deleted."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as parse_tensors
from safetensors.torch import save_file

from heedful.errors import CheckpointError, DivergedError, WriteError
from heedful.storage.folders import clear_temporary, new_folder, remove
from heedful.storage.manifest import NAME, Damaged, check_file, check_size, read_checked
from heedful.storage.writing import sync_folder, write_text
from heedful.training import manifest as manifests
from heedful.training.facts import NAME as FACTS
from heedful.training.facts import fingerprint_of
from heedful.training.manifest import FileRecord, Manifest, read_manifest
from heedful.training.weights import all_finite

Tensors = dict[str, torch.Tensor]

STATE = "state.json"
RUN = "run"  # of the state: the fingerprint of the run
WEIGHTS = ("model", "average")  # the stems that must be finite
SUFFIX = ".safetensors"
REPLACED = ".replaced"
DAMAGED = ".damaged"
SPARE = 1.2  # free space wanted, as a multiple of what will be written


def save(checkpoints: Path, step: int, tensors: Mapping[str, Mapping[str, torch.Tensor]], state: Mapping[str, Any]) -> Path:
    """Write checkpoints/step-N: one safetensors file for each stem ("model", "optimizer", …), and the state."""
    return save_named(checkpoints, f"step-{step}", tensors, state)


def save_named(
    checkpoints: Path, name: str, tensors: Mapping[str, Mapping[str, torch.Tensor]], state: Mapping[str, Any]
) -> Path:
    """Write a checkpoint that belongs to no single step, as "average" does."""
    folder = checkpoints / name
    _refuse_nonfinite(folder, tensors)
    fingerprint = fingerprint_of(checkpoints.parent)
    state = dict(state) if fingerprint is None else {**state, RUN: fingerprint}
    plain = {stem: _unshare(named) for stem, named in tensors.items()}
    text = json.dumps(state, indent=1) + "\n"
    try:
        checkpoints.mkdir(parents=True, exist_ok=True)
        _check_space(folder, len(text) + sum(t.nbytes for stored, _ in plain.values() for t in stored.values()))
        with new_folder(folder, _publish) as temporary:
            _fill(temporary, name, plain, text)
    except (OSError, WriteError, SafetensorError) as error:
        cause = error.__cause__ if isinstance(error, WriteError) else error
        raise CheckpointError(
            f"cannot write checkpoint {folder}: {getattr(cause, 'strerror', None) or cause}; {_what_remains(checkpoints)}",
            hint="free disk space or repair the disk, then run the same command again to continue from that checkpoint",
        ) from error
    return folder


def verify(folder: Path) -> None:
    """Read every byte: all files are there, with the size and the SHA-256 that the manifest says, and of this run."""
    manifest = read_manifest(folder)
    for name, record in manifest.files.items():
        _check(folder / name, record)
    _refuse_foreign(folder, manifest)


def load(folder: Path) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """The tensors of each stem and the state; every byte is verified as it is read."""
    manifest = read_manifest(folder)
    _refuse_foreign(folder, manifest)
    return {stem: _tensors(folder, stem, manifest) for stem in _stems(manifest)}, _state(folder, manifest)


def load_tensors(folder: Path, stem: str) -> Tensors:
    """The tensors of one stem, verified, without reading the others."""
    manifest = read_manifest(folder)
    _refuse_foreign(folder, manifest)
    return _tensors(folder, stem, manifest)


def load_weights(folder: Path, stem: str) -> Tensors:
    """As `load_tensors`; weights that are not finite are refused."""
    return _finite(folder, load_tensors(folder, stem))


def verify_usable(folder: Path) -> None:
    """As `verify`, and the weights are finite. Every file is read once."""
    manifest = read_manifest(folder)
    for name, record in manifest.files.items():
        stem = name.removesuffix(SUFFIX)
        if stem in WEIGHTS and name != stem:
            _finite(folder, _tensors(folder, stem, manifest))
        else:
            _check(folder / name, record)
    _refuse_foreign(folder, manifest)


def shapes(folder: Path, stem: str) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor, from the header of the file: takes no memory for them, and is not verified."""
    manifest = read_manifest(folder)
    record, path = _record(folder, stem, manifest), folder / (stem + SUFFIX)
    with _named(folder):
        check_size(path, record.size)
    try:
        with safe_open(path, "pt") as file:
            stored = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        return stored | {alias: stored[name] for alias, name in record.aliases.items()}
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder}: {path.name} cannot be read: {error.strerror}") from error
    except (SafetensorError, KeyError) as error:
        raise CheckpointError(f"checkpoint {folder}: {path.name} is not a safetensors file: {error}") from error


def stems(folder: Path) -> list[str]:
    """What a checkpoint has tensors for: "model", "optimizer", …"""
    return _stems(read_manifest(folder))


def load_state(folder: Path) -> dict[str, Any]:
    """The state alone, verified."""
    return _state(folder, read_manifest(folder))


def verifies(folder: Path) -> bool:
    try:
        verify(folder)
    except CheckpointError:
        return False
    return True


def is_complete(folder: Path) -> bool:
    """The cheap half of `verify`: a good manifest, and every file with its size; no content is read."""
    try:
        return all((folder / name).stat().st_size == file.size for name, file in read_manifest(folder).files.items())
    except (CheckpointError, OSError):
        return False


def belongs_to_run(folder: Path) -> bool:
    """Whether the run whose folder it is in wrote it."""
    try:
        _refuse_foreign(folder, read_manifest(folder))
    except CheckpointError:
        return False
    return True


def clear_leftovers(checkpoints: Path) -> None:
    """Tidy up after a killed process; only who holds the lock of the run may do this."""
    if not checkpoints.is_dir():
        return
    clear_temporary(checkpoints)
    for path in sorted(checkpoints.glob(f"*{REPLACED}")):
        current = path.with_name(path.name.removesuffix(REPLACED))
        if not current.exists():
            path.rename(current)
        elif verifies(current):
            remove(path)


def _unshare(named: Mapping[str, torch.Tensor]) -> tuple[Tensors, dict[str, str]]:
    """The tensors to store, on the CPU and each with a storage of its own, and alias -> stored name for the others."""
    stored: Tensors = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[object, ...], str] = {}
    storages: set[int] = set()
    for name, tensor in named.items():
        view = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and view in seen:
            aliases[name] = seen[view]
            continue
        seen[view] = name
        plain = tensor.detach().to("cpu").contiguous()
        storage = plain.untyped_storage()
        if storage.nbytes() != plain.nbytes or storage.data_ptr() in storages:
            plain = plain.clone()  # a part, or another view, of a storage that holds more
        storages.add(plain.untyped_storage().data_ptr())
        stored[name] = plain
    return stored, aliases


def _fill(folder: Path, name: str, plain: Mapping[str, tuple[Tensors, dict[str, str]]], state: str) -> None:
    """Write every file, and the manifest last."""
    write_text(folder / STATE, state)
    records = {STATE: manifests.record(folder / STATE)}
    for stem, (stored, aliases) in plain.items():
        path = folder / (stem + SUFFIX)
        assert manifests.PLAIN.fullmatch(path.name), f"{stem!r} cannot be the name of a file"
        save_file(stored, path, metadata={"format": "pt"})
        shutil.copymode(folder / STATE, path)  # safetensors creates files with mode 0600
        records[path.name] = manifests.record(path, aliases)
    write_text(folder / NAME, Manifest(name=name, files=records).render())


def _publish(temporary: Path, folder: Path) -> None:
    """Give the finished folder its name; what bears the name already steps aside."""
    aside = folder.with_name(folder.name + REPLACED)
    if folder.exists():
        if verifies(folder):
            if aside.exists():
                remove(aside)
            folder.rename(aside)
        else:
            folder.rename(_free_name(folder))
    temporary.rename(folder)
    sync_folder(folder.parent)
    if aside.exists():
        remove(aside)


def _free_name(folder: Path) -> Path:
    number = 1
    while (path := folder.with_name(f"{folder.name}{DAMAGED}{'' if number == 1 else f'-{number}'}")).exists():
        number += 1
    return path


def _check_space(folder: Path, size: int) -> None:
    needed, free = math.ceil(SPARE * size), shutil.disk_usage(folder.parent).free
    if free < needed:
        raise CheckpointError(
            f"no room for checkpoint {folder}: it needs {needed:,} bytes ({SPARE} times its size), but the disk has "
            f"{free:,} free; {_what_remains(folder.parent)}",
            hint="free some space, then run the same command again: it continues from there",
        )


def _what_remains(checkpoints: Path) -> str:
    steps = [int(match[1]) for path in checkpoints.glob("step-*") if (match := manifests.STEP.fullmatch(path.name))]
    return f"nothing is lost: the last checkpoint is step-{max(steps)}" if steps else "there is no earlier checkpoint"


def _stems(manifest: Manifest) -> list[str]:
    return [name.removesuffix(SUFFIX) for name in manifest.files if name.endswith(SUFFIX)]


def _refuse_nonfinite(folder: Path, tensors: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
    for stem in WEIGHTS:
        if not all_finite(tensors.get(stem, {}).values()):
            raise DivergedError(
                f"training diverged: the weights of {folder.name} are not finite, so it was not saved; "
                f"{_what_remains(folder.parent)}",
                hint="lower training.schedule.learning_rate, raise its warmup, or use precision bf16 or fp32",
            )


def _finite(folder: Path, weights: Tensors) -> Tensors:
    if not all_finite(weights.values()):
        raise CheckpointError(
            f"checkpoint {folder} has weights that are not finite: its training diverged",
            hint="--checkpoint takes another one; train again with a lower training.schedule.learning_rate",
        )
    return weights


def _refuse_foreign(folder: Path, manifest: Manifest) -> None:
    run = folder.parent.parent
    if not (run / FACTS).exists():
        return
    expected, found = fingerprint_of(run), _state(folder, manifest).get(RUN)
    if found != expected:
        whose = "belongs to another run: it" if found else "has no fingerprint of the run: it"
        raise CheckpointError(
            f"checkpoint {folder} {whose} was not trained with the config, tokenizer and data of {run}",
            hint="remove it, or use it in the folder of the run that made it",
        )


def _record(folder: Path, stem: str, manifest: Manifest) -> FileRecord:
    record = manifest.files.get(stem + SUFFIX)
    if record is None:
        there = ", ".join(_stems(manifest)) or "none"
        raise CheckpointError(f"checkpoint {folder} has no tensors of {stem!r}; it has those of: {there}")
    return record


def _tensors(folder: Path, stem: str, manifest: Manifest) -> Tensors:
    record = _record(folder, stem, manifest)
    data = _read(folder / (stem + SUFFIX), record)
    try:
        tensors = parse_tensors(data)
        return tensors | {alias: tensors[name] for alias, name in record.aliases.items()}
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"checkpoint {folder}: {stem + SUFFIX} is not a safetensors file: {error}") from error


def _state(folder: Path, manifest: Manifest) -> dict[str, Any]:
    record = manifest.files.get(STATE)
    if record is None:
        raise CheckpointError(f"checkpoint {folder} has no {STATE}")
    try:
        state = json.loads(_read(folder / STATE, record))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"checkpoint {folder}: {STATE} is not JSON: {error}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"checkpoint {folder}: {STATE} holds a {type(state).__name__}, expected an object")
    return state


def _check(path: Path, record: FileRecord) -> None:
    with _named(path.parent):
        check_file(path, record.size, record.sha256)


def _read(path: Path, record: FileRecord) -> bytes:
    with _named(path.parent):
        return read_checked(path, record.size, record.sha256)


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Raise Damaged as a CheckpointError that names the checkpoint."""
    try:
        yield
    except Damaged as damage:
        raise CheckpointError(f"checkpoint {folder}: {damage}") from damage
