"""Beyond the lengths of training: a tiny Transformer for each position scheme learns to copy (or to reverse) up to N symbols,
and is then asked for up to 2 N.

    python benchmarks/positions.py
    python benchmarks/positions.py --toy reverse --steps 2000

For every length: the share of fresh sequences that greedy search gets right to the last symbol, and the share of symbols that
are right after a right beginning. All schemes have the same sizes, data and seed. Learned positions get a table of 2 N + 2
rows, of which training touches one half. Seconds are those of one core.
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
from peers.machine import about_here
from position_rows import position_rows
from torch import Tensor

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.losses import cross_entropy
from heedful.nn.positions import POSITIONS
from heedful.search import SearchConfig, SourceBatch, search_batch, step_function

PAD, START, END, FIRST, VOCAB = 0, 1, 2, 3, 19
ROWS, ASKED = 64, 64
HERE = Path(__file__).parent


def sentences(rows: int, lengths: Tensor, draws: torch.Generator) -> Tensor:
    """(rows, longest): so many symbols, then the end, then padding."""
    places = torch.arange(int(lengths.max()) + 1)
    symbols = torch.randint(FIRST, VOCAB, (rows, len(places)), generator=draws)
    ended = torch.where(places == lengths[:, None], END, symbols)
    return torch.where(places > lengths[:, None], PAD, ended)


def answers(source: Tensor, lengths: Tensor, toy: str) -> Tensor:
    if toy == "copy":
        return source
    places = torch.arange(source.shape[1])
    return source.gather(1, torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places))


def make(position: str, longest: int) -> Transformer:
    more = {"max_positions": 2 * longest + 2} if position == "learned" else {}
    fixed: dict[str, Any] = {"dim": 64, "layers": 2, "heads": 4, "feed_forward": 128, "norm": "pre", "dropout": 0.0}
    return Transformer(TransformerConfig(position=position, **fixed, **more), VOCAB, VOCAB)  # type: ignore[arg-type]


def train(model: Transformer, given: argparse.Namespace) -> float:
    """The loss of the last fifty steps."""
    draws = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=given.rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, given.rate, total_steps=given.steps, pct_start=0.1)
    losses = []
    model.train()
    for step in range(1, given.steps + 1):
        lengths = torch.randint(1, given.longest + 1, (ROWS,), generator=draws)
        source = sentences(ROWS, lengths, draws)
        target = answers(source, lengths, given.toy)
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
    """The share of sequences of this length that come out right."""
    source, wanted = asked(length, toy)
    most = length + 2 if model.longest is None else min(length + 2, model.longest)
    room = torch.full((ASKED,), most)
    group = SourceBatch(model.start(source, None, room=most), room, list(range(ASKED)), [[]] * ASKED)
    found = search_batch(step_function(model), group, SearchConfig(method="greedy"), start=START, end=END)
    right: list[bool] = [best.tokens == row[:-1] for (best, *_), row in zip(found, wanted.tolist(), strict=True)]
    return sum(right) / ASKED


@torch.inference_mode()
def forced(model: Transformer, length: int, toy: str) -> float:
    """The share of symbols, the end included, that are right when all before them are given."""
    source, wanted = asked(length, toy)
    target_in = torch.cat((torch.full((ASKED, 1), START), wanted[:, :-1]), dim=1)
    said = model.project(model.step(target_in, model.start(source, None, room=0)).hidden).argmax(-1)
    return float((said == wanted).double().mean())


def asked(length: int, toy: str) -> tuple[Tensor, Tensor]:
    """Fresh sequences of one length and their answers, (rows, length + 1) each."""
    lengths = torch.full((ASKED,), length)
    source = sentences(ASKED, lengths, torch.Generator().manual_seed(1000 + length))
    return source, answers(source, lengths, toy)


def draw(found: dict[str, Any]) -> Figure:
    """A row for each scheme, a column for each length, darker where more came out right."""
    longest, schemes = found["trained_to"], found["schemes"]
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
    axes.set_xlabel(f"symbols to {found['toy']}", fontsize=10)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    title = f"{found['toy'].capitalize()} learned up to {longest} symbols: % right to the last one, by length"
    axes.set_title(title, loc="left", fontsize=11.5, pad=24)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toy", choices=["copy", "reverse"], default="copy")
    parser.add_argument("--longest", type=int, default=10, help="N, in training")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--schemes", nargs="*", default=list(POSITIONS), choices=list(POSITIONS))
    parser.add_argument("--output", type=Path, default=HERE / "results" / "positions.json")
    parser.add_argument("--picture", type=Path, default=HERE.parent / "docs" / "pictures" / "positions-beyond.png")
    given = parser.parse_args()
    torch.set_num_threads(1)
    os.nice(10)
    found: dict[str, Any] = {"toy": given.toy, "trained_to": given.longest, "steps": given.steps, "rows": ROWS, "schemes": {}}
    for position in given.schemes:
        print(position, flush=True)
        torch.manual_seed(1)
        model, began = make(position, given.longest), time.process_time()
        loss = train(model, given)
        model.eval()
        shares = {str(length): exact(model, length, given.toy) for length in range(1, 2 * given.longest + 1)}
        symbols = {str(length): forced(model, length, given.toy) for length in range(1, 2 * given.longest + 1)}
        seconds = round(time.process_time() - began, 1)
        found["schemes"][position] = {"loss": loss, "exact": shares, "forced": symbols, "seconds": seconds}
    found |= about_here() | {"threads": 1}
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    draw(found).savefig(given.picture, dpi=150, facecolor="white")
    for row in position_rows(found):
        print("  ".join(cell.ljust(12) for cell in row))


if __name__ == "__main__":
    main()
