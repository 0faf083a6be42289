"""Speed of this checkout beside another one of the same project, for example of the commit before a large change.

    git worktree add /tmp/before HEAD~10
    python benchmarks/versions.py /tmp/before                          -> benchmarks/results/versions.json
    python benchmarks/versions.py /tmp/before --device cuda --dim 512 --layers 6 --sentences 256

Each version has a process of its own. Blocks alternate between them, and the first of a pair changes from pair to pair. The
figure is the mean of the ratios new / old of the speeds of each pair, with its 95% interval (bootstrap). Training: updates of a
Transformer on random tokens, dropout 0.1, label smoothing 0.1. Decoding: `Translator.translate` of random sentences, greedy and
with a beam of 4, by a model of one training step, so that outputs are long; both versions must give the same translations.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORKS = ("train", "greedy", "beam")
# Options whose default depends on the version are set, so that both versions train the same model.
RECIPE = """
[data]
train = {{ tsv = "{folder}/pairs.tsv" }}
valid = {{ tsv = "{folder}/pairs.tsv" }}
pad_to_multiple_of = 1

[training]
precision = "fp32"
cuda_graphs = false

[tokenizer]
kind = "words"
min_frequency = 1

[search]
max_length = 40
max_extra = 40
"""


def training(options: argparse.Namespace) -> Callable[[], object]:
    """One block of updates."""
    import torch

    from heedful.models.transformer import Transformer, TransformerConfig
    from heedful.nn.losses import projected_cross_entropy

    vocab, rows, length = 8000, options.rows, 24
    torch.manual_seed(0)
    config = TransformerConfig(dim=options.dim, layers=options.layers, heads=8, feed_forward=4 * options.dim, dropout=0.1)
    model = Transformer(config, vocab, vocab).to(options.device).train()
    weight = next(parameter for parameter in model.parameters() if len(parameter) == vocab)  # tied, in either version
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def block() -> None:
        for _ in range(options.updates):
            source, target = torch.randint(4, vocab, (2, rows, length), device=options.device)
            step = model.step(target, model.start(source, None, room=0))
            loss, _ = projected_cross_entropy(step.hidden.flatten(0, 1), weight, target.flatten(), padding=0, smoothing=0.1)
            (loss.total / loss.count).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if options.device == "cuda":
            torch.cuda.synchronize()

    return block


def decoding(options: argparse.Namespace, folder: Path) -> dict[str, Callable[[], object]]:
    """The translation of all sentences, by each search."""
    import heedful

    run = folder / f"run-{os.getpid()}"
    model = [
        f"model.dim={options.dim}",
        f"model.layers={options.layers}",
        "model.heads=8",
        f"model.feed_forward={4 * options.dim}",
    ]
    heedful.train(folder / "recipe.toml", [*model, "training.steps=1"], run=run, device=options.device)
    translator: Any = heedful.load(run, device=options.device)  # of either version
    lines = (folder / "sources.txt").read_text().splitlines()[: options.sentences]
    return {
        "greedy": lambda: translator.translate(lines, method="greedy"),
        "beam": lambda: translator.translate(lines, beam=4),
    }


def write_data(folder: Path) -> None:
    draw = random.Random(1)
    words = [f"w{i}" for i in range(4000)]
    sentences = [" ".join(draw.choices(words, k=draw.randint(8, 24))) for _ in range(600)]
    (folder / "pairs.tsv").write_text("".join(f"{one}\t{one}\n" for one in sentences))
    (folder / "sources.txt").write_text("".join(f"{one}\n" for one in sentences))
    (folder / "recipe.toml").write_text(RECIPE.format(folder=folder))


def serve(options: argparse.Namespace) -> None:
    """Answer the name of a work with its seconds and a digest of its result, line by line."""
    import hashlib

    import torch

    torch.set_num_threads(options.threads)
    answers, sys.stdout = sys.stdout, sys.stderr
    works = {"train": training(options), **decoding(options, options.folder)}
    for line in sys.stdin:
        began = time.perf_counter()
        result = works[line.strip()]()
        seconds = time.perf_counter() - began
        digest = hashlib.sha256(repr(result).encode()).hexdigest()[:16]
        print(json.dumps([seconds, digest]), file=answers, flush=True)


class Version:
    """A process that works with the code of one checkout."""

    def __init__(self, tree: Path, arguments: list[str]) -> None:
        environment = os.environ | {"PYTHONPATH": str(tree / "src")}
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(tree), *arguments, "--serve"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __call__(self, work: str) -> tuple[float, str]:
        assert self.process.stdin is not None and self.process.stdout is not None, "both are pipes"
        print(work, file=self.process.stdin, flush=True)
        seconds, digest = json.loads(self.process.stdout.readline())
        return seconds, digest


def interval(ratios: list[float]) -> list[float]:
    draw = random.Random(0)
    means = sorted(sum(draw.choices(ratios, k=len(ratios))) / len(ratios) for _ in range(10_000))
    return [round(means[250], 3), round(means[-251], 3)]


def compare(versions: dict[str, Version], blocks: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for work in WORKS:
        digests = {name: version(work)[1] for name, version in versions.items()}  # the first one warms up
        assert len(set(digests.values())) == 1, f"{work}: the versions give different results"
        pairs = []
        for block in range(blocks):
            order = ["old", "new"] if block % 2 == 0 else ["new", "old"]
            seconds = {name: versions[name](work)[0] for name in order}
            pairs.append((seconds["old"], seconds["new"]))
        ratios = [old / new for old, new in pairs]
        found[work] = {
            "blocks": blocks,
            "old_seconds": [round(old, 3) for old, _ in pairs],
            "new_seconds": [round(new, 3) for _, new in pairs],
            "speed_new_over_old": round(sum(ratios) / len(ratios), 3),
            "interval_95": interval(ratios),
        }
        print(work, found[work]["speed_new_over_old"], found[work]["interval_95"], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="the checkout to compare with")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--updates", type=int, default=4, help="updates in a block of training")
    parser.add_argument("--rows", type=int, default=64, help="sentences of an update")
    parser.add_argument("--sentences", type=int, default=32, help="sentences to translate")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "versions.json")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return
    from peers.machine import machine_info

    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        arguments = [*sys.argv[2:], "--folder", folder]
        trees = {"old": options.tree, "new": Path(__file__).parent.parent}
        versions = {name: Version(tree.resolve(), arguments) for name, tree in trees.items()}
        found = compare(versions, options.blocks)
        for version in versions.values():
            version.process.terminate()
    sizes = {name: getattr(options, name) for name in ("dim", "layers", "rows", "updates", "sentences", "threads", "device")}
    options.output.write_text(json.dumps(machine_info() | sizes | found, indent=1) + "\n")


if __name__ == "__main__":
    main()
