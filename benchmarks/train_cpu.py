"""Training throughput on a CPU, beside Hugging Face's Marian: the same sizes, data, dropout and optimiser in one process.

    python benchmarks/train_cpu.py

Blocks of updates alternate between the two; the figure is the median of the blocks' ratios, in target tokens per second.
d256, 3 + 3 layers, vocabulary 8,000, 64 x 24 tokens a side, fp32, dropout 0.1, label smoothing 0.1, AdamW.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from torch import Tensor

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.losses import cross_entropy
from heedful.training.optimisers import OptimiserConfig, make_optimiser

VOCAB, DIM, LAYERS, HEADS, HIDDEN, ROWS, TIME, DROPOUT, SMOOTHING = 8000, 256, 3, 8, 1024, 64, 24, 0.1, 0.1
PAD, START = 0, 1


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Random tokens without padding: source, target_in, target_out, each (rows, time)."""
    source, target = torch.randint(4, VOCAB, (ROWS, TIME)), torch.randint(4, VOCAB, (ROWS, TIME))
    return source, torch.cat((torch.full((ROWS, 1), START), target[:, :-1]), dim=1), target


def ours() -> Callable[[], None]:
    config = TransformerConfig(dim=DIM, layers=LAYERS, heads=HEADS, feed_forward=HIDDEN, dropout=DROPOUT)
    model = Transformer(config, VOCAB, VOCAB)
    optimiser = make_optimiser(OptimiserConfig(), model)

    def update() -> None:
        source, target_in, target_out = batch()
        step = model.step(target_in, model.start(source, None, room=0))
        logits = model.project(step.hidden.flatten(0, 1))
        loss, _ = cross_entropy(logits, target_out.flatten(), padding=PAD, smoothing=SMOOTHING)
        (loss.total / loss.count).backward()  # type: ignore[no-untyped-call]
        finish(model, optimiser)

    return update


def marian() -> Callable[[], None]:
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
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def update() -> None:
        source, target_in, target_out = batch()
        logits = model(input_ids=source, decoder_input_ids=target_in, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
        )
        loss.backward()  # type: ignore[no-untyped-call]
        finish(model, optimiser)

    return update


def finish(model: Any, optimiser: torch.optim.Optimizer) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def speed(update: Callable[[], None], updates: int) -> float:
    """Target tokens per second over a block of updates."""
    began = time.perf_counter()
    for _ in range(updates):
        update()
    return updates * ROWS * TIME / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--updates", type=int, default=5, help="in a block")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "train_cpu.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    systems = {"heedful": ours(), "marian": marian()}
    for update in systems.values():
        speed(update, 2)
    blocks = [{name: speed(update, options.updates) for name, update in systems.items()} for _ in range(options.blocks)]
    ratios = [block["heedful"] / block["marian"] for block in blocks]
    result = {
        "tokens_per_second": {name: round(statistics.median(block[name] for block in blocks), 1) for name in systems},
        "median_ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "threads": options.threads,
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "date": date.today().isoformat(),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
