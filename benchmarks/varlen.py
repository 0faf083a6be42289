"""Attention over flat tokens against attention over padded rows, forward and backward, on a GPU in bf16.

    python benchmarks/varlen.py --output FILE

padded     torch's fused attention as training calls it: no mask where nothing is padded, else a mask
by …       the same with one of its kernels, where that one takes the shapes
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


SHAPES = (Shape(3200, 32, 32, 8, 64), Shape(800, 32, 32, 8, 64), Shape(800, 32, 24, 8, 64), Shape(170, 24, 17, 4, 64))


class Case(NamedTuple):
    query: Tensor  # (rows, time, heads, size), as a projection gives it
    lengths: Tensor  # (rows,)

    @property
    def real(self) -> Tensor:
        """(rows, time)"""
        return torch.arange(self.query.shape[1], device=self.query.device) < self.lengths[:, None]


def make(shape: Shape, device: torch.device) -> Case:
    query = torch.randn(shape.rows, shape.time, shape.heads, shape.size, device=device, dtype=torch.bfloat16)
    steps = torch.linspace(shape.shortest, shape.time, shape.rows, device=device).round().int()
    return Case(query.requires_grad_(), steps)


def padded(case: Case) -> Callable[[], Tensor]:
    whole = bool(case.real.all())
    mask = None if whole else case.real[:, None, None, :]
    q = case.query.transpose(1, 2)
    return lambda: scaled_dot_product_attention(q, q, q, mask)


def flat(case: Case) -> Callable[[], Tensor]:
    from torch.nn.attention.varlen import varlen_attn

    tokens = case.query.detach()[case.real].requires_grad_()  # (tokens, heads, size)
    begins = torch.nn.functional.pad(case.lengths.cumsum(0), (1, 0)).int()
    longest = case.query.shape[1]

    def call() -> Tensor:
        found = varlen_attn(tokens, tokens, tokens, begins, begins, longest, longest)
        assert isinstance(found, Tensor)
        return found

    return call


def milliseconds(call: Callable[[], Tensor]) -> float:
    """Of a forward and a backward pass, on the GPU's own clock."""
    pull = torch.ones_like(call())
    times: list[float] = []
    for _ in range(BLOCKS):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        for _ in range(CALLS):
            call().backward(pull)  # type: ignore[no-untyped-call]
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / CALLS)
    return statistics.median(times)


def measure(shape: Shape, device: torch.device) -> dict[str, float | str]:
    case = make(shape, device)
    found: dict[str, float | str] = {"padded": milliseconds(padded(case))}
    for name, kernel in KERNELS.items():
        try:
            with sdpa_kernel(kernel):
                found[f"by {name}"] = milliseconds(padded(case))
        except RuntimeError as error:
            found[f"by {name}"] = str(error).splitlines()[0]
    found["flat"] = milliseconds(flat(case))
    return found


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
