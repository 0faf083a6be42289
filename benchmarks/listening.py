"""The cost of hook points: without hooks, and while cross-attention weights are recorded.

python benchmarks/listening.py [--pairs 1000] [--blocks 21] [--output benchmarks/results/listening.json]

One teacher-forced pass over 8 pairs of 32 tokens, eager: the model against the same model without hook points, in alternating
passes, since the difference is small; and, in alternating blocks, against the model while the cross-attention weights of all
heads are recorded, and while all hook points are recorded.
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
from peers.machine import machine_info
from torch import Tensor

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.hooks import HookPoint, record

SIZES = {
    "small": (TransformerConfig(dim=256, layers=3, heads=4, feed_forward=1024), 10_000),
    "base": (TransformerConfig(), 37_000),
}
ROWS, TIME = 8, 32
SEED = 1


def without_hook_points(model: Transformer) -> Transformer:
    """A copy in which identity functions replace the hook points."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        for name in [name for name, child in module.named_children() if isinstance(child, HookPoint)]:
            del module._modules[name]
            module.__dict__[name] = Identity()
    return copied


class Identity(SimpleNamespace):
    wanted = changes = False

    def __call__(self, x: Tensor) -> Tensor:
        return x


def measure(size: str, pairs: int, blocks: int) -> dict[str, Any]:
    config, vocab = SIZES[size]
    torch.manual_seed(SEED)
    model = Transformer(config, vocab, vocab).eval()
    source, target = (torch.randint(4, vocab, (ROWS, TIME)) for _ in range(2))

    def forward(used: Transformer, context: AbstractContextManager[Any]) -> Tensor:
        with torch.inference_mode(), context:
            return used.project(used.step(target, used.start(source, None, room=0)).hidden)

    bare = without_hook_points(model)
    baseline = {"no hook points": lambda: forward(bare, nullcontext())}
    unused = {"no hooks registered": lambda: forward(model, nullcontext())}
    recording = {
        "cross-attention recorded": lambda: forward(model, record(model, "decoder.*.cross_attention.weights")),
        "everything recorded": lambda: forward(model, record(model, "*")),
    }
    one_by_one = alternate(baseline | unused, blocks=pairs, least=0.0)
    laps = alternate(baseline | recording, blocks=blocks)
    laps["no hooks registered"] = one_by_one["no hooks registered"]
    equal = all(torch.equal(lap.answer, laps["no hook points"].answer) for lap in laps.values())
    ratios = {name: laps[name].ratios["no hook points"] for name in (*unused, *recording)}
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
    parser = argparse.ArgumentParser(description="The cost of hook points.")
    parser.add_argument("--pairs", type=int, default=1000, help="pairs of passes with and without hook points")
    parser.add_argument("--blocks", type=int, default=21)
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "listening.json")
    args = parser.parse_args()
    rows = [measure(size, args.pairs, args.blocks) for size in args.sizes.split(",")]
    args.output.write_text(json.dumps(machine_info() | {"threads": torch.get_num_threads(), "results": rows}, indent=1) + "\n")
    for row in rows:
        text = ", ".join(
            f"{name} {more:+.1%} ({row['interval'][name][0]:+.1%} to {row['interval'][name][1]:+.1%})"
            for name, more in row["more"].items()
        )
        print(f"{row['size']}: {text}; outputs {'bit-equal' if row['bit_equal'] else 'DIFFER'}")


if __name__ == "__main__":
    main()
