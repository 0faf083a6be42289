"""A checkpoint: tensors (safetensors) and a state (JSON) in a folder that is complete or absent.

    .tmp-…/  write every file, MANIFEST.json last -> flush them -> rename to step-N -> flush the parent

If the process is killed at any instant, every folder named step-N verifies. Nothing is pickled. Tensors that share
one storage (tied embeddings) are stored once; loading returns the same tensor under each of its names. The tensors of
a stem may be in several files, written by the ranks of a sharded model (sharded_checkpoint.py); loading joins them.

Non-finite weights are never saved, so a usable checkpoint is never replaced by a diverged one. The state has the fingerprint
of the run (facts.py): a checkpoint copied from another run is an error.

A folder being replaced is renamed to step-N.replaced until the new one is in place; one that does not verify is
renamed to step-N.damaged and never deleted."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from heedful.errors import CheckpointError, DivergedError, WriteError
from heedful.storage.folders import clear_temporary, new_folder, remove
from heedful.storage.manifest import NAME, Damaged, check_file, check_size, read_checked
from heedful.storage.reading import open_plain, reason_of
from heedful.storage.writing import sync_folder, write_text
from heedful.training import manifest as manifests
from heedful.training.facts import NAME as FACTS
from heedful.training.facts import fingerprint_of
from heedful.training.manifest import STATE, SUFFIX, FileRecord, Manifest, damaged, read_manifest, read_state, stem_of
from heedful.training.readable import exists, list_folder
from heedful.training.tensor_parts import Offsets, join, join_shapes, offsets_of, parse
from heedful.training.weights import all_finite

Tensors = dict[str, torch.Tensor]
Value = TypeVar("Value")

RUN = "run"  # key of the fingerprint of the run in the state
WEIGHTS = ("model", "average")  # stems whose tensors must be finite
REPLACED = ".replaced"
DAMAGED = ".damaged"
SPARE = 1.2  # required free space, as a multiple of the size of the checkpoint


def save(checkpoints: Path, step: int, tensors: Mapping[str, Mapping[str, torch.Tensor]], state: Mapping[str, Any]) -> Path:
    """Write checkpoints/step-N: one safetensors file per stem ("model", "optimizer", …), and the state."""
    return save_named(checkpoints, f"step-{step}", tensors, state)


def save_named(
    checkpoints: Path, name: str, tensors: Mapping[str, Mapping[str, torch.Tensor]], state: Mapping[str, Any]
) -> Path:
    """Write a checkpoint with any name, such as "average"."""
    folder = checkpoints / name
    if not weights_are_finite(tensors):
        raise diverged(folder)
    plain = {stem: unshare(named) for stem, named in tensors.items()}
    with new_checkpoint(folder, sum(bytes_of(stored) for stored, _ in plain.values())) as temporary:
        records = {f"{stem}{SUFFIX}": write_tensors(temporary / f"{stem}{SUFFIX}", *named) for stem, named in plain.items()}
        seal_checkpoint(temporary, folder, state, records)
    return folder


@contextmanager
def new_checkpoint(folder: Path, size: int) -> Iterator[Path]:
    """Yield the temporary folder to fill, of about `size` bytes; the last call in the block is `seal_checkpoint`."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        require_space(folder, size)
        with new_folder(folder, _publish) as temporary:
            yield temporary
    except (OSError, WriteError, SafetensorError) as error:
        raise write_failed(folder, error) from error


def write_failed(folder: Path, error: BaseException) -> CheckpointError:
    """The error for a checkpoint that cannot be written."""
    cause = error.__cause__ if isinstance(error, WriteError) else error
    return CheckpointError(
        f"cannot write checkpoint {folder}: {getattr(cause, 'strerror', None) or cause}; {_last_checkpoint(folder.parent)}",
        hint="free disk space, or check the permissions of the folder, then run the same command again",
    )


def seal_checkpoint(temporary: Path, folder: Path, state: Mapping[str, Any], records: Mapping[str, FileRecord]) -> None:
    """Write the state with the fingerprint of the run, and the manifest last."""
    fingerprint = fingerprint_of(folder.parent.parent)
    complete = dict(state) if fingerprint is None else {**state, RUN: fingerprint}
    write_text(temporary / STATE, json.dumps(complete, indent=1) + "\n")
    for path in temporary.rglob(f"*{SUFFIX}"):
        shutil.copymode(temporary / STATE, path)  # safetensors creates files with mode 0600
    files = {STATE: manifests.record(temporary / STATE), **records}
    form = manifests.SHARDED if any("/" in name for name in files) else manifests.FORMAT
    write_text(temporary / NAME, Manifest(format=form, name=folder.name, files=files).render())


def verify(folder: Path) -> None:
    """Raise CheckpointError unless every file agrees with the manifest and the checkpoint belongs to its run."""
    manifest = read_manifest(folder)
    for name, record in manifest.files.items():
        _check(folder, name, record)
    _refuse_foreign(folder, manifest)


