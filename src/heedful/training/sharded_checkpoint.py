"""Checkpoints of a sharded model, to which every rank writes its part of each tensor (torch.distributed.checkpoint).

    rank 0       creates the temporary folder and sends its name
    every rank   writes and flushes its files, and sends their sizes and SHA-256
    rank 0       writes the state, then the manifest, and renames the folder (checkpoint.py)

If any rank is killed at any instant, every folder named step-N verifies: nothing is renamed before all files are on the disk.
The files are safetensors with offsets in their headers, so nothing is pickled; any number of ranks can read the parts, and one
process can join them (tensor_parts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from heedful.errors import RankLost
from heedful.training import checkpoint
from heedful.training import manifest as manifests
from heedful.training.async_save import TensorsByStem
from heedful.training.manifest import FileRecord, damaged
from heedful.training.ranks import Group, lost_ranks
from heedful.training.sharding import Shards

Value = TypeVar("Value")


def save(checkpoints: Path, step: int, tensors: TensorsByStem, state: Mapping[str, Any], shards: Shards) -> None:
    """Write checkpoints/step-N, called by every rank with its part of each tensor."""
    group, folder = shards.group, checkpoints / f"step-{step}"
    own = {stem: checkpoint.unshare(named) for stem, named in tensors.items()}
    gathered = gather(group, facts_of(own, checkpoint.weights_are_finite(tensors)))
    finite, sizes, (tied, *_), stems = zip(*gathered, strict=True)  # tied: as rank 0 detects them; parts of others may be empty
    if not all(finite):
        raise checkpoint.diverged(folder)
    used = set().union(*stems)  # not the optimizer if it has no state, such as plain SGD
    parts = {
        stem: {name: part for name, part in stored.items() if name not in tied[stem]}
        for stem, (stored, _) in own.items()
        if stem in used
    }
    if group.first:
        with checkpoint.new_checkpoint(folder, sum(sizes)) as temporary:
            share(group, str(temporary))
            records = write_parts(temporary, folder, parts, shards)
            for stem in parts:
                first = min(name for name in records if name.startswith(f"{stem}/"))
                records[first] = records[first].model_copy(update={"aliases": tied[stem]})
            for name in (f"{stem}{manifests.SUFFIX}" for stem in own if stem not in used):
                records[name] = checkpoint.write_tensors(temporary / name, {}, {})
            checkpoint.seal_checkpoint(temporary, folder, state, records)
    else:
        write_parts(Path(share(group, "")), folder, parts, shards)


def facts_of(own: Mapping[str, tuple[checkpoint.Tensors, dict[str, str]]], finite: bool) -> tuple[Any, ...]:
    """What all ranks know of a rank's part: whether it is finite, its bytes, its tied tensors, and the stems that it has."""
    size = sum(checkpoint.bytes_of(stored) for stored, _ in own.values())
    tied = {stem: aliases for stem, (_, aliases) in own.items()}
    return finite, size, tied, {stem for stem, (stored, _) in own.items() if stored}


def write_parts(temporary: Path, folder: Path, parts: TensorsByStem, shards: Shards) -> dict[str, FileRecord]:
    """Write this rank's part; return the records of the files of all ranks."""
    from torch.distributed import checkpoint as distributed_checkpoint  # importing it takes a while

    group = shards.group
    for stem, named in parts.items():
        writer = distributed_checkpoint.HuggingFaceStorageWriter(str(temporary / stem), save_distributed=True)
        placed = {name: as_part(shards, name, part) for name, part in named.items()}
        try:
            with lost_ranks():
                distributed_checkpoint.save(placed, storage_writer=writer, process_group=group.saving)
        except distributed_checkpoint.CheckpointException as error:
            raise failure_of(error, group, folder) from error
    try:
        files = sorted(temporary.glob(f"*/shard-{group.rank + 1:05d}-*"))
        records = {f"{path.parent.name}/{path.name}": manifests.record(path) for path in files}
    except OSError as error:
        raise checkpoint.write_failed(folder, error) from error
    return {name: record for each in gather(group, records) for name, record in sorted(each.items())}


def load_parts(folder: Path, stem: str, shards: Shards) -> dict[str, Tensor]:
    """This rank's part of the tensors of a stem that any number of ranks have written; rank 0 has verified the files."""
    from torch.distributed import checkpoint as distributed_checkpoint

    reader = distributed_checkpoint.HuggingFaceStorageReader(str(folder / stem))
    try:
        described: Mapping[str, Any] = reader.read_metadata().state_dict_metadata
        parts = {}
        for name, about in described.items():
            whole = torch.empty(about.size, dtype=about.properties.dtype, device="meta")
            parts[name] = torch.empty_like(shards.cut_one(name, whole), device="cpu")
        placed = {name: as_part(shards, name, part) for name, part in parts.items()}
        with lost_ranks():
            distributed_checkpoint.load(placed, storage_reader=reader, process_group=shards.group.saving)
    except (distributed_checkpoint.CheckpointException, OSError) as error:
        raise damaged(folder, f"the tensors of {stem!r} cannot be read: {error}") from error
    return parts | {alias: parts[name] for alias, name in checkpoint.aliases_of(folder, stem).items()}


def join_parts(folder: Path) -> None:
    """Write a checkpoint again, with whole tensors; a reader sees the old or the new one."""
    if checkpoint.is_sharded(folder):
        checkpoint.save_named(folder.parent, folder.name, *checkpoint.load(folder))


def as_part(shards: Shards, name: str, part: Tensor) -> Tensor:
    """A part with its place in the whole tensor, as torch.distributed.checkpoint expects it; other tensors unchanged."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    shape = shards.whole_shape(name, part)
    if shape is None:
        return part
    mesh = DeviceMesh.from_group(shards.group.saving, "cpu")
    stride = torch.empty(shape, device="meta").stride()
    placed: Tensor = DTensor.from_local(part, mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)
    return placed


def failure_of(error: Any, group: Group, folder: Path) -> Exception:
    """The error of this rank, or RankLost if another one has failed and reports it."""
    own = error.failures.get(group.rank)
    if own is not None:
        return checkpoint.write_failed(folder, own[0])
    ranks = ", ".join(map(str, sorted(error.failures)))
    return RankLost(f"rank {ranks} cannot write its part of {folder}", hint="its message names the cause")


def gather(group: Group, value: Value) -> list[Value]:
    """The values of all ranks, on each."""
    values: list[Any] = [None] * group.size
    with lost_ranks():
        distributed.all_gather_object(values, value, group=group.saving)
    return values


def share(group: Group, value: str) -> str:
    """The value of rank 0, on each rank."""
    holder = [value]
    with lost_ranks():
        distributed.broadcast_object_list(holder, 0, group=group.saving, device=torch.device("cpu"))
    return holder[0]
