"""Training throughput of a Vision Transformer on a GPU compared with Hugging Face: ViT-B/16, 224 pixels, batch 256, bf16.

    python benchmarks/vision_speed.py

Ours is the update of a run without options: `Trainer.update` with CUDA graphs and bf16; and the same with training.compile.
Its batches are prepared in the background and copied to the GPU as bytes, as in a run. The peer is
ViTForImageClassification with torch.compile, in each of two modes; one that is not compiled within --limit seconds is left
out. Its batches are already on the GPU, standardized. Both use no dropout, AdamW, and clip the gradient. Blocks of updates
alternate between the systems; figures are the medians of the blocks and of their ratios to the faster mode of the peer.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from peers.machine import machine_info
from peers.updates import DEVICE, PEER_MODES, AdamW, Timing, Update, compare_updates, our_update, peer_update, refuse
from torch import Tensor, nn

from heedful.runs import auto, build
from heedful.runs.config import Run
from heedful.tasks.image_classification.data import ImageSet, ImageSplits
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer
from heedful.training.compiling import compile_task
from heedful.training.loop import Trainer

BATCHES = 4  # different ones
OPTIMIZER = AdamW(epsilon=1e-8, decay=0.1)


class Size(NamedTuple):
    dim: int
    layers: int
    heads: int
    pixels: int
    patch: int
    labels: int


SIZES = {"b16": Size(768, 12, 12, 224, 16, 1000), "toy": Size(32, 2, 2, 8, 4, 5)}


def make_run(size: Size, images: int, *, compiles: bool) -> Run:
    """The config of our run; options that are not given have their defaults, and "auto" its value for the device."""
    config = {
        "data": {"form": "images", "builtin": "shapes", "batch": images},
        "task": {"name": "image_classification", "labels": [f"label {number}" for number in range(size.labels)]},
        "model": {
            "family": "vit",
            "dim": size.dim,
            "layers": size.layers,
            "heads": size.heads,
            "image_size": [size.pixels, size.pixels],
            "patch": size.patch,
            "dropout": 0.0,
        },
        "training": {
            "optimizer": {"name": "adamw", **OPTIMIZER._asdict()},
            "schedule": {"name": "linear", "learning_rate": 1e-4, "warmup": 100},
            "compile": compiles,
        },
    }
    return auto.resolve(Run.model_validate(config), DEVICE)


def make_images(size: Size, images: int) -> ImageSet:
    generator = np.random.default_rng(1)
    pixels = generator.integers(0, 256, (BATCHES * images, size.pixels, size.pixels, 3), dtype=np.uint8)
    return ImageSet(pixels, np.arange(len(pixels)), generator.integers(0, size.labels, len(pixels)))


def make_trainer(run: Run, size: Size, images: ImageSet, folder: Path) -> Trainer:
    """Our model, task and optimizer on random images."""
    task_config: Any = run.task
    tokenizer = train_tokenizer(TokenizerConfig(kind="words", min_frequency=1), task_config.labels, [])
    model = build.make_model(run, len(tokenizer), len(tokenizer)).to(DEVICE)
    task = build.make_task(run, model, (tokenizer, tokenizer), ImageSplits(images, images))
    if run.training.compile:
        compile_task(task, DEVICE, refuse)  # a run would continue without the compiler
    return Trainer(model, task, run.training, folder, seed=1, dim=size.dim)


def peer_model(size: Size) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=size.dim, num_hidden_layers=size.layers, num_attention_heads=size.heads, intermediate_size=4 * size.dim,
        image_size=size.pixels, patch_size=size.patch, num_labels=size.labels, hidden_dropout_prob=0.0,
    )  # fmt: skip
    model: nn.Module = ViTForImageClassification(config)
    return model.to(DEVICE).train()


def theirs(size: Size, mode: str, images: ImageSet, rows: int) -> Update:
    model = peer_model(size)
    feed = []
    for at in range(0, BATCHES * rows, rows):
        batch = images.batch(np.arange(at, at + rows)).to(DEVICE)
        feed.append((batch.pixels.permute(0, 3, 1, 2).float().div(127.5).sub(1).contiguous(), batch.labels))
    batches = cycle(feed)

    def objective(pixels: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            logits = model(pixel_values=pixels).logits
        return nn.functional.cross_entropy(logits.float(), labels)

    run: Callable[..., Any] = torch.compile(objective, dynamic=False, mode=mode) if DEVICE.type == "cuda" else objective
    return peer_update(model, lambda: run(*next(batches)), OPTIMIZER)


def compare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    size, rows = SIZES[options.size], options.images
    images = make_images(size, rows)
    systems: dict[str, Update] = {}
    for name, compiles in {"heedful": False, "heedful compiled": True}.items():
        if compiles and DEVICE.type != "cuda":
            continue  # as for the peer
        trainer = make_trainer(make_run(size, rows, compiles=compiles), size, images, folder)
        systems[name] = our_update(trainer, trainer.task.stream(0, 0))
    peers = {f"hf {mode}": theirs(size, mode, images, rows) for mode in PEER_MODES}
    timing = Timing(options.limit, options.blocks, options.updates, rows)
    parameters = {"parameters": sum(parameter.numel() for parameter in peer_model(size).parameters())}
    return {"size": options.size, "batch": rows, **parameters, **compare_updates(systems, peers, timing, "images")}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="b16")
    parser.add_argument("--images", type=int, default=256, help="per batch")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--updates", type=int, default=12, help="per block")
    parser.add_argument("--limit", type=float, default=90, help="seconds to compile a system")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "vision_speed.json")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with tempfile.TemporaryDirectory() as folder:
        result = compare(options, Path(folder))
    result |= machine_info("transformers")
    print(json.dumps(result), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
