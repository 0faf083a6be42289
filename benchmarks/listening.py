"""What taps cost: with nobody listening, and with cross-attention being recorded.

python benchmarks/listening.py [--pairs 1000] [--blocks 21] [--output benchmarks/results/listening.json]

One forced pass over 8 pairs of 32 tokens, eager: the model as it is against the same model with its taps taken out, pass by
pass in turn, since the difference is small; and, in alternating blocks, that one against the model while every head's
cross-attention is recorded, and while everything that can be heard is.
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
from heedful.nn.hooks import HookPoint, record

SIZES = {
    "small": (TransformerConfig(dim=256, layers=3, heads=4, feed_forward=1024), 10_000),
    "base": (TransformerConfig(), 37_000),
}
ROWS, TIME = 8, 32
SEED = 1


def without_taps(model: Transformer) -> Transformer:
    """A copy in which plain functions stand where the taps stood."""
    made = copy.deepcopy(model)
    for module in made.modules():
        for name in [name for name, child in module.named_children() if isinstance(child, HookPoint)]:
            del module._modules[name]
            module.__dict__[name] = Silent()
    return made


class Silent(SimpleNamespace):
    wanted = changes = False

    def __call__(self, x: Tensor) -> Tensor:
        return x


def measure(size: str, pairs: int, blocks: int) -> dict[str, Any]:
    config, vocab = SIZES[size]
    torch.manual_seed(SEED)
    model = Transformer(config, vocab, vocab).eval()
    source, target = (torch.randint(4, vocab, (ROWS, TIME)) for _ in range(2))

    def forced(used: Transformer, listening: AbstractContextManager[Any]) -> Tensor:
        with torch.inference_mode(), listening:
            return used.project(used.step(target, used.start(source, None, room=0)).hidden)

    bare = without_taps(model)
    silent = {"no taps": lambda: forced(bare, nullcontext())}
    idle = {"nobody listens": lambda: forced(model, nullcontext())}
    heard = {
        "cross-attention recorded": lambda: forced(model, record(model, "decoder.*.cross_attention.weights")),
        "everything recorded": lambda: forced(model, record(model, "*")),
    }
    one_by_one = alternate(silent | idle, blocks=pairs, least=0.0)
    laps = alternate(silent | heard, blocks=blocks)
    laps["nobody listens"] = one_by_one["nobody listens"]
    equal = all(torch.equal(lap.answer, laps["no taps"].answer) for lap in laps.values())
    ratios = {name: laps[name].ratios["no taps"] for name in (*idle, *heard)}
    others = {name: [1 / ratio - 1 for ratio in every] for name, every in ratios.items()}
    return {
        "size": size,
        "pairs": pairs,
        "blocks": blocks,
        "seconds": {name: lap.seconds for name, lap in laps.items()},
        "more": {name: statistics.median(every) for name, every in others.items()},
        "interval": {name: interval(every) for name, every in others.items()},
        "bit_equal": equal,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What taps cost.")
    parser.add_argument("--pairs", type=int, default=1000, help="of passes with taps and without")
    parser.add_argument("--blocks", type=int, default=21)
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "listening.json")
    given = parser.parse_args()
    rows = [measure(size, given.pairs, given.blocks) for size in given.sizes.split(",")]
    given.output.write_text(json.dumps(about_here() | {"threads": torch.get_num_threads(), "results": rows}, indent=1) + "\n")
    for row in rows:
        told = ", ".join(
            f"{name} {more:+.1%} ({row['interval'][name][0]:+.1%} to {row['interval'][name][1]:+.1%})"
            for name, more in row["more"].items()
        )
        print(f"{row['size']}: {told}; outputs {'bit-equal' if row['bit_equal'] else 'DIFFER'}")


if __name__ == "__main__":
    main()
