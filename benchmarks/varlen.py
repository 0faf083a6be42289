"""Attention over flat tokens against attention over padded rows, forward and backward, on a GPU in bf16.

    python benchmarks/varlen.py --output FILE

padded     torch's fused attention as training calls it: no mask where nothing is padded, else a mask
by …       the same with one of its kernels, where that one takes the shapes
whole      our kernel, one program for each row and head (heedful/nn/whole_attention.py)
flat       the tokens of all rows behind each other without padding, and where each row begins (torch.nn.attention.varlen)

Rows are sentences: what is padded is a share of the tokens that the flat kernel never sees.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peers.machine import about_here
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from heedful.nn.short_sequence_attention import fits_short_sequences, short_sequence_attention

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
CALLS, BLOCKS = 10, 7


class Shape(NamedTuple):
    rows: int
    time: int
    shortest: int  # lengths are even from here to `time`
    heads: int
    size: int  # of a head

    def __str__(self) -> str:
        return f"{self.rows} x {self.shortest} to {self.time}, {self.heads} heads of {self.size}"


SHAPES = (
    Shape(3200, 32, 32, 8, 64), Shape(800, 32, 32, 8, 64), Shape(800, 32, 24, 8, 64), Shape(170, 24, 17, 4, 64),
    Shape(128, 64, 40, 8, 64), Shape(86, 96, 70, 8, 64),
)  # fmt: skip


class Case(NamedTuple):
    inputs: tuple[Tensor, Tensor, Tensor]  # query, key, value, each (rows, time, heads, size), as a projection gives it
    lengths: Tensor  # (rows,)

    @property
    def real(self) -> Tensor:
        """(rows, time)"""
        return torch.arange(self.inputs[0].shape[1], device=self.lengths.device) < self.lengths[:, None]

    @property
    def mask(self) -> Tensor | None:
        """(rows, 1, 1, time), if anything is padded"""
        return None if bool(self.real.all()) else self.real[:, None, None, :]


class Way(NamedTuple):
    """A function of its inputs, whose gradients are asked for."""

    call: Callable[[], Tensor]
    inputs: Sequence[Tensor]


def make(shape: Shape, device: torch.device) -> Case:
    size = shape.rows, shape.time, shape.heads, shape.size
    query, key, value = (torch.randn(size, device=device, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    steps = torch.linspace(shape.shortest, shape.time, shape.rows, device=device).round().int()
    return Case((query, key, value), steps)


def by_head(inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """(rows, heads, time, size). Where a graph is captured, this too must be a part of it: its backward pass is."""
    query, key, value = (one.transpose(1, 2) for one in inputs)
    return query, key, value


def padded(case: Case) -> Way:
    mask = case.mask
    return Way(lambda: scaled_dot_product_attention(*by_head(case.inputs), mask), case.inputs)


def whole(case: Case) -> Way:
    mask = case.mask
    assert fits_short_sequences(*by_head(case.inputs)), "the kernel is for shorter sequences"
    return Way(lambda: short_sequence_attention(*by_head(case.inputs), mask, False), case.inputs)


def flat(case: Case) -> Way:
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = (one.detach()[case.real].requires_grad_() for one in case.inputs)  # (tokens, heads, size)
    begins = torch.nn.functional.pad(case.lengths.cumsum(0), (1, 0)).int()
    longest = case.inputs[0].shape[1]

    def call() -> Tensor:
        found = varlen_attn(query, key, value, begins, begins, longest, longest)
        assert isinstance(found, Tensor)
        return found

    return Way(call, (query, key, value))


def milliseconds(way: Way) -> float:
    """Of a forward and a backward pass on the GPU's own clock, captured, so that starting kernels from Python is no part."""
    pull = torch.ones_like(way.call())

    def both() -> None:
        torch.autograd.grad(way.call(), way.inputs, pull)

    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(aside):
        both()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            both()
    times: list[float] = []
    for _ in range(BLOCKS):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / CALLS)
    return statistics.median(times)


def measure(shape: Shape, device: torch.device) -> dict[str, float | str]:
    case = make(shape, device)
    found = {"padded": tried(padded, case), "whole": tried(whole, case), "flat": tried(flat, case)}
    for name, kernel in KERNELS.items():
        with sdpa_kernel(kernel):
            found[f"by {name}"] = tried(padded, case)
    return found


def tried(way: Callable[[Case], Way], case: Case) -> float | str:
    """Milliseconds, or why there are none."""
    try:
        return milliseconds(way(case))
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("flat attention needs a GPU, but torch sees none")
    rows: list[dict[str, Any]] = []
    for shape in SHAPES:
        rows.append({"shape": str(shape)} | measure(shape, torch.device("cuda")))
        print(rows[-1], flush=True)
    given.output.write_text(json.dumps({"milliseconds": rows, **about_here()}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
