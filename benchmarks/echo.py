"""The echo task: y_t = x_{t - delay}, at delays of 5 to 200 steps, for recurrent, convolutional and attention layers.

    python benchmarks/echo.py                  kinds without a result yet -> JSON and PNG
    python benchmarks/echo.py --only lstm,gru  measure these again
    python benchmarks/echo.py --draw           draw only

Symbols are uniform over 8. Each kind is one stack of causal layers, the same at every delay: size 64 (convolutions 32),
residual connections and layer normalization; attention has sinusoidal positions, the others have an order of their own.

All kinds are trained alike: Adam, gradients clipped at a norm of 1, a warm-up of 50 updates and then a constant learning
rate, batches of 32 new sequences of delay + 30 symbols, so that every delay has as many targets. After every 100 updates
the accuracy on 100 validation sequences is measured. Training ends at 99.5%, when 500 updates have not raised the accuracy
by a percentage point, or after 5,000 updates. The learning rate of a kind is 0.003 or 0.01: the one with the higher mean
accuracy on the validation sequences at delays of 5 and 20. The accuracy that is reported is that on 200 further sequences;
one seed, one thread.

What each kind needs: a convolution a receptive field of delay + 1 symbols; a recurrence a state that holds the last `delay`
symbols, 3 bits each, and a gradient that reaches back as far; attention one look-up by position, at any distance.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from claims.layers import SYMBOLS, Stack, field
from drawing import BLUE, GREEN, GRID, INK, ORANGE, PALE, STROKES, Line, assign_strokes, finish, plot
from matplotlib.figure import Figure
from peers.machine import machine_info
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.sequence_layers import LayerSize

HERE = Path(__file__).parent
OUTPUT = HERE / "results" / "echo.json"
PICTURE = HERE.parent / "docs" / "pictures" / "echo.png"
DELAYS = (5, 20, 50, 100, 200)
CHOSEN_AT = DELAYS[:2]  # delays at which the learning rate is chosen
RATES = (0.003, 0.01)
TARGETS, ROWS, WARMUP = 30, 32, 50
MOST, EVERY, PATIENCE = 5000, 100, 500  # updates: at most, between validations, without a gain
SOLVED, GAIN = 0.995, 0.01  # validation accuracy at which training ends, and what counts as a gain
SIZE = LayerSize(dim=64, heads=4, causal=True)
NARROW = SIZE.model_copy(update={"dim": 32})  # enough for a convolution, and a quarter of the time
STACKS: dict[str, list[LayerSize]] = {
    "self-attention": [SIZE] * 2,
    "convolution": [NARROW.model_copy(update={"kernel": 7})] * 4,
    "dilated": [NARROW.model_copy(update={"dilation": 2**at}) for at in range(6)],
    "gru": [SIZE],
    "lstm": [SIZE],
}
COLORS = {"self-attention": BLUE, "dilated": GREEN, "convolution": GREEN, "gru": ORANGE, "lstm": ORANGE}


def reach(kind: str) -> int | None:
    """The receptive field in symbols; None: all previous symbols."""
    return field(STACKS[kind], dilated=kind == "dilated") if kind in ("convolution", "dilated") else None


class Trained(NamedTuple):
    valid: float  # accuracy on the validation sequences
    test: float
    updates: int


def sequences(rows: int, delay: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Symbols (rows, delay + TARGETS), and the targets from step `delay` on (rows, TARGETS)."""
    symbols = torch.randint(SYMBOLS, (rows, delay + TARGETS), generator=generator)
    return symbols, symbols[:, :TARGETS]


def train(kind: str, delay: int, rate: float) -> Trained:
    """A new stack, trained as above."""
    torch.manual_seed(1)
    generator, model = torch.Generator().manual_seed(1), Stack(kind, STACKS[kind], positions=kind == "self-attention")
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / WARMUP, 1.0))
    valid, test = sequences(100, delay, generator), sequences(200, delay, generator)
    reached: list[float] = []  # validation accuracy after each EVERY updates
    while not is_finished(reached):
        for _ in range(EVERY):
            symbols, target = sequences(ROWS, delay, generator)
            loss = functional.cross_entropy(model(symbols)[:, delay:].flatten(0, 1), target.flatten())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        reached.append(accuracy(model, delay, *valid))
    return Trained(reached[-1], accuracy(model, delay, *test), EVERY * len(reached))


