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
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from torch import Tensor, nn

from heedful.data.corpus_text import TextStore
from heedful.runs import auto, build
from heedful.runs.config import Run
from heedful.tasks.language.data import TextSplits
from heedful.text.specials import MASK
from heedful.text.tokenizer import TokenizerConfig
from heedful.text.train import train_tokenizer
from heedful.training.compiling import compile_task
from heedful.training.loop import StreamedBatch, Trainer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MODES = ("default", "max-autotune-no-cudagraphs")  # of torch.compile, for the peer
IGNORED = -100  # label of tokens that the peer does not predict
BETAS, EPSILON, DECAY = (0.9, 0.999), 1e-6, 0.01  # of AdamW


class Size(NamedTuple):
    dim: int
    layers: int
    heads: int
    hidden: int
    vocab: int


SIZES = {"base": Size(768, 12, 12, 3072, 30522), "toy": Size(32, 2, 2, 64, 500)}
Update = Callable[[], None]


class NotCompiled(Exception):
    """The compiler failed, or takes longer than allowed."""


def refuse(*reason: Any) -> None:
    raise NotCompiled(*reason)


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
            "optimizer": {"name": "adamw", "betas": BETAS, "epsilon": EPSILON, "decay": DECAY},
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
    task = build.make_task(run, model, (tokenizer, tokenizer), TextSplits(text, text))
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


def ours(trainer: Trainer, batches: Iterator[StreamedBatch]) -> Update:
    """One update of a run, with its batches prepared as in a run: in the background, other masks for each."""
    trainer.model.train()

    def update() -> None:
        trainer.update([next(batches)])
        trainer.guard.pending.clear()

    return update


def theirs(size: Size, mode: str, feed: list[tuple[Tensor, Tensor]]) -> Update:
    model, batches = peer_model(size), cycle(feed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=BETAS, eps=EPSILON, weight_decay=DECAY, fused=True)

    def objective(tokens: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            out: Any = model(input_ids=tokens, labels=labels)
        loss: Tensor = out.loss
        return loss

    run: Callable[..., Any] = torch.compile(objective, dynamic=False, mode=mode) if DEVICE.type == "cuda" else objective

    def update() -> None:
        run(*next(batches)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def warm_up(update: Update, limit: float) -> float | None:
    """Seconds of the first updates, which compile or capture the step; None if they fail or exceed the limit."""
    started, before = time.perf_counter(), signal.signal(signal.SIGALRM, refuse)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        for _ in range(4):
            update()
        wait()
    except Exception as error:  # the compiler wraps the interruption in an error of its own
        print(f"left out: {type(error).__name__} after {time.perf_counter() - started:.0f} s", file=sys.stderr)
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return round(time.perf_counter() - started, 1)


def speed(update: Update, count: int, tokens: int) -> float:
    """Tokens per second over a block of updates."""
    wait()
    started = time.perf_counter()
    for _ in range(count):
        update()
    wait()
    return count * tokens / (time.perf_counter() - started)


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
        systems[name] = ours(trainer, batches)
    peers = {f"hf {mode}": theirs(size, mode, feed) for mode in MODES}
    seconds = {name: warm_up(update, options.limit) for name, update in (systems | peers).items()}
    running = {name: update for name, update in (systems | peers).items() if seconds[name] is not None}
    blocks = [{name: speed(u, options.updates, rows * length) for name, u in running.items()} for _ in range(options.blocks)]
    median = {name: statistics.median(block[name] for block in blocks) for name in running}
    best = max((name for name in peers if name in running), key=lambda name: median[name])
    own = [name for name in systems if name in running]
    return {
        "size": options.size,
        "rows": rows,
        "tokens": length,
        "tokens_per_second": {name: round(value) for name, value in median.items()},
        "best_peer": best,
        "ratio": {name: round(statistics.median(block[name] / block[best] for block in blocks), 3) for name in own},
        "first_updates_seconds": seconds,
    }


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
    result |= {
        "machine": torch.cuda.get_device_name() if DEVICE.type == "cuda" else f"{os.cpu_count()} CPU cores",
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "date": date.today().isoformat(),
    }
    print(json.dumps(result), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
