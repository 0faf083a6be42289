"""Length generalization: for each positional encoding a tiny Transformer learns to copy (or reverse) up to N symbols, and is
tested on up to 2 N.

    python benchmarks/positions.py
    python benchmarks/positions.py --toy reverse --steps 2000

For every length: the fraction of new sequences that greedy search copies exactly, and the token accuracy under teacher forcing.
All models have the same size, data and seed. Learned positions have a table of 2 N + 2 rows, of which training updates one
half. Seconds are CPU time of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from peers.machine import machine_info
from position_rows import position_rows
from torch import Tensor

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.losses import cross_entropy
from heedful.nn.positions import POSITIONS
from heedful.search import SearchConfig, SourceBatch, search_batch, step_function

PAD, START, END, FIRST, VOCAB = 0, 1, 2, 3, 19
ROWS, TEST_ROWS = 64, 64
HERE = Path(__file__).parent


def sentences(rows: int, lengths: Tensor, draws: torch.Generator) -> Tensor:
    """(rows, longest): `lengths` symbols, the end token, then padding."""
    positions = torch.arange(int(lengths.max()) + 1)
    symbols = torch.randint(FIRST, VOCAB, (rows, len(positions)), generator=draws)
    with_end = torch.where(positions == lengths[:, None], END, symbols)
    return torch.where(positions > lengths[:, None], PAD, with_end)


def answers(source: Tensor, lengths: Tensor, toy: str) -> Tensor:
    if toy == "copy":
        return source
    positions = torch.arange(source.shape[1])
    return source.gather(1, torch.where(positions < lengths[:, None], lengths[:, None] - 1 - positions, positions))


def make(position: str, longest: int) -> Transformer:
    more = {"max_positions": 2 * longest + 2} if position == "learned" else {}
    fixed: dict[str, Any] = {"dim": 64, "layers": 2, "heads": 4, "feed_forward": 128, "norm": "pre", "dropout": 0.0}
    return Transformer(TransformerConfig(position=position, **fixed, **more), VOCAB, VOCAB)  # type: ignore[arg-type]


def train(model: Transformer, args: argparse.Namespace) -> float:
    """Train, and return the mean loss of the last fifty steps."""
    draws = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.rate, total_steps=args.steps, pct_start=0.1)
    losses = []
    model.train()
    for step in range(1, args.steps + 1):
        lengths = torch.randint(1, args.longest + 1, (ROWS,), generator=draws)
        source = sentences(ROWS, lengths, draws)
        target = answers(source, lengths, args.toy)
        target_in = torch.cat((torch.full((ROWS, 1), START), target[:, :-1]), dim=1)
        logits = model.project(model.step(target_in, model.start(source, source != PAD, room=0)).hidden)
        loss, _ = cross_entropy(logits.flatten(0, 1), target.flatten(), padding=PAD)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.total.detach() / loss.count))
        if step % 250 == 0:
            print(f"  step {step}  loss {sum(losses[-50:]) / 50:.4f}", flush=True)
    return sum(losses[-50:]) / 50


@torch.inference_mode()
def exact(model: Transformer, length: int, toy: str) -> float:
    """The fraction of sequences of this length that are exactly right."""
    source, target = evaluation_batch(length, toy)
    most = length + 2 if model.max_length is None else min(length + 2, model.max_length)
    room = torch.full((TEST_ROWS,), most)
    group = SourceBatch(model.start(source, None, room=most), room, list(range(TEST_ROWS)), [[]] * TEST_ROWS)
    hypotheses = search_batch(step_function(model), group, SearchConfig(method="greedy"), start=START, end=END)
    right: list[bool] = [best.tokens == row[:-1] for (best, *_), row in zip(hypotheses, target.tolist(), strict=True)]
    return sum(right) / TEST_ROWS


@torch.inference_mode()
def forced(model: Transformer, length: int, toy: str) -> float:
    """The token accuracy under teacher forcing, including the end token."""
    source, target = evaluation_batch(length, toy)
    target_in = torch.cat((torch.full((TEST_ROWS, 1), START), target[:, :-1]), dim=1)
    predicted = model.project(model.step(target_in, model.start(source, None, room=0)).hidden).argmax(-1)
    return float((predicted == target).double().mean())


def evaluation_batch(length: int, toy: str) -> tuple[Tensor, Tensor]:
    """New sequences of one length and their targets, (rows, length + 1) each."""
    lengths = torch.full((TEST_ROWS,), length)
    source = sentences(TEST_ROWS, lengths, torch.Generator().manual_seed(1000 + length))
    return source, answers(source, lengths, toy)


def draw(results: dict[str, Any]) -> Figure:
    """One row per positional encoding, one column per length, darker for higher accuracy."""
    longest, schemes = results["trained_to"], results["schemes"]
    shares = torch.tensor([list(one["exact"].values()) for one in schemes.values()])  # (schemes, lengths)
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1.15, aspect="auto")
    for row, values in enumerate(shares.tolist()):
        for column, share in enumerate(values):
            color = "white" if share > 0.6 else "#222222"
            axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=8.5, color=color)
    axes.axvline(longest - 0.5, color="#c8571b", linewidth=2)
    beyond: dict[str, Any] = {"color": "#c8571b", "fontsize": 9.5, "transform": axes.get_xaxis_transform()}
    axes.text(longest - 0.4, 1.015, "beyond training →", va="bottom", **beyond)
    axes.set_yticks(range(len(schemes)), list(schemes), fontsize=10)
    axes.set_xticks(range(2 * longest), [str(1 + i) for i in range(2 * longest)], fontsize=9)
    axes.set_xlabel(f"symbols to {results['toy']}", fontsize=10)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    title = f"{results['toy'].capitalize()} trained up to {longest} symbols: exact match in %, by length"
    axes.set_title(title, loc="left", fontsize=11.5, pad=24)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toy", choices=["copy", "reverse"], default="copy")
    parser.add_argument("--longest", type=int, default=10, help="N, the longest training sequence")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--schemes", nargs="*", default=list(POSITIONS), choices=list(POSITIONS))
    parser.add_argument("--output", type=Path, default=HERE / "results" / "positions.json")
    parser.add_argument("--picture", type=Path, default=HERE.parent / "docs" / "pictures" / "positions-beyond.png")
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.nice(10)
    results: dict[str, Any] = {"toy": args.toy, "trained_to": args.longest, "steps": args.steps, "rows": ROWS, "schemes": {}}
    for position in args.schemes:
        print(position, flush=True)
        torch.manual_seed(1)
        model, started = make(position, args.longest), time.process_time()
        loss = train(model, args)
        model.eval()
        shares = {str(length): exact(model, length, args.toy) for length in range(1, 2 * args.longest + 1)}
        symbols = {str(length): forced(model, length, args.toy) for length in range(1, 2 * args.longest + 1)}
        seconds = round(time.process_time() - started, 1)
        results["schemes"][position] = {"loss": loss, "exact": shares, "forced": symbols, "seconds": seconds}
    results |= machine_info() | {"threads": 1}
    args.output.write_text(json.dumps(results, indent=1) + "\n")
    draw(results).savefig(args.picture, dpi=150, facecolor="white")
    for row in position_rows(results):
        print("  ".join(cell.ljust(12) for cell in row))


if __name__ == "__main__":
    main()
