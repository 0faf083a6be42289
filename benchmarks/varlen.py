"""Attention over flat tokens against attention over padded rows, forward and backward, on a GPU in bf16.

    python benchmarks/varlen.py --output FILE

padded     torch's fused attention as in training: without a mask if there is no padding, else with a mask
by …       the same with one of its kernels, if it supports the shapes
whole      our kernel, one program for each row and head (heedful/nn/short_sequence_attention.py)
flat       the tokens of all rows concatenated without padding, and the offset of each row (torch.nn.attention.varlen)

Rows are sentences; the flat kernel does not process padding.
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
from peers.machine import machine_info
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
    shortest: int  # lengths are evenly spaced from here to `time`
    heads: int
    size: int  # of a head

    def __str__(self) -> str:
        return f"{self.rows} x {self.shortest} to {self.time}, {self.heads} heads of {self.size}"


SHAPES = (
    Shape(3200, 32, 32, 8, 64), Shape(800, 32, 32, 8, 64), Shape(800, 32, 24, 8, 64), Shape(170, 24, 17, 4, 64),
    Shape(128, 64, 40, 8, 64), Shape(86, 96, 70, 8, 64),
)  # fmt: skip


class Case(NamedTuple):
    inputs: tuple[Tensor, Tensor, Tensor]  # query, key, value, each (rows, time, heads, size), as returned by a projection
    lengths: Tensor  # (rows,)

    @property
    def real(self) -> Tensor:
        """(rows, time)"""
        return torch.arange(self.inputs[0].shape[1], device=self.lengths.device) < self.lengths[:, None]

    @property
    def mask(self) -> Tensor | None:
        """(rows, 1, 1, time), or None without padding"""
        return None if bool(self.real.all()) else self.real[:, None, None, :]


class Method(NamedTuple):
    """A function and the inputs whose gradients are computed."""

    call: Callable[[], Tensor]
    inputs: Sequence[Tensor]


def make(shape: Shape, device: torch.device) -> Case:
    size = shape.rows, shape.time, shape.heads, shape.size
    query, key, value = (torch.randn(size, device=device, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    steps = torch.linspace(shape.shortest, shape.time, shape.rows, device=device).round().int()
    return Case((query, key, value), steps)


def by_head(inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """(rows, heads, time, size). It must be part of a captured graph, since its backward pass is."""
    query, key, value = (one.transpose(1, 2) for one in inputs)
    return query, key, value


def padded(case: Case) -> Method:
    mask = case.mask
    return Method(lambda: scaled_dot_product_attention(*by_head(case.inputs), mask), case.inputs)


def whole(case: Case) -> Method:
    mask = case.mask
    assert fits_short_sequences(*by_head(case.inputs)), "the kernel supports only shorter sequences"
    return Method(lambda: short_sequence_attention(*by_head(case.inputs), mask, False), case.inputs)


def flat(case: Case) -> Method:
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = (one.detach()[case.real].requires_grad_() for one in case.inputs)  # (tokens, heads, size)
    begins = torch.nn.functional.pad(case.lengths.cumsum(0), (1, 0)).int()
    longest = case.inputs[0].shape[1]

    def call() -> Tensor:
        output = varlen_attn(query, key, value, begins, begins, longest, longest)
        assert isinstance(output, Tensor)
        return output

    return Method(call, (query, key, value))


def milliseconds(method: Method) -> float:
    """Milliseconds of a forward and backward pass by CUDA events, in a CUDA graph, so that kernel launches are not included."""
    gradient = torch.ones_like(method.call())

    def both() -> None:
        torch.autograd.grad(method.call(), method.inputs, gradient)

    side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side_stream):
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
    results = {
        "padded": measure_or_error(padded, case),
        "whole": measure_or_error(whole, case),
        "flat": measure_or_error(flat, case),
    }
    for name, kernel in KERNELS.items():
        with sdpa_kernel(kernel):
            results[f"by {name}"] = measure_or_error(padded, case)
    return results


def measure_or_error(build: Callable[[Case], Method], case: Case) -> float | str:
    """Milliseconds, or the error message."""
    try:
        return milliseconds(build(case))
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("flat attention needs a GPU, but torch finds none")
    rows: list[dict[str, Any]] = []
    for shape in SHAPES:
        rows.append({"shape": str(shape)} | measure(shape, torch.device("cuda")))
        print(rows[-1], flush=True)
    args.output.write_text(json.dumps({"milliseconds": rows, **machine_info()}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
