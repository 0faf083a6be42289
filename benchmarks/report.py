"""Write docs/results.md from benchmarks/results: every figure there comes from a file here.

python benchmarks/report.py
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def training_gpu() -> str:
    found = read("train.json")
    rows = [
        [
            one["size"],
            f"{one['tokens_per_second']['heedful']:,}",
            f"{one['tokens_per_second']['hf']:,} ({one['ratio']['hf']:.2f} x)",
            f"{one['tokens_per_second']['torch']:,} ({one['ratio']['torch']:.2f} x)",
            " / ".join(f"{one['peak_memory_bytes'][system] / 2**30:.1f}" for system in ("heedful", "hf", "torch")),
            f"{one['fraction_of_peak']:.0%}",
        ]
        for one in found["results"]
    ]
    head = ["size", "heedful", "HF Marian", "nn.Transformer", "memory, GiB (ours / HF / torch)", "of the chip's peak"]
    return (
        f"## Training on a GPU\n\nTarget tokens per second, bf16, {found['machine']}, torch {found['torch']}, {found['date']}; "
        "in brackets how many times as fast we are, the median of seven alternating blocks. Base and big: 800 x 32 random "
        "tokens a side, vocabulary 37,000, all compiled. Small (d256, 3 + 3 layers, vocabulary 10,000): real Multi30k "
        "batches of 4,096 tokens, padding not counted; the peers run eagerly there, since each batch has another shape.\n"
        f"\n`python benchmarks/train.py --peers hf,torch`\n\n{table(head, rows)}\n"
    )


def training_cpu() -> str:
    found = read("train_cpu.json")
    speeds = found["tokens_per_second"]
    return (
        f"## Training on two CPU cores\n\nd256, 3 + 3 layers, vocabulary 8,000, 64 x 24 tokens, fp32, dropout 0.1: heedful "
        f"{speeds['heedful']:,.0f}, HF Marian {speeds['marian']:,.0f} target tokens per second; median ratio of seven "
        f"alternating blocks {found['median_ratio']:.2f} ({found['machine']}, torch {found['torch']}, {found['date']}).\n"
        "\n`python benchmarks/train_cpu.py`\n"
    )


def multi30k() -> str:
    runs: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((RESULTS / "multi30k").glob("*.json")):
        runs.setdefault(path.stem.rsplit("-", 1)[0], []).append(json.loads(path.read_text()))
    rows = []
    for pair, seeds in runs.items():
        cased = [one["scores"]["bleu"]["value"] for one in seeds]
        lower = [one["lowercased"]["bleu"]["value"] for one in seeds]
        rows.append(
            [
                pair.replace("-", " -> "),
                str(len(seeds)),
                f"{statistics.mean(cased):.2f} ({', '.join(f'{value:.2f}' for value in cased)})",
                f"{statistics.mean(lower):.2f}",
                f"{statistics.mean(one['scores']['chrf']['value'] for one in seeds):.2f}",
                f"{statistics.mean(one['train_seconds'] for one in seeds):.0f}",
            ]
        )
    first = next(iter(runs.values()))[0]
    head = ["Multi30k test2016", "seeds", "BLEU, cased", "BLEU, lower-cased", "chrF", "seconds"]
    signature, overrides = first["scores"]["bleu"]["signature"], ",".join(first["overrides"][:3])
    return (
        f"## Multi30k\n\nThe recipe multi30k-en-de, single models, beam 5, on one {first['machine']} shared by five runs, "
        f"compilation and validation included, {first['date']}. Settings were chosen on the validation set. Signature: "
        f"`{signature}`.\n\n`bash benchmarks/multi30k.sh multi30k-en-de OUTPUT NAME:seed=1,{overrides}`\n"
        f"\n{table(head, rows)}\n"
    )


def survival() -> str:
    found = read("kill.json")
    same = all(found["identical"].values())
    return (
        f"## Killed and continued\n\n{found['kills']} times SIGKILL at random moments of runs of {found['steps']} steps, each "
        "time the same command again: weights, optimiser, running average and metrics "
        f"{'are bit-identical to' if same else 'DIFFER from'} those of a run that was never stopped ({found['date']}).\n"
        "\n`python benchmarks/kill.py`\n"
    )


def main() -> None:
    parts = [training_gpu(), training_cpu(), multi30k(), survival()]
    text = "# Results\n\nWritten by `python benchmarks/report.py` from `benchmarks/results`.\n\n" + "\n".join(parts)
    (ROOT / "docs" / "results.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
