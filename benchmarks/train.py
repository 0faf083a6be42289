"""Training throughput on a GPU compared with peers: same shapes, same precision (bf16), same optimizer, one process.

    python benchmarks/train.py --peers hf,torch --sizes base,big,small

Blocks of updates alternate between the systems; figures are the medians of the blocks and of their ratios. Target tokens
per second count real tokens only. `small` runs on real Multi30k batches of 4096 tokens, from $HEED_DATA; the others on
800 x 32 random tokens per side. The ratios are more reliable than the times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from peers.models import PEERS, SIZES, SMOOTHING, Size
from torch import Tensor, nn

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.losses import cross_entropy
from heedful.tasks.batches import Batch, collate, fill_up, pad_length
from heedful.text.specials import Specials
from heedful.training.config import TrainingConfig
from heedful.training.nonfinite import NonFiniteGuard
from heedful.training.optimizers import OptimizerConfig, make_optimizer
from heedful.training.update import apply_gradients

SPECIALS = Specials(0, 1, 2, 3)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def random_batches(size: Size, rows: int, time_: int) -> list[Batch]:
    def make_batch() -> Batch:
        source, target = (torch.randint(4, size.vocab, (rows, time_)) for _ in range(2))
        target_in = torch.cat((torch.full((rows, 1), SPECIALS.start), target[:, :-1]), dim=1)
        return Batch(source, None, target_in, target, rows * time_).to(DEVICE)

    return [make_batch() for _ in range(4)]


def real_batches(size: Size, budget: int, pad_to_multiple_of: int, folder: str) -> tuple[list[Batch], list[Batch]]:
    """Multi30k en-de: padded to the longest row of each batch (for the peers), and to multiples (for ours)."""
    from heedful.data.batching import plan_epoch
    from heedful.data.pairs import pairs
    from heedful.data.sources import CorpusConfig
    from heedful.text.tokenizer import TokenizerConfig
    from heedful.text.train import train_tokenizer

    corpus = list(pairs(CorpusConfig(folder=folder, languages=("en", "de"), split="train")))
    tokenizer = train_tokenizer(TokenizerConfig(vocab=size.vocab), [t for pair in corpus for t in (pair.source, pair.target)])
    source, target = (tokenizer.encode_many([getattr(pair, side) for pair in corpus]) for side in ("source", "target"))
    import numpy as np

    sizes = [np.array([len(row) for row in side], dtype=np.int32) for side in (source, target)]

    def batches(pad_to_multiple_of: int) -> list[Batch]:
        plan = plan_epoch(*sizes, budget=budget, seed=1, epoch=0, pad_to_multiple_of=pad_to_multiple_of)
        collated = [collate([source[i] for i in b], [target[i] for i in b], SPECIALS, SPECIALS) for b in plan]
        if pad_to_multiple_of == 1:
            return [b.to(DEVICE) for b in collated]
        lengths = [pad_length(max(b.source.shape[1], b.target_in.shape[1]), pad_to_multiple_of, budget) for b in collated]
        return [
            fill_up(b, budget, (length, length), SPECIALS, SPECIALS).to(DEVICE)
            for b, length in zip(collated, lengths, strict=True)
        ]

    return batches(1), batches(pad_to_multiple_of)


def compiled(function: Callable[..., Any], quick: bool) -> Callable[..., Any]:
    if DEVICE.type != "cuda" or not quick:
        return function
    return torch.compile(function, dynamic=False, mode="reduce-overhead")


def ours(size: Size, quick: bool) -> Callable[[Batch], None]:
    config = TransformerConfig(
        dim=size.dim, layers=size.layers, heads=size.heads, feed_forward=size.hidden, dropout=size.dropout
    )
    model = Transformer(config, size.vocab, size.vocab).to(DEVICE)
    optimizer = make_optimizer(OptimizerConfig(), model)
    guard, training = NonFiniteGuard(20), TrainingConfig()

    def objective(source: Tensor, mask: Tensor | None, target_in: Tensor, target_out: Tensor) -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            step = model.step(target_in, model.start(source, mask, room=0))
            logits = model.project(step.hidden.flatten(0, 1))
            loss, _ = cross_entropy(logits, target_out.flatten(), padding=SPECIALS.pad, smoothing=SMOOTHING)
        return loss.total / loss.count

    run = compiled(objective, quick)

    def update(batch: Batch) -> None:
        run(batch.source, batch.source_mask, batch.target_in, batch.target_out).backward()
        apply_gradients(model, optimizer, guard, training, 1)
        guard.pending.clear()

    return update


def theirs(name: str, size: Size, quick: bool) -> Callable[[Batch], None]:
    model, loss = PEERS[name](size)
    model = model.to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def objective(*tensors: Any) -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16):
            return loss(*tensors)

    run = compiled(objective, quick)

    def update(batch: Batch) -> None:
        run(batch.source, batch.source_mask, batch.target_in, batch.target_out).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def speed(update: Callable[[Batch], None], batches: Iterator[Batch], count: int) -> float:
    """Real target tokens per second over a block of updates."""
    wait()
    started, tokens = time.perf_counter(), 0
    for _ in range(count):
        batch = next(batches)
        tokens += batch.tokens
        update(batch)
    wait()
    return tokens / (time.perf_counter() - started)


def peak() -> float:
    """bf16 matrix products, FLOP/s."""
    if DEVICE.type != "cuda":
        return 0.0
    a, b = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    wait()
    started = time.perf_counter()
    for _ in range(10):
        a @ b
    wait()
    return 10 * 2 * 8192**3 / (time.perf_counter() - started)


def operations(size: Size, time_: int) -> float:
    """FLOPs of an update for one target token: six for each weight of a matrix product, and the products of attention."""
    encoder = 4 * size.dim**2 + 2 * size.dim * size.hidden
    decoder = 8 * size.dim**2 + 2 * size.dim * size.hidden
    attention = size.layers * 3 * 2 * time_ * size.dim  # encoder, decoder, cross; scores and weighted sums
    return 6 * (size.layers * (encoder + decoder) + size.dim * size.vocab) + 6 * attention


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    size = SIZES[name]
    if name == "small":
        exact, ladder = real_batches(size, 4096, 8, "multi30k")
        feeds = {"heedful": ladder} | dict.fromkeys(options.peers, exact)
        quick = dict.fromkeys(options.peers, False)  # the peers' shapes change with every batch, so they run eagerly
    else:
        rows = options.rows
        feeds = dict.fromkeys(("heedful", *options.peers), random_batches(size, rows, 32))
        quick = dict.fromkeys(options.peers, True)
    systems = {"heedful": ours(size, True)} | {peer: theirs(peer, size, quick[peer]) for peer in options.peers}
    memory, compiling, streams = {}, {}, {system: cycle(feed) for system, feed in feeds.items()}
    for system, update in systems.items():
        started = time.perf_counter()
        if DEVICE.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        shapes = (
            {tuple(batch.source.shape): batch for batch in feeds[system]}.values() if system == "heedful" else feeds[system][:4]
        )
        for batch in shapes:
            for _ in range(3):
                update(batch)
        wait()
        compiling[system] = round(time.perf_counter() - started, 1)
        memory[system] = torch.cuda.max_memory_allocated() if DEVICE.type == "cuda" else 0
    blocks = [{s: speed(u, streams[s], options.updates) for s, u in systems.items()} for _ in range(options.blocks)]
    median = {s: statistics.median(block[s] for block in blocks) for s in systems}
    best = max(options.peers, key=lambda peer: median[peer]) if options.peers else None
    top = peak()
    return {
        "size": name,
        "rows": options.rows,
        "tokens_per_second": {s: round(v) for s, v in median.items()},
        "ratio": {p: round(statistics.median(b["heedful"] / b[p] for b in blocks), 3) for p in options.peers},
        "best_peer": best,
        "peak_memory_bytes": memory,
        "first_updates_seconds": compiling,
        "fraction_of_peak": round(median["heedful"] * operations(size, 32) / top, 3) if top else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=lambda text: [p for p in text.split(",") if p], default=["hf", "torch"])
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=["base", "big", "small"])
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--rows", type=int, default=800)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "train.json")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 64
    results = []
    for name in options.sizes:
        results.append(compare(name, options))
        print(json.dumps(results[-1]), flush=True)
        torch.compiler.reset()
        output = {
            "results": results,
            "machine": torch.cuda.get_device_name() if DEVICE.type == "cuda" else f"{os.cpu_count()} CPU cores",
            "torch": torch.__version__,
            "python": sys.version.split()[0],
            "date": date.today().isoformat(),
        }
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(output, indent=1) + "\n")


if __name__ == "__main__":
    main()
