"""Cost as work grows: time and memory of a training step against sequence length, model size and batch, and the speed of
data preparation against the size of the corpus.

    python benchmarks/scaling.py                                    all parts -> JSON, and PNG if matplotlib is installed
    python benchmarks/scaling.py --parts length,data --quick
    python benchmarks/scaling.py --parts data --most-pairs 10000000
    python benchmarks/scaling.py --draw benchmarks/results/scaling_cpu.json

    length   every kind of SEQUENCE_LAYERS, causal, 32 … 8192 tokens, beside the paper's table of complexity
    size     the Transformer from dim 64 to the paper's big model
    batch    one Transformer, 1 … 256 rows
    families the model families, a fixed number of tokens in longer and longer sentences
    data     generated pairs: training a tokenizer, checking, encoding, planning an epoch

Steps are defined in scaling_steps.py and scaling_families.py, measured by scaling_meter.py; data: scaling_data.py. Work
grows until one step takes longer than --seconds or more memory than --gigabytes; the results record where that happened. Parts
that are not measured now stay in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import torch
from scaling_data import QUICK_PAIRS, against_pairs
from scaling_families import FAMILY_SHAPES, against_sentences
from scaling_meter import Meter
from scaling_steps import PARTS, SHAPES

HERE = Path(__file__).parent


def parse_arguments() -> argparse.Namespace:
    known = [*PARTS, "families", "data"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=known, help=",".join(known))
    parser.add_argument("--quick", action="store_true", help="tiny shapes, as a test")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--seconds", type=float, default=10.0, help="stop after a step that takes longer")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="stop after a step that needs more memory")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--most-pairs", type=int, default=1_000_000, help="10000000 takes ten times as long")
    parser.add_argument("--corpora", type=Path, help="folder that keeps the generated pairs")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/scaling_<device>.json")
    parser.add_argument("--pictures", type=Path, default=HERE.parent / "docs" / "pictures", help="a folder")
    parser.add_argument("--draw", type=Path, help="only draw the results in this file")
    args = parser.parse_args()
    unknown = [part for part in args.parts if part not in known]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; expected some of: {', '.join(known)}")
    return args


def measure(args: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)  # of the tokenizer, in the processes that prepare data
    device = torch.device(args.device)
    meter = Meter(device, args.seconds, args.gigabytes * 1e9, args.repetitions)
    shape = "quick" if args.quick else args.device
    cpu = f"{platform.system()} {platform.machine()}, {args.threads} thread{'s' if args.threads > 1 else ''}"
    where = {
        "machine": f"{cpu if device.type == 'cpu' else torch.cuda.get_device_name()}, {meter.precision}".replace("torch.", ""),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": date.today().isoformat(),
    }
    results: dict[str, Any] = {name: where | part(SHAPES[shape], meter) for name, part in PARTS.items() if name in args.parts}
    if "families" in args.parts:
        results["families"] = where | against_sentences(FAMILY_SHAPES[shape], meter)
    if "data" in args.parts:
        with tempfile.TemporaryDirectory() as folder:
            most = QUICK_PAIRS if args.quick else args.most_pairs
            results["data"] = where | {"machine": cpu} | against_pairs(most, args.corpora or Path(folder))
    return results


def complexity_table(results: dict[str, Any]) -> str:
    """The paper's complexity table and the measured exponents, one line per kind."""
    lines = [f"{'layer':<16}{'operations':<12}{'expected':>9}{'time':>9}{'memory':>9}  up to"]
    for name, kind in results["kinds"].items():
        measured = [f"n^{power:.2f}" if power is not None else "-" for power in kind["exponent"].values()]
        longest = f"{kind['points'][-1]['value']:,}" if kind["points"] else "-"
        why = f", where {kind['stopped']}" if kind["stopped"] else ""
        expected = f"n^{kind['expected_exponent']:g}"
        lines.append(f"{name:<16}{kind['cost']:<12}{expected:>9}{measured[0]:>9}{measured[1]:>9}  {longest}{why}")
    return "\n".join(lines)


def main() -> None:
    args = parse_arguments()
    if args.draw:
        results = json.loads(args.draw.read_text())
    else:
        output = args.output or HERE / "results" / f"scaling_{args.device}.json"
        results = (json.loads(output.read_text()) if output.exists() else {}) | measure(args)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(results, indent=1) + "\n")
    if "length" in results:
        print(complexity_table(results["length"]))
    try:
        from scaling_pictures import draw
    except ModuleNotFoundError as missing:
        print(f"no plots: {missing.name} is not installed; run --draw FILE where it is installed")
    else:
        for path in draw(results, args.pictures):
            print(path)


if __name__ == "__main__":
    main()
