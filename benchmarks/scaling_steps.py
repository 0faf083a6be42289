"""What a training step costs against the length of the sequences, the size of the model and the rows of the batch.

A step is forward and backward; how it is measured: scaling_meter.py.
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
        (weights_of(config, shapes.vocab), partial(model_step, config, shapes.vocab, (shapes.rows, shapes.time), meter))
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
    found = meter.grow((rows, partial(model_step, config, shapes.vocab, (rows, shapes.time), meter)) for rows in shapes.batches)
    for point in found["points"]:
        point["tokens_per_second"] = round(point["value"] * shapes.time / point["seconds"], 1)
    return {"model": shapes.batch_model, "time": shapes.time, "vocab": shapes.vocab, **found}


def weights_of(config: TransformerConfig, vocab: int) -> int:
    """Embeddings are left out: they grow with the vocabulary and cost nothing but the last product."""
    with torch.device("meta"):
        model = Transformer(config, vocab, vocab)
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in tables)


def model_step(config: ModelConfig, vocab: int, shape: tuple[int, int], meter: Meter) -> Step:
    """Of a whole model; shape: (rows, tokens of a row) on both sides."""
    model = MODELS[config.family](config, vocab, vocab).to(meter.device)
    source, target = (torch.randint(4, vocab, shape, device=meter.device) for _ in range(2))

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
