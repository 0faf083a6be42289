"""The cost of a training step against sequence length, model size and batch size.

A step is a forward and a backward pass, measured by scaling_meter.py.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from scaling_meter import Meter, Step
from torch import Tensor, nn

from heedful.models import MODELS, ModelConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.losses import cross_entropy
from heedful.nn.sequence_layers import SEQUENCE_LAYERS, LayerSize, SequenceLayer


class Shapes(NamedTuple):
    """The measured shapes; smaller on a CPU."""

    lengths: tuple[int, ...]
    layer: LayerSize
    layer_rows: int
    models: dict[str, TransformerConfig]
    vocab: int
    rows: int  # in the part `size`
    time: int  # tokens per row of a model
    batch_model: str
    batches: tuple[int, ...]  # rows, in the part `batch`


def powers(first: int, last: int) -> tuple[int, ...]:
    return tuple(2**power for power in range(int(math.log2(first)), int(math.log2(last)) + 1))


def transformer(dim: int, layers: int) -> TransformerConfig:
    return TransformerConfig(dim=dim, layers=layers, heads=max(dim // 64, 2), feed_forward=4 * dim, dropout=0.0)


SIZES = {
    "d64": transformer(64, 2),
    "d128": transformer(128, 3),
    "d256": transformer(256, 3),
    "base": transformer(512, 6),
    "big": transformer(1024, 6),
}
CPU = Shapes(
    lengths=powers(32, 8192),
    layer=LayerSize(dim=256, heads=4, window=64, causal=True),
    layer_rows=1,
    models=SIZES,
    vocab=8000,
    rows=8,
    time=32,
    batch_model="d128",
    batches=powers(1, 256),
)
GPU = CPU._replace(
    layer=LayerSize(dim=512, heads=8, window=64, causal=True), layer_rows=8, rows=128, time=64, batch_model="base"
)
QUICK = Shapes(
    lengths=powers(8, 32),
    layer=LayerSize(dim=16, heads=2, window=8, causal=True),
    layer_rows=1,
    models={"d8": transformer(8, 1), "d16": transformer(16, 1)},
    vocab=50,
    rows=2,
    time=4,
    batch_model="d8",
    batches=powers(1, 4),
)
SHAPES = {"cpu": CPU, "cuda": GPU, "quick": QUICK}


def against_length(shapes: Shapes, meter: Meter) -> dict[str, Any]:
    """All kinds of causal layers."""
    size = shapes.layer
    shorter, longer = shapes.lengths[-2:]
    kinds = {}
    for name, kind in SEQUENCE_LAYERS.items():
        print(f"length: {name}", file=sys.stderr)
        layer = kind(size).to(meter.device, meter.precision)
        results = meter.grow(
            (length, partial(layer_step, layer, shapes.layer_rows, length, meter)) for length in shapes.lengths
        )
        growth = kind.operations(size, longer) / kind.operations(size, shorter)
        kinds[name] = {"cost": kind.cost, "expected_exponent": round(math.log(growth, longer / shorter), 2), **results}
    return {"layer": size.model_dump(), "rows": shapes.layer_rows, "kinds": kinds}


def layer_step(layer: SequenceLayer, rows: int, length: int, meter: Meter) -> Step:
    """A step of an inner layer: it receives a gradient and computes that of its input."""
    x = torch.randn(rows, length, layer.size.dim, device=meter.device, dtype=meter.precision, requires_grad=True)
    gradient = torch.randn_like(x)

    def step() -> None:
        layer(x).backward(gradient)  # type: ignore[no-untyped-call]
        x.grad = None
        layer.zero_grad(set_to_none=True)

    return step


def against_size(shapes: Shapes, meter: Meter) -> dict[str, Any]:
    """Transformers of growing width and depth with the same tokens."""
    print("size: weights outside the embeddings", file=sys.stderr)
    results = meter.grow(
        (weights_of(config, shapes.vocab), partial(model_step, config, shapes.vocab, (shapes.rows, shapes.time), meter))
        for config in shapes.models.values()
    )
    for point in results["points"]:
        point["tokens_per_second"] = round(shapes.rows * shapes.time / point["seconds"], 1)
    names = [*shapes.models][: len(results["points"])]
    return {"names": names, "rows": shapes.rows, "time": shapes.time, "vocab": shapes.vocab, **results}


def against_batch(shapes: Shapes, meter: Meter) -> dict[str, Any]:
    """One Transformer with a growing number of rows."""
    print(f"batch: rows of {shapes.time} tokens", file=sys.stderr)
    config = shapes.models[shapes.batch_model]
    results = meter.grow(
        (rows, partial(model_step, config, shapes.vocab, (rows, shapes.time), meter)) for rows in shapes.batches
    )
    for point in results["points"]:
        point["tokens_per_second"] = round(point["value"] * shapes.time / point["seconds"], 1)
    return {"model": shapes.batch_model, "time": shapes.time, "vocab": shapes.vocab, **results}


def weights_of(config: TransformerConfig, vocab: int) -> int:
    """Parameters without embeddings, which cost only the output projection."""
    with torch.device("meta"):
        model = Transformer(config, vocab, vocab)
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in tables)


def model_step(config: ModelConfig, vocab: int, shape: tuple[int, int], meter: Meter) -> Step:
    """A step of a complete model; shape: (rows, tokens per row) on both sides."""
    model = MODELS[config.family](config, vocab, vocab).to(meter.device)
    source, target = (torch.randint(4, vocab, shape, device=meter.device) for _ in range(2))

    def loss() -> Tensor:
        with torch.autocast(meter.device.type, meter.precision, enabled=meter.precision != torch.float32):
            hidden = model.step(target, model.start(source, None, room=0)).hidden
            summed, _ = cross_entropy(model.project(hidden.flatten(0, 1)), target.flatten(), padding=0, smoothing=0.1)
        return summed.total / summed.count

    def step() -> None:
        loss().backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)

    return step


PARTS: dict[str, Callable[[Shapes, Meter], dict[str, Any]]] = {
    "length": against_length,
    "size": against_size,
    "batch": against_batch,
}
