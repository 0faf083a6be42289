"""What taps cost: with nobody listening, and with cross-attention being recorded.

python benchmarks/listening.py [--blocks 41] [--output benchmarks/results/listening.json]

One forced pass over 32 pairs of 32 tokens, eager, in alternating blocks: the model as it is; the same model with its taps
taken out; the model while every head's cross-attention is recorded, and while everything that can be heard is.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from peers.laps import alternate, interval
from peers.machine import about_here
from torch import Tensor

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.taps import Tap, record

SIZES = {
    "small": (TransformerConfig(dim=256, layers=3, heads=4, feed_forward=1024), 10_000),
    "base": (TransformerConfig(), 37_000),
}
ROWS = TIME = 32
SEED = 1


def without_taps(model: Transformer) -> Transformer:
    """A copy in which plain functions stand where the taps stood."""
    made = copy.deepcopy(model)
    for module in made.modules():
        for name in [name for name, child in module.named_children() if isinstance(child, Tap)]:
            del module._modules[name]
            module.__dict__[name] = Silent()
    return made


class Silent(SimpleNamespace):
    wanted = changes = False

    def __call__(self, x: Tensor) -> Tensor:
        return x


def measure(size: str, blocks: int) -> dict[str, Any]:
    config, vocab = SIZES[size]
    torch.manual_seed(SEED)
    model = Transformer(config, vocab, vocab).eval()
    source, target = (torch.randint(4, vocab, (ROWS, TIME)) for _ in range(2))

    def forced(used: Transformer, listening: AbstractContextManager[Any]) -> Tensor:
        with torch.inference_mode(), listening:
            return used.project(used.step(target, used.start(source, None, room=0)).hidden)

    bare = without_taps(model)
    laps = alternate(
        {
            "no taps": lambda: forced(bare, nullcontext()),
            "nobody listens": lambda: forced(model, nullcontext()),
            "cross-attention recorded": lambda: forced(model, record(model, "decoder.*.cross.look.weights")),
            "everything recorded": lambda: forced(model, record(model, "*")),
        },
        blocks=blocks,
    )
    equal = all(torch.equal(lap.answer, laps["no taps"].answer) for lap in laps.values())
    seconds = {name: lap.seconds for name, lap in laps.items()}
    others = {name: [1 / ratio - 1 for ratio in lap.ratios["no taps"]] for name, lap in laps.items() if name != "no taps"}
    more = {name: statistics.median(every) for name, every in others.items()}
    within = {name: interval(every) for name, every in others.items()}
    return {"size": size, "blocks": blocks, "seconds": seconds, "more": more, "interval": within, "bit_equal": equal}


def main() -> None:
    parser = argparse.ArgumentParser(description="What taps cost.")
    parser.add_argument("--blocks", type=int, default=41)
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "listening.json")
    given = parser.parse_args()
    rows = [measure(size, given.blocks) for size in given.sizes.split(",")]
    given.output.write_text(json.dumps(about_here() | {"threads": torch.get_num_threads(), "results": rows}, indent=1) + "\n")
    for row in rows:
        told = ", ".join(
            f"{name} {more:+.1%} ({row['interval'][name][0]:+.1%} to {row['interval'][name][1]:+.1%})"
            for name, more in row["more"].items()
        )
        print(f"{row['size']}: {told}; outputs {'bit-equal' if row['bit_equal'] else 'DIFFER'}")


if __name__ == "__main__":
    main()
