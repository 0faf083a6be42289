"""Back-translation on Multi30k, English to German, with half of the pairs made monolingual.

    python benchmarks/backtranslation.py

    1. split the training pairs by a seeded permutation: half A stays parallel, of half B only the German side is kept
    2. train the reverse model, German to English, on A
    3. translate B into English with it: synthetic pairs
    4. train the forward model on A alone, and on A with the synthetic pairs, tagged; both with the same recipe and steps
    5. BLEU of both on test2016, and the paired bootstrap test of their difference

Nothing is chosen on the test set. With --data a folder such as data/multi30k; default: multi30k in ./data or $HEED_DATA.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from peers.machine import machine_info

from heedful.data.sources import find_folder
from heedful.tasks.translation.backtranslation import TAG

Lines = list[str]


def heed(*arguments: str | Path, capture: bool = False) -> str:
    """Run a command; return its output if it is captured."""
    command = [sys.executable, "-m", "heedful", *map(str, arguments)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE if capture else None, text=True)
    return result.stdout or ""


def read(path: Path) -> Lines:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def write_halves(data: Path, folder: Path, seed: int, count: int | None) -> dict[str, int]:
    """Write a.en, a.de and b.de; the English side of B is not used anywhere."""
    english, german = (read(data / f"train.{language}.gz")[:count] for language in ("en", "de"))
    order = np.random.default_rng(seed).permutation(len(english))
    first, second = np.array_split(order, 2)
    for name, lines, chosen in (("a.en", english, first), ("a.de", german, first), ("b.de", german, second)):
        (folder / name).write_text("".join(f"{lines[i]}\n" for i in chosen))
    return {"parallel": len(first), "monolingual": len(second)}


def train(name: str, folder: Path, data: Path, corpora: list[str], options: argparse.Namespace) -> float:
    """Train the run `name` and return the seconds."""
    recipe, languages = ("multi30k-de-en", '["de", "en"]') if name == "reverse" else ("multi30k-en-de", '["en", "de"]')
    started = time.monotonic()
    splits = {"valid": "valid", "test": "test2016"}
    held_out = [f'data.{split}={{folder="{data}", languages={languages}, split="{file}"}}' for split, file in splits.items()]
    overrides = [f"data.train=[{', '.join(corpora)}]", *held_out]
    heed("train", recipe, *overrides, f"seed={options.seed}", *options.overrides, "--run", folder / name)
    return round(time.monotonic() - started, 1)


def experiment(data: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    sizes = write_halves(data, folder, options.seed, options.pairs)
    genuine = f'{{source="{folder}/a.en", target="{folder}/a.de"}}'
    reverse = f'{{source="{folder}/a.de", target="{folder}/a.en"}}'
    synthetic = f'{{jsonl="{folder}/synthetic.jsonl", tag="{TAG}"}}'
    with ThreadPoolExecutor() as pool:  # both at a time: steps are counted, not minutes
        corpora = {"reverse": [reverse], "baseline": [genuine]}
        seconds = dict(
            zip(corpora, pool.map(lambda name: train(name, folder, data, corpora[name], options), corpora), strict=True)
        )
    search = ["-s", "method=sample"] if options.method == "sample" else []
    started = time.monotonic()
    heed("backtranslate", folder / "reverse", folder / "b.de", "--output", folder / "synthetic.jsonl", *search)
    seconds["backtranslate"] = round(time.monotonic() - started, 1)
    seconds["augmented"] = train("augmented", folder, data, [genuine, synthetic], options)
    compared: list[str | Path] = ["--against", folder / "baseline"]
    scores = {
        name: json.loads(heed("evaluate", folder / name, "--json", *more, capture=True))
        for name, more in (("reverse", compared[:0]), ("baseline", compared[:0]), ("augmented", compared))
    }
    comparison = scores["augmented"]["comparison"]["bleu"]
    return {
        **sizes,
        "synthetic_pairs": len((folder / "synthetic.jsonl").read_text().splitlines()),
        "method": options.method,
        "overrides": options.overrides,
        "seed": options.seed,
        "bleu": {name: score["scores"]["bleu"] for name, score in scores.items()},
        "difference": comparison,
        "above_baseline": comparison["difference"] > 0,
        "seconds": seconds,
        **machine_info(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="overrides of the recipes, for all three models: training.steps=1000 …")
    parser.add_argument("--data", type=Path, help="folder of Multi30k; default: multi30k in ./data or $HEED_DATA")
    parser.add_argument("--method", choices=("beam", "sample"), default="beam")
    parser.add_argument("--pairs", type=int, help="use only the first pairs; default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "backtranslation.json")
    options = parser.parse_args()
    data = (options.data or find_folder("multi30k")).resolve()
    with tempfile.TemporaryDirectory() as folder:
        result = experiment(data, Path(folder), options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    bleu = {name: round(score["value"], 2) for name, score in result["bleu"].items()}
    print(f"BLEU {bleu}; difference {result['difference']}")


if __name__ == "__main__":
    main()
