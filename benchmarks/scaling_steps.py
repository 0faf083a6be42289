"""What a training step costs against the length of the sequences, the size of the model and the rows of the batch.

A step is forward and backward; its time is the median of several. Memory is what a step takes at its peak beyond the weights
and the input: on a GPU as torch's allocator counts it, on a CPU as the kernel counts the process's resident memory (less than
a megabyte says little there). With one CPU thread, time is that of the processor, which a busy machine hardly stretches.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import memory
import torch
from torch import Tensor, nn

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.losses import cross_entropy
from heedful.nn.sequence_layers import SEQUENCE_LAYERS, LayerSize, SequenceLayer

Step = Callable[[], None]
Point = dict[str, float]


class Shapes(NamedTuple):
    """What is measured; a CPU gets less of the same."""

    lengths: tuple[int, ...]
    layer: LayerSize
    layer_rows: int
    models: dict[str, TransformerConfig]
    vocab: int
    rows: int  # while the model grows
    time: int  # of rows for a whole model
    batch_model: str
    batches: tuple[int, ...]  # rows, while the batch grows


def powers(first: int, last: int) -> tuple[int, ...]:
    return tuple(2**power for power in range(int(math.log2(first)), int(math.log2(last)) + 1))


def transformer(dim: int, layers: int) -> TransformerConfig:
    return TransformerConfig(dim=dim, layers=layers, heads=max(dim // 64, 2), feed_forward=4 * dim, dropout=0.0)


MODELS = {
    "d64": transformer(64, 2),
    "d128": transformer(128, 3),
    "d256": transformer(256, 3),
    "base": transformer(512, 6),
    "big": transformer(1024, 6),
}
SHAPES = {
    "cpu": Shapes(
        lengths=powers(32, 8192),
        layer=LayerSize(dim=256, heads=4, window=64, causal=True),
        layer_rows=1,
        models=MODELS,
        vocab=8000,
        rows=8,
        time=32,
        batch_model="d128",
        batches=powers(1, 256),
    ),
    "cuda": Shapes(
        lengths=powers(32, 8192),
        layer=LayerSize(dim=512, heads=8, window=64, causal=True),
        layer_rows=8,
        models=MODELS,
        vocab=8000,
        rows=128,
        time=64,
        batch_model="base",
        batches=powers(1, 256),
    ),
    "quick": Shapes(
        lengths=powers(8, 32),
        layer=LayerSize(dim=16, heads=2, window=8, causal=True),
        layer_rows=1,
        models={"d8": transformer(8, 1), "d16": transformer(16, 1)},
        vocab=50,
        rows=2,
        time=4,
        batch_model="d8",
        batches=powers(1, 4),
    ),
}


class Meter:
    """Time and memory of steps on one device, and how much is too much."""

    def __init__(self, device: torch.device, limit_seconds: float, limit_bytes: float, repetitions: int) -> None:
        self.device = device
        self.precision = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.limit_seconds, self.limit_bytes, self.repetitions = limit_seconds, limit_bytes, repetitions
        alone = device.type == "cpu" and torch.get_num_threads() == 1
        self.clock = time.process_time if alone else time.perf_counter

    def seconds(self, step: Step) -> float:
        self.wait()
        began = self.clock()
        step()
        self.wait()
        return self.clock() - began

    def bytes(self, step: Step) -> int:
        if self.device.type == "cpu":
            before = memory.fresh()
            step()
            return memory.peak() - before
        torch.cuda.reset_peak_memory_stats(self.device)
        before = torch.cuda.memory_allocated(self.device)
        step()
        return torch.cuda.max_memory_allocated(self.device) - before

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def grow(self, work: Iterable[tuple[int, Callable[[], Step]]]) -> dict[str, Any]:
        """A point for each amount of work, until one is too much: the points, their exponents, and why there are no more."""
        points: list[Point] = []
        stopped = None
        for value, make in work:
            try:
                step = make()
                first = self.seconds(step)  # the warm-up, unless it is already too long
                times = [first] if first > self.limit_seconds else [self.seconds(step) for _ in range(self.repetitions)]
                taken = self.bytes(step)
            except torch.OutOfMemoryError:
                stopped = f"no memory left at {value:,}"
                break
            points.append({"value": value, "seconds": statistics.median(times), "bytes": taken})
            print(f"{value:>14,} {points[-1]['seconds'] * 1e3:>10.2f} ms {taken / 1e6:>9.1f} MB", file=sys.stderr)
            if points[-1]["seconds"] > self.limit_seconds:
                stopped = f"a step took more than {self.limit_seconds:g} s"
                break
            if taken > self.limit_bytes:
                stopped = f"a step took more than {self.limit_bytes / 1e9:g} GB"
                break
        exponent = {quantity: exponent_of(points, quantity) for quantity in ("seconds", "bytes")}
        return {"points": points, "stopped": stopped, "exponent": exponent}


def exponent_of(points: list[Point], quantity: str, last: int = 3) -> float | None:
    """p of `quantity ~ value^p`: the slope through the last points by least squares, both axes logarithmic."""
    chosen = [(math.log(point["value"]), math.log(point[quantity])) for point in points[-last:] if point[quantity] > 0]
    if len(chosen) < 2:
        return None
    middle_x, middle_y = (statistics.fmean(axis) for axis in zip(*chosen, strict=True))
    rise = sum((x - middle_x) * (y - middle_y) for x, y in chosen)
    return round(rise / sum((x - middle_x) ** 2 for x, _ in chosen), 2)


def against_length(shapes: Shapes, meter: Meter) -> dict[str, Any]:
    """Every kind of layer, causal."""
    size = shapes.layer
    shorter, longer = shapes.lengths[-2:]
    kinds = {}
    for name, kind in SEQUENCE_LAYERS.items():
        print(f"length: {name}", file=sys.stderr)
        layer = kind(size).to(meter.device, meter.precision)
        found = meter.grow((length, partial(layer_step, layer, shapes.layer_rows, length, meter)) for length in shapes.lengths)
        growth = kind.operations(size, longer) / kind.operations(size, shorter)
        kinds[name] = {"cost": kind.cost, "expected_exponent": round(math.log(growth, longer / shorter), 2), **found}
    return {"layer": size.model_dump(), "rows": shapes.layer_rows, "kinds": kinds}


def layer_step(layer: SequenceLayer, rows: int, length: int, meter: Meter) -> Step:
    """As in the middle of a network: the gradient comes from above and goes on below."""
    x = torch.randn(rows, length, layer.size.dim, device=meter.device, dtype=meter.precision, requires_grad=True)
    gradient = torch.randn_like(x)

    def step() -> None:
        layer(x).backward(gradient)  # type: ignore[no-untyped-call]
        x.grad = None
        layer.zero_grad(set_to_none=True)

    return step


def against_size(shapes: Shapes, meter: Meter) -> dict[str, Any]:
    """The Transformer, growing in width and depth, over the same tokens."""
    print("size: weights outside the embeddings", file=sys.stderr)
    found = meter.grow(
        (weights_of(config, shapes.vocab), partial(model_step, config, shapes.rows, shapes, meter))
        for config in shapes.models.values()
    )
    for point in found["points"]:
        point["tokens_per_second"] = round(shapes.rows * shapes.time / point["seconds"], 1)
    names = [*shapes.models][: len(found["points"])]
    return {"names": names, "rows": shapes.rows, "time": shapes.time, "vocab": shapes.vocab, **found}


def against_batch(shapes: Shapes, meter: Meter) -> dict[str, Any]:
    """One Transformer, more and more rows."""
    print(f"batch: rows of {shapes.time} tokens", file=sys.stderr)
    config = shapes.models[shapes.batch_model]
    found = meter.grow((rows, partial(model_step, config, rows, shapes, meter)) for rows in shapes.batches)
    for point in found["points"]:
        point["tokens_per_second"] = round(point["value"] * shapes.time / point["seconds"], 1)
    return {"model": shapes.batch_model, "time": shapes.time, "vocab": shapes.vocab, **found}


def weights_of(config: TransformerConfig, vocab: int) -> int:
    """Embeddings are left out: they grow with the vocabulary and cost nothing but the last product."""
    with torch.device("meta"):
        model = Transformer(config, vocab, vocab)
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in tables)


def model_step(config: TransformerConfig, rows: int, shapes: Shapes, meter: Meter) -> Step:
    model = Transformer(config, shapes.vocab, shapes.vocab).to(meter.device)
    source, target = (torch.randint(4, shapes.vocab, (rows, shapes.time), device=meter.device) for _ in range(2))

    def loss() -> Tensor:
        with torch.autocast(meter.device.type, meter.precision, enabled=meter.precision != torch.float32):
            hidden = model.step(target, model.start(source, None, room=0)).hidden
            found, _ = cross_entropy(model.project(hidden.flatten(0, 1)), target.flatten(), padding=0, smoothing=0.1)
        return found.total / found.count

    def step() -> None:
        loss().backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)

    return step


PARTS: dict[str, Callable[[Shapes, Meter], dict[str, Any]]] = {
    "length": against_length,
    "size": against_size,
    "batch": against_batch,
}
