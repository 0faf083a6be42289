"""Training throughput on a CPU compared with Hugging Face's Marian: the same sizes, data, dropout and optimizer.

    python benchmarks/train_cpu.py
    python benchmarks/train_cpu.py --precision bf16

Each system runs in its own process, and only one runs at a time. Blocks of updates alternate between them; the result is the
median of the ratios of target tokens per second.
d256, 3 + 3 layers, vocabulary 8,000, 64 x 24 tokens per side, dropout 0.1, label smoothing 0.1, AdamW.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from peers.machine import machine_info
from peers.processes import in_processes
from torch import Tensor

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.losses import projected_cross_entropy
from heedful.nn.memory import keep_freed_memory
from heedful.training.optimizers import OptimizerConfig, make_optimizer

VOCAB, DIM, LAYERS, HEADS, HIDDEN, ROWS, TIME, DROPOUT, SMOOTHING = 8000, 256, 3, 8, 1024, 64, 24, 0.1, 0.1
PAD, START = 0, 1
RESULTS = Path(__file__).parent / "results"
Precision = Callable[[], AbstractContextManager[Any]]


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Random tokens without padding: source, target_in, target_out, each (rows, time)."""
    source, target = torch.randint(4, VOCAB, (ROWS, TIME)), torch.randint(4, VOCAB, (ROWS, TIME))
    return source, torch.cat((torch.full((ROWS, 1), START), target[:, :-1]), dim=1), target


def ours(precision: Precision) -> Callable[[], None]:
    keep_freed_memory()
    config = TransformerConfig(dim=DIM, layers=LAYERS, heads=HEADS, feed_forward=HIDDEN, dropout=DROPOUT)
    model = Transformer(config, VOCAB, VOCAB)
    optimizer = make_optimizer(OptimizerConfig(), model)

    def update() -> None:
        source, target_in, target_out = batch()
        with precision():
            step = model.step(target_in, model.start(source, None, room=0))
            hidden, weight = step.hidden.flatten(0, 1), model.embedding.target.weight
            loss, _ = projected_cross_entropy(hidden, weight, target_out.flatten(), padding=PAD, smoothing=SMOOTHING)
        (loss.total / loss.count).backward()  # type: ignore[no-untyped-call]
        finish(model, optimizer)

    return update


def marian(precision: Precision) -> Callable[[], None]:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=VOCAB, d_model=DIM, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=HIDDEN, decoder_ffn_dim=HIDDEN, dropout=DROPOUT,
        attention_dropout=0.0, activation_dropout=0.0, activation_function="relu", pad_token_id=PAD,
        decoder_start_token_id=START, eos_token_id=2, forced_eos_token_id=2, scale_embedding=True,
        max_position_embeddings=64,
    )  # fmt: skip
    model = MarianMTModel(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def update() -> None:
        source, target_in, target_out = batch()
        with precision():
            logits = model(input_ids=source, decoder_input_ids=target_in, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
            )
        loss.backward()  # type: ignore[no-untyped-call]
        finish(model, optimizer)

    return update


def finish(model: Any, optimizer: torch.optim.Optimizer) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


SYSTEMS = {"heedful": ours, "marian": marian}


def make_system(name: str, threads: int, half: bool) -> Callable[[int], float]:
    """Build a function: number of updates -> target tokens per second."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    update = SYSTEMS[name](lambda: torch.autocast("cpu", torch.bfloat16, enabled=half))

    def work(updates: int) -> float:
        started = time.perf_counter()
        for _ in range(updates):
            update()
        return updates * ROWS * TIME / (time.perf_counter() - started)

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--updates", type=int, default=5, help="updates per block")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="of both systems; bf16 uses autocast")
    parser.add_argument("--output", type=Path, help="default: results/train_cpu.json, or train_cpu_bf16.json")
    options = parser.parse_args()
    half = options.precision == "bf16"
    with in_processes({name: partial(make_system, name, options.threads, half) for name in SYSTEMS}) as systems:

        def block(updates: int) -> dict[str, float]:
            return {name: work(updates) for name, work in systems.items()}

        block(2)
        blocks = [block(options.updates) for _ in range(options.blocks)]
    ratios = [speeds["heedful"] / speeds["marian"] for speeds in blocks]
    result = {
        "tokens_per_second": {name: round(statistics.median(speeds[name] for speeds in blocks), 1) for name in SYSTEMS},
        "median_ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "threads": options.threads,
        "precision": options.precision,
        **machine_info("transformers"),
    }
    output = options.output or RESULTS / ("train_cpu_bf16.json" if half else "train_cpu.json")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