def load(folder: Path) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Load the tensors of each stem and the state; every byte is verified."""
    manifest = read_manifest(folder)
    _refuse_foreign(folder, manifest)
    return {stem: _tensors(folder, stem, manifest) for stem in manifest.stems()}, read_state(folder, manifest)


def load_tensors(folder: Path, stem: str) -> Tensors:
    """Load the tensors of one stem, verified, without reading the others."""
    manifest = read_manifest(folder)
    _refuse_foreign(folder, manifest)
    return _tensors(folder, stem, manifest)


def load_weights(folder: Path, stem: str) -> Tensors:
    """As `load_tensors`; CheckpointError if a weight is not finite."""
    return _finite(folder, load_tensors(folder, stem))


def verify_usable(folder: Path) -> None:
    """As `verify`, and check that the weights are finite. Every file is read once."""
    manifest = read_manifest(folder)
    for name, record in manifest.files.items():
        if name.endswith(SUFFIX) and stem_of(name) in WEIGHTS:
            _finite(folder, _parse_file(folder, name, record)[0])
        else:
            _check(folder, name, record)
    _refuse_foreign(folder, manifest)


def shapes(folder: Path, stem: str) -> dict[str, tuple[int, ...]]:
    """Read the shape of every tensor from the header of the file, without loading or verifying the tensors."""
    parts, records = [], _records(folder, stem, read_manifest(folder))
    for name, record in records.items():
        path = folder / name
        with _named(path.parent):
            check_size(path, record.size)
        try:
            open_plain(path).close()  # safetensors does not report why it cannot open a file
            with safe_open(path, "pt") as file:
                stored = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
                parts.append((stored, offsets_of(file.metadata() or {})))
        except OSError as error:
            raise damaged(folder, f"{name} cannot be read: {reason_of(error)}") from error
        except (SafetensorError, ValueError) as error:
            raise damaged(folder, f"{name} is not a safetensors file: {error}") from error
    return _joined(folder, stem, records, lambda: join_shapes(parts))


def stems(folder: Path) -> list[str]:
    """The stems of the tensors of a checkpoint: "model", "optimizer", …"""
    return read_manifest(folder).stems()


def is_sharded(folder: Path) -> bool:
    """Whether the tensors are in parts, one file for each rank."""
    return read_manifest(folder).format == manifests.SHARDED


def aliases_of(folder: Path, stem: str) -> dict[str, str]:
    """The tied tensors of a stem: alias -> name of the stored tensor."""
    return _aliases(_records(folder, stem, read_manifest(folder)))


def load_state(folder: Path) -> dict[str, Any]:
    """Load the state, verified."""
    return read_state(folder, read_manifest(folder))


def verifies(folder: Path) -> bool:
    """Whether `verify` passes."""
    try:
        verify(folder)
    except CheckpointError:
        return False
    return True


def is_complete(folder: Path) -> bool:
    """Whether the manifest is valid and every file has its size; unlike `verify`, no content is read."""
    try:
        return all((folder / name).stat().st_size == file.size for name, file in read_manifest(folder).files.items())
    except (CheckpointError, OSError):
        return False


def belongs_to_run(folder: Path) -> bool:
    """Whether the checkpoint was written by the run whose folder it is in."""
    try:
        _refuse_foreign(folder, read_manifest(folder))
    except CheckpointError:
        return False
    return True


def clear_leftovers(checkpoints: Path) -> None:
    """Remove temporary folders of killed processes and complete interrupted replacements; the caller holds the run's lock."""
    entries = list_folder(checkpoints)
    clear_temporary(checkpoints)
    for path in (entry for entry in entries if entry.name.endswith(REPLACED)):
        current = path.with_name(path.name.removesuffix(REPLACED))
        if not current.exists():
            path.rename(current)
        elif verifies(current):
            remove(path)


def unshare(named: Mapping[str, torch.Tensor]) -> tuple[Tensors, dict[str, str]]:
    """Return the tensors to store, on the CPU and each with its own storage, and {alias: stored name} for tied ones."""
    stored: Tensors = {}
    aliases: dict[str, str] = {}
    names: dict[tuple[object, ...], str] = {}
    storages: set[int] = set()
    for name, tensor in named.items():
        view = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and view in names:
            aliases[name] = names[view]
            continue
        names[view] = name
        plain = tensor.detach().to("cpu").contiguous()
        storage = plain.untyped_storage()
        if storage.nbytes() != plain.nbytes or storage.data_ptr() in storages:
            plain = plain.clone()  # a view of a larger storage, or another view of the same one
        storages.add(plain.untyped_storage().data_ptr())
        stored[name] = plain
    return stored, aliases


