"""Tensors that several ranks have stored in parts, in the form of torch.distributed.checkpoint, joined again.

    file of rank r     rows [offset_r, offset_r + n_r) of every tensor
    whole tensor       all parts, one after another

The offsets are in the header of each safetensors file, as JSON; a file without them has whole tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from safetensors.torch import load as parse_tensors
from torch import Tensor

from heedful.training.weights import shapes_of

OFFSETS = "DCP_SHARDING_INFO"  # key in the header: {name: {"saved_offsets": [row, 0, …]}}

Shape = tuple[int, ...]
Offsets = dict[str, int]  # of each tensor: its first row; empty if the file has whole tensors
Part = TypeVar("Part")


def parse(content: bytes) -> tuple[dict[str, Tensor], Offsets]:
    """The tensors of a safetensors file, and their offsets."""
    tensors = parse_tensors(content)  # refuses an invalid header
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return tensors, offsets_of(header.get("__metadata__", {}))


def offsets_of(metadata: Mapping[str, str]) -> Offsets:
    """The offsets in the metadata of a safetensors file; ValueError if they are not rows of each tensor."""
    if OFFSETS not in metadata:
        return {}
    try:
        saved = {name: about["saved_offsets"] for name, about in json.loads(metadata[OFFSETS]).items()}
        offsets = {name: offset[0] if offset else 0 for name, offset in saved.items()}
        valid = all(type(row) is int for row in offsets.values()) and not any(any(offset[1:]) for offset in saved.values())
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{OFFSETS} is invalid") from error
    if not valid:
        raise ValueError(f"{OFFSETS} has an offset that is not a row")
    return offsets


def join(parts: Sequence[tuple[Mapping[str, Tensor], Offsets]]) -> dict[str, Tensor]:
    """The whole tensors; ValueError unless the parts are all of their rows."""
    join_shapes([(shapes_of(tensors), offsets) for tensors, offsets in parts])
    whole = {}
    for name, placed in in_order(parts).items():
        if len({tensor.dtype for _, tensor in placed}) > 1:
            raise ValueError(f"the parts of {name} have different types")
        whole[name] = placed[0][1] if len(placed) == 1 else torch.cat([tensor for _, tensor in placed])
    return whole


def join_shapes(parts: Sequence[tuple[Mapping[str, Shape], Offsets]]) -> dict[str, Shape]:
    """The shapes of the whole tensors, from those of the parts; ValueError as in `join`."""
    whole: dict[str, Shape] = {}
    for name, placed in in_order(parts).items():
        rows, others = 0, {shape[1:] for _, shape in placed}
        for offset, shape in placed:
            if offset != rows or len(others) > 1 or (not shape and len(placed) > 1):
                raise ValueError(f"the parts of {name} are not its rows")
            rows += shape[0] if shape else 0
        first = placed[0][1]
        whole[name] = (rows, *first[1:]) if first else ()
    return whole


def in_order(parts: Sequence[tuple[Mapping[str, Part], Offsets]]) -> dict[str, list[tuple[int, Part]]]:
    """The offsets and parts of each tensor, in the order of its rows."""
    found: dict[str, list[tuple[int, Part]]] = {}
    for named, offsets in parts:
        for name, part in named.items():
            found.setdefault(name, []).append((offsets.get(name, 0), part))
    return {name: sorted(placed, key=lambda one: one[0]) for name, placed in found.items()}