def is_finished(reached: Sequence[float]) -> bool:
    """Whether training ends after these validations."""
    if not reached:
        return False
    before = reached[: -PATIENCE // EVERY]
    is_stuck = bool(before) and max(reached) < max(before) + GAIN
    return reached[-1] >= SOLVED or is_stuck or len(reached) * EVERY >= MOST


@torch.inference_mode()
def accuracy(model: Stack, delay: int, symbols: Tensor, target: Tensor) -> float:
    return float((model(symbols)[:, delay:].argmax(-1) == target).float().mean())


def choose(tried: dict[float, list[Trained]]) -> float:
    """The learning rate with the highest mean accuracy on validation sequences; among those that solve them, with the fewest
    updates."""

    def rank(rate: float) -> tuple[float, int]:
        return sum(min(one.valid, SOLVED) for one in tried[rate]), -sum(one.updates for one in tried[rate])

    return max(tried, key=rank)


def measure(kind: str) -> dict[str, Any]:
    """The accuracy at every delay."""
    started = time.process_time()
    tried = {rate: [train(kind, delay, rate) for delay in CHOSEN_AT] for rate in RATES}
    rate = choose(tried)
    trained = dict(zip(CHOSEN_AT, tried[rate], strict=True))
    for delay in DELAYS:
        trained[delay] = trained.get(delay) or train(kind, delay, rate)
        print(f"{kind}: {trained[delay].test:.1%} at {delay}, {trained[delay].updates} updates, rate {rate}", flush=True)
    return {
        "layers": len(STACKS[kind]),
        "dim": STACKS[kind][0].dim,
        "receptive_field": reach(kind),
        "learning_rate": rate,
        "accuracy": {str(delay): round(one.test, 4) for delay, one in trained.items()},
        "updates": {str(delay): one.updates for delay, one in trained.items()},
        "seconds": round(time.process_time() - started),
        **machine_info(),
    }


def draw(results: dict[str, Any], path: Path) -> Path:
    """Accuracy against delay, one line for each kind; receptive fields are marked."""
    figure = Figure(figsize=(8.6, 5.2))
    axes = figure.subplots(gridspec_kw={"left": 0.08, "right": 0.74, "top": 0.8, "bottom": 0.12})
    axes.set(xscale="log", xlim=(DELAYS[0] / 1.15, DELAYS[-1] * 1.15))
    lines = [line_of(kind, result) for kind, result in results.items()]
    plot(axes, assign_strokes(lines), (0.0, 1.06))
    axes.set_xlim(DELAYS[0] / 1.15, DELAYS[-1] * 1.15)
    axes.axhline(1 / SYMBOLS, color=PALE, linewidth=1, linestyle=STROKES[2], zorder=1)
    axes.annotate("chance", (DELAYS[0], 1 / SYMBOLS), (0, 5), textcoords="offset points", color=PALE, fontsize=9)
    for kind, result in results.items():
        if result["receptive_field"] is not None:
            axes.axvline(result["receptive_field"] - 1, color=COLORS[kind], linewidth=1, alpha=0.45, zorder=1)
            label = f"receptive field\n{result['receptive_field']} symbols"
            axes.annotate(
                label,
                (result["receptive_field"] - 1, 0.9),
                (5, 0),
                textcoords="offset points",
                color=COLORS[kind],
                fontsize=8.5,
                va="center",
            )
    finish(axes, "symbols echoed correctly", lambda value: f"{value:.0%}", "delay, steps", DELAYS)
    axes.grid(axis="x", visible=False)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    figure.text(0.02, 0.95, title(results), fontsize=12.5, fontweight="bold", color=INK, va="center")
    first = next(iter(results.values()))
    note = (
        f"size {SIZE.dim} (convolutions {NARROW.dim}), up to {MOST:,} batches of {ROWS} new sequences, one seed  ·  "
        f"{first['machine']}, torch {first['torch']}, {first['date']}"
    )
    figure.text(0.02, 0.9, note, fontsize=8.5, color=PALE, va="center")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, facecolor="white")
    return path


def solved_to(result: dict[str, Any], share: float = 0.95) -> int:
    """The longest delay with at least this accuracy at it and all shorter ones; 0: none."""
    longest = 0
    for delay, accuracy in result["accuracy"].items():
        if accuracy < share:
            break
        longest = int(delay)
    return longest


def title(results: dict[str, Any]) -> str:
    spans = {kind: solved_to(result) for kind, result in results.items()}
    recurrent = max((spans[kind] for kind in ("gru", "lstm") if kind in spans), default=0)
    return (
        f"Attention echoes {spans.get('self-attention', 0)} steps back, convolutions as far as they read, "
        f"recurrences {recurrent}"
    )


def line_of(kind: str, result: dict[str, Any]) -> Line:
    points = [(float(delay), accuracy) for delay, accuracy in result["accuracy"].items()]
    layers = f"{result['layers']} layer{'s' if result['layers'] > 1 else ''}"
    return Line(f"{kind}, {layers}", points, COLORS[kind])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), help=", ".join(STACKS))
    parser.add_argument("--draw", action="store_true", help="draw the picture only")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results: dict[str, Any] = json.loads(args.output.read_text()) if args.output.exists() else {}
    for kind in [] if args.draw else args.only or [kind for kind in STACKS if kind not in results]:
        results[kind] = measure(kind)
        results = {name: results[name] for name in STACKS if name in results}
        args.output.write_text(json.dumps(results, indent=1) + "\n")
    print(draw(results, args.picture))
    return 0


if __name__ == "__main__":
    sys.exit(main())
