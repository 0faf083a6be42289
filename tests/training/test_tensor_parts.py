"""Parts of tensors, as ranks store them, joined again."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save

from heedful.training.tensor_parts import OFFSETS, join, join_shapes, parse
from heedful.training.weights import shapes_of

WHOLE = {"a": torch.arange(15.0).view(5, 3), "b": torch.arange(2.0), "step": torch.tensor(7.0)}
CUTS = ((0, 2), (2, 4), (4, 6))


def file_of(tensors: dict[str, torch.Tensor], offsets: object) -> bytes:
    return save(tensors, metadata={OFFSETS: json.dumps(offsets)})


def files() -> list[bytes]:
    """Three ranks; the third has no row of b, and the first has all of step."""
    written = []
    for begin, end in CUTS:
        parts = {name: WHOLE[name][begin:end].clone() for name in ("a", "b")}
        offsets = {"a": [begin, 0], "b": [min(begin, 2)]}
        scalar = {"step": WHOLE["step"]} if begin == 0 else {}
        written.append(file_of(parts | scalar, {name: {"saved_offsets": offset} for name, offset in offsets.items()}))
    return written


def test_parts_in_any_order_of_the_files_are_the_whole_tensors() -> None:
    for order in (files(), files()[::-1]):
        parts = [parse(content) for content in order]
        whole = join(parts)
        assert whole.keys() == WHOLE.keys() and all(torch.equal(whole[name], WHOLE[name]) for name in WHOLE)
        assert join_shapes([(shapes_of(tensors), offsets) for tensors, offsets in parts]) == shapes_of(WHOLE)


def test_missing_repeated_and_different_parts_are_an_error() -> None:
    first, second, third = files()
    narrow = file_of({"a": torch.zeros(1, 2)}, {"a": {"saved_offsets": [4, 0]}})
    integers = file_of({"a": torch.zeros(1, 3, dtype=torch.int64)}, {"a": {"saved_offsets": [4, 0]}})
    scalar = file_of({"step": torch.tensor(8.0)}, {"step": {"saved_offsets": []}})
    for wrong in (
        [first, third],
        [second, third],
        [first, first, second],
        [first, second, narrow],
        [first, second, third, scalar],
    ):
        with pytest.raises(ValueError, match="are not its rows"):
            join([parse(content) for content in wrong])
    with pytest.raises(ValueError, match="the parts of a have different types"):
        join([parse(content) for content in (first, second, integers)])


@pytest.mark.parametrize(
    "offsets", [[], 1, {"a": 1}, {"a": {}}, {"a": {"saved_offsets": 3}}, {"a": {"saved_offsets": [0.5, 0]}},
                {"a": {"saved_offsets": ["0", 0]}}, {"a": {"saved_offsets": [0, 1]}}]
)  # fmt: skip
def test_offsets_that_are_not_rows_are_an_error(offsets: object) -> None:
    with pytest.raises(ValueError, match=OFFSETS):
        parse(file_of({"a": torch.zeros(2, 2)}, offsets))
