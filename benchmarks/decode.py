"""Decoding speed compared with Hugging Face's `generate` and CTranslate2: same weights, alternating blocks.

    python benchmarks/decode.py --parts gpu,cpu,file --peers hf,ct2 --run RUN --output FILE

gpu    base size, 37,000 words, sources of 32 tokens, 64 new tokens per row: 64 rows greedy, 64 and 256 rows with a beam of 4
cpu    the same for 32 rows with a beam of 4, in fp32 and int8
file   the test set of a trained run from text to text with a beam of 5, on the GPU where there is one

In `gpu` and `cpu` no hypothesis ends early: the end token of the random model has a zero embedding, so its logit is 0, far
below the maximum of that many logits. No system needs a rule that forbids it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from decode_file import measure_file
from peers.decoders import DECODERS, Decoder, Sources
from peers.laps import Lap, alternate
from peers.machine import machine_info
from peers.models import SIZES, Size
from peers.processes import in_processes

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.search import SearchConfig
from heedful.text.specials import Specials

SPECIALS = Specials(0, 1, 2, 3)
SOURCE, TARGET = 32, 64  # tokens, including the end token


class Row(NamedTuple):
    rows: int
    beam: int

    def __str__(self) -> str:
        return f"{self.rows} x beam {self.beam}" if self.beam > 1 else f"{self.rows} rows greedy"


class Part(NamedTuple):
    """Rows of the table, and the precisions of each system."""

    device: str
    rows: list[Row]
    precisions: dict[str, tuple[str, ...]]


PARTS = {
    "gpu": Part("cuda", [Row(64, 1), Row(64, 4), Row(256, 4)], {"heedful": ("bf16",), "hf": ("bf16",)}),
    "cpu": Part("cpu", [Row(32, 4)], {"heedful": ("fp32", "int8"), "hf": ("fp32",), "ct2": ("fp32", "int8")}),
}
PACKAGES = {"hf": "transformers", "ct2": "ctranslate2"}


def measure_part(part: Part, size: Size, peers: Sequence[str], blocks: int) -> list[dict[str, Any]]:
    """On a CPU every system runs in its own process; on a GPU, where host threads matter little, all share one process."""
    makers = {
        f"{name} {precision}": partial(
            make_decoder, name, Weights(size, precision, part.device), TARGET, torch.get_num_threads()
        )
        for name, precisions in part.precisions.items()
        if name == "heedful" or name in peers
        for precision in precisions
    }
    results = []
    with (
        in_processes(makers)
        if part.device == "cpu"
        else nullcontext({name: make() for name, make in makers.items()}) as decoders
    ):
        for row in part.rows:
            sources = torch.randint(len(SPECIALS), size.vocab, (row.rows, SOURCE - 1)).tolist()
            laps = alternate({name: partial(decode, sources, row.beam) for name, decode in decoders.items()}, blocks=blocks)
            results += [result_row(str(row), name, lap, row.rows, row.rows * TARGET) for name, lap in laps.items()]
    return results


class Weights(NamedTuple):
    """A random model, the same in every process."""

    size: Size
    precision: str
    device: str


def make_decoder(name: str, weights: Weights, target: int, threads: int) -> Callable[[Sources, int], None]:
    """Build a system: a function of sources and beam size that decodes and returns nothing."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = random_model(weights.size)
    return exactly(name, DECODERS[name](model, SPECIALS, weights.precision, torch.device(weights.device)), target)


def random_model(size: Size) -> Transformer:
    config = TransformerConfig(dim=size.dim, layers=size.layers, heads=size.heads, feed_forward=size.hidden)
    model = Transformer(config, size.vocab, size.vocab).eval()
    model.embedding.target.weight.data[SPECIALS.end] = 0.0
    return model