def bytes_of(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def write_tensors(path: Path, stored: Tensors, aliases: dict[str, str]) -> FileRecord:
    assert manifests.PLAIN.fullmatch(path.name), f"{path.name!r} cannot be the name of a file"
    save_file(stored, path, metadata={"format": "pt"})
    return manifests.record(path, aliases)


def _publish(temporary: Path, folder: Path) -> None:
    """Rename the finished folder; an existing one is set aside until then, or kept as damaged."""
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


def require_space(folder: Path, size: int) -> None:
    """Raise CheckpointError if the disk has not enough space for a checkpoint of about this size."""
    place = folder.parent if folder.parent.exists() else folder.parent.parent  # before the first checkpoint: the run folder
    needed, free = math.ceil(SPARE * size), shutil.disk_usage(place).free
    if free < needed:
        raise CheckpointError(
            f"not enough disk space for checkpoint {folder}: it needs {needed:,} bytes ({SPARE} times its size), but "
            f"{free:,} are free; {_last_checkpoint(folder.parent)}",
            hint="free disk space, then run the same command again",
        )


def _last_checkpoint(checkpoints: Path) -> str:
    """What is left after a failed write; the folder itself may have become unreadable."""
    try:
        steps = [int(match[1]) for path in list_folder(checkpoints) if (match := manifests.STEP.fullmatch(path.name))]
    except CheckpointError:
        return "its other checkpoints cannot be listed"
    return f"the last checkpoint, step-{max(steps)}, is unchanged" if steps else "there is no earlier checkpoint"


def weights_are_finite(tensors: Mapping[str, Mapping[str, torch.Tensor]]) -> bool:
    return all(all_finite(tensors.get(stem, {}).values()) for stem in WEIGHTS)


def diverged(folder: Path) -> DivergedError:
    """The error for weights that must not be saved."""
    return DivergedError(
        f"training diverged: the weights of {folder.name} are not finite, so they were not saved; "
        f"{_last_checkpoint(folder.parent)}",
        hint="lower training.schedule.learning_rate, raise its warmup, or use precision bf16 or fp32",
    )


def _finite(folder: Path, weights: Tensors) -> Tensors:
    if not all_finite(weights.values()):
        raise CheckpointError(
            f"checkpoint {folder} has weights that are not finite: its training diverged",
            hint="choose another with --checkpoint, or train again with a lower training.schedule.learning_rate",
        )
    return weights


def _refuse_foreign(folder: Path, manifest: Manifest) -> None:
    run = folder.parent.parent
    if not exists(run / FACTS):
        return
    expected, fingerprint = fingerprint_of(run), read_state(folder, manifest).get(RUN)
    if fingerprint != expected:
        reason = "belongs to another run: it" if fingerprint else "has no fingerprint of the run: it"
        raise CheckpointError(
            f"checkpoint {folder} {reason} was not trained with the config, tokenizer and data of {run}",
            hint="keep it: move it to the folder of its own run; if that is this folder, restore run.json, config.toml and the "
            "tokenizers of the run from a backup",
        )


def _records(folder: Path, stem: str, manifest: Manifest) -> dict[str, FileRecord]:
    records = manifest.files_of(stem)
    if not records:
        available = ", ".join(manifest.stems()) or "none"
        raise CheckpointError(f"checkpoint {folder} has no tensors of {stem!r}; available: {available}")
    return records


def _tensors(folder: Path, stem: str, manifest: Manifest) -> Tensors:
    records = _records(folder, stem, manifest)
    parts = [_parse_file(folder, name, record) for name, record in records.items()]
    return _joined(folder, stem, records, lambda: join(parts))


def _parse_file(folder: Path, name: str, record: FileRecord) -> tuple[Tensors, Offsets]:
    """The tensors of a file, which may have any size, and their offsets."""
    with _named((folder / name).parent):
        content = read_checked(folder / name, record.size, record.sha256, limit=record.size)
    try:
        return parse(content)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise damaged(folder, f"{name} is not a safetensors file: {error}") from error


def _joined(
    folder: Path, stem: str, records: Mapping[str, FileRecord], join_parts: Callable[[], dict[str, Value]]
) -> dict[str, Value]:
    """The result of joining parts, under all names of tied tensors."""
    try:
        whole = join_parts()
        return whole | {alias: whole[name] for alias, name in _aliases(records).items()}
    except (KeyError, ValueError) as error:
        raise damaged(folder, f"the tensors of {stem!r} do not fit together: {error}") from error


def _aliases(records: Mapping[str, FileRecord]) -> dict[str, str]:
    return {alias: name for record in records.values() for alias, name in record.aliases.items()}


def _check(folder: Path, name: str, record: FileRecord) -> None:
    with _named((folder / name).parent):
        check_file(folder / name, record.size, record.sha256)


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Raise Damaged as a CheckpointError that names the checkpoint, or the folder of parts in it."""
    try:
        yield
    except Damaged as damage:
        raise damaged(folder, str(damage)) from damage
