"""Masked-LM training throughput on a GPU compared with Hugging Face: BERT base, 128 x 128 tokens, bf16, same optimizer.

    python benchmarks/masked_speed.py

Ours is the update of a run without options: `Trainer.update` with CUDA graphs and bf16; and the same with training.compile.
The peer is BertForMaskedLM with torch.compile, in each of two modes; one that is not compiled within --limit seconds is left
out. Both mask the same random tokens: 15% of each row. Blocks of updates alternate between the systems; figures are the
medians of the blocks and of their ratios to the faster mode of the peer. All input tokens are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from peers.machine import machine_info
from peers.updates import DEVICE, PEER_MODES, AdamW, Timing, Update, compare_updates, our_update, peer_update, refuse
from torch import Tensor, nn

from heedful.data.text_store import TextStore
from heedful.runs import auto, build
from heedful.runs.config import Run
from heedful.tasks.language.data import TextSplits
from heedful.text.specials import MASK
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer
from heedful.training.compiling import compile_task
from heedful.training.loop import StreamedBatch, Trainer

IGNORED = -100  # label of tokens that the peer does not predict
OPTIMIZER = AdamW()


class Size(NamedTuple):
    dim: int
    layers: int
    heads: int
    hidden: int
    vocab: int


SIZES = {"base": Size(768, 12, 12, 3072, 30522), "toy": Size(32, 2, 2, 64, 500)}


def make_run(size: Size, rows: int, tokens: int, *, compiles: bool) -> Run:
    """The config of our run; options that are not given have their defaults, and "auto" its value for the device."""
    config = {
        "data": {"form": "text", "folder": ".", "block": tokens, "batch": rows},
        "task": {"name": "masked"},
        "model": {
            "family": "bert",
            "dim": size.dim,
            "layers": size.layers,
            "heads": size.heads,
            "feed_forward": size.hidden,
            "segments": 2,
            "max_positions": 512,
        },
        "training": {
            "optimizer": {"name": "adamw", **OPTIMIZER._asdict()},
            "schedule": {"name": "linear", "learning_rate": 1e-4, "warmup": 100},
            "compile": compiles,
        },
    }
    return auto.resolve(Run.model_validate(config), DEVICE)


def make_trainer(run: Run, size: Size, folder: Path) -> Trainer:
    """Our model, task and optimizer, on random text with the vocabulary size of BERT."""
    words = " ".join(f"w{number}" for number in range(size.vocab - 5))  # besides four special tokens and the mask token
    tokenizer = train_tokenizer(TokenizerConfig(kind="spaces", vocab=size.vocab, min_frequency=1), [words], [MASK])
    assert len(tokenizer) == size.vocab
    ids = np.random.default_rng(1).integers(4, size.vocab - 1, 16 * run.data.batch * run.data.block)  # no special token
    text = TextStore(ids, 1, len(ids), len(ids), len(ids))
    model = build.make_model(run, size.vocab, size.vocab).to(DEVICE)
    task = build.make_task(run, model, (tokenizer, tokenizer), TextSplits((text,), text))
    if run.training.compile:
        compile_task(task, DEVICE, refuse)  # a run would continue without the compiler
    return Trainer(model, task, run.training, folder, seed=1, dim=size.dim)


def peer_model(size: Size) -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=size.vocab, hidden_size=size.dim, num_hidden_layers=size.layers, num_attention_heads=size.heads,
        intermediate_size=size.hidden,
    )  # fmt: skip
    model: nn.Module = BertForMaskedLM(config)
    return model.to(DEVICE).train()


def peer_batches(batches: Iterator[StreamedBatch], pad: int) -> list[tuple[Tensor, Tensor]]:
    """Tokens and labels of a few of our batches, both (rows, time), already on the device."""
    feed = []
    for batch in (next(batches).batch for _ in range(4)):
        labels = torch.full_like(batch.tokens, IGNORED)
        labels.scatter_(1, batch.places, batch.targets.masked_fill(batch.targets == pad, IGNORED))
        feed.append((batch.tokens.to(DEVICE), labels.to(DEVICE)))
    return feed


def theirs(size: Size, mode: str, feed: list[tuple[Tensor, Tensor]]) -> Update:
    model, batches = peer_model(size), cycle(feed)

    def objective(tokens: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            out: Any = model(input_ids=tokens, labels=labels)
        loss: Tensor = out.loss
        return loss

    run: Callable[..., Any] = torch.compile(objective, dynamic=False, mode=mode) if DEVICE.type == "cuda" else objective
    return peer_update(model, lambda: run(*next(batches)), OPTIMIZER)


def compare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    size, rows, length = SIZES[options.size], options.rows, options.tokens
    systems: dict[str, Update] = {}
    feed: list[tuple[Tensor, Tensor]] = []
    for name, compiles in {"heedful": False, "heedful compiled": True}.items():
        if compiles and DEVICE.type != "cuda":
            continue  # as for the peer
        trainer: Any = make_trainer(make_run(size, rows, length, compiles=compiles), size, folder)
        batches = trainer.task.stream(0, 0)
        feed = feed or peer_batches(batches, trainer.task.masking.pad)
        systems[name] = our_update(trainer, batches)
    peers = {f"hf {mode}": theirs(size, mode, feed) for mode in PEER_MODES}
    timing = Timing(options.limit, options.blocks, options.updates, rows * length)
    return {"size": options.size, "rows": rows, "tokens": length, **compare_updates(systems, peers, timing, "tokens")}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128, help="per row")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--updates", type=int, default=20, help="per block")
    parser.add_argument("--limit", type=float, default=90, help="seconds to compile a system")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "masked_speed.json")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with tempfile.TemporaryDirectory() as folder:
        result = compare(options, Path(folder))
    result |= machine_info()
    print(json.dumps(result), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