def exactly(name: str, decode: Decoder, target: int) -> Callable[[Sources, int], None]:
    """Check that every row has `target` tokens; ours end with the end token, the peers' are cut off without it."""
    ends = name == "heedful"

    def call(sources: Sources, beam: int) -> None:
        lengths = [len(best) + ends for best, *_ in decode(sources, fixed(beam, target - ends))]
        if lengths != [target] * len(sources):
            raise SystemExit(
                f"{name} generated {sorted(set(lengths))} tokens in {len(lengths)} rows; expected {target} in each"
            )

    return call


def fixed(beam: int, length: int) -> SearchConfig:
    if beam == 1:
        return SearchConfig(method="greedy", max_length=length, max_extra=length)
    return SearchConfig(beam=beam, penalty="power", length_penalty=0.0, max_length=length, max_extra=length)


def result_row(row: str, system: str, lap: Lap[Any], sentences: int, tokens: int) -> dict[str, Any]:
    return {
        "row": row,
        "system": system,
        "tokens_per_second": round(tokens / lap.seconds, 1),
        "sentences_per_second": round(sentences / lap.seconds, 2),
        "first_call_seconds": round(lap.first, 2),
        "ratio": {other: round(ratio, 3) for other, ratio in lap.ratio.items()},
    }


def file_rows(laps: Mapping[str, Lap[Any]], file: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        result_row(f"file on {file['device']}", name, lap, file["sentences"], file["tokens"][name])
        | {"bleu": file["bleu"][name]}
        for name, lap in laps.items()
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    head = ["", "", "tokens/s", "sentences/s", "first call", "BLEU", "times as fast as"]
    cells = [
        [
            one["row"],
            one["system"],
            f"{one['tokens_per_second']:,.0f}",
            f"{one['sentences_per_second']:,.1f}",
            f"{one['first_call_seconds']:.2f} s",
            f"{one['bleu']:.2f}" if "bleu" in one else "",
            ", ".join(f"{other} {ratio:.2f}" for other, ratio in one["ratio"].items() if compared(one["system"], other)),
        ]
        for one in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    sides = ["<", "<", ">", ">", ">", ">", "<"]
    return "\n".join(
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)).rstrip()
        for line in [head, *cells]
    )


def compared(system: str, other: str) -> bool:
    """Only our systems are compared, with the peers."""
    return system.startswith("heedful") and not other.startswith("heedful")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=["cpu"], help="gpu, cpu, file")
    parser.add_argument("--peers", type=lambda text: [peer for peer in text.split(",") if peer], default=["hf", "ct2"])
    parser.add_argument("--run", type=Path, help="a run folder, for the part `file`")
    parser.add_argument("--every", type=int, default=1, help="compare every N-th sentence of the file with the plain search")
    parser.add_argument("--size", choices=list(SIZES), default="base")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.parts if name not in (*PARTS, "file")]:
        parser.error(f"given part {unknown[0]!r}, expected one of: {', '.join((*PARTS, 'file'))}")
    if unknown := [name for name in options.peers if name not in PACKAGES]:
        parser.error(f"given peer {unknown[0]!r}, expected one of: {', '.join(PACKAGES)}")
    if missing := [PACKAGES[name] for name in options.peers if find_spec(PACKAGES[name]) is None]:
        parser.error(f"{missing[0]} is not installed; pip install 'heedful[benchmark]', or remove it from --peers")
    if "gpu" in options.parts and not torch.cuda.is_available():
        parser.error("the part 'gpu' needs a GPU, but torch finds none")
    if "file" in options.parts and options.run is None:
        parser.error("the part 'file' needs a run folder; give it with --run")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    results: dict[str, Any] = {
        **machine_info(*(PACKAGES[peer] for peer in options.peers)),
        "threads": options.threads,
        "rows": [],
    }
    for name in options.parts:
        if name == "file":
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            laps, results["file"] = measure_file(options.run, options.peers, options.blocks, device, every=options.every)
            results["rows"] += file_rows(laps, results["file"])
        else:
            results["rows"] += measure_part(PARTS[name], SIZES[options.size], options.peers, options.blocks)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results["rows"]))
    if "file" in results:
        print(json.dumps(results["file"], indent=1))


if __name__ == "__main__":
    main()
