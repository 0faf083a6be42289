"""Quality on real data: translation, a recipe without options, and the starters of `heed new`."""

from __future__ import annotations

import statistics

from quality_rows import Row, bleu, mean, quality_rows

from sections import RESULTS, measured, read, table


def quality() -> str:
    results = quality_rows(RESULTS / "quality")
    if not results:
        return ""
    head = ["data", "seeds", "BLEU, cased", "lower-cased", "chrF", "seconds", "HF Marian", "difference", "machine", "date"]
    signatures = sorted({result["scores"]["bleu"]["signature"] for row in results for result in row.seeds})
    return (
        "## Translation quality\n\nSingle models on the test sets of their data: the mean over seeds, and each seed. Seconds "
        "include imports, data, tokenizer, compilation and validation, on a machine shared by several runs. Settings were "
        "selected on the validation sets. HF Marian is a model of the same size with the same tokenizer, trained by "
        "`benchmarks/peers/translation.py` for the seconds in brackets, excluding imports, data and tokenizer: the same time "
        "as `training.minutes` gave ours; of several HF runs the one with the best validation BLEU. "
        f"Signature: {' and '.join(f'`{signature}`' for signature in signatures)}.\n\n`python benchmarks/quality.py --help`\n"
        f"\n{table(head, [cells(row) for row in results])}\n"
    )


def cells(row: Row) -> list[str]:
    each = f" ({', '.join(f'{bleu(result):.2f}' for result in row.seeds)})" if len(row.seeds) > 1 else ""
    return [
        f"{row.data}, {row.source} -> {row.target}",
        str(len(row.seeds)),
        f"{mean(row.seeds):.2f}{each}",
        f"{mean(row.seeds, 'lowercased'):.2f}",
        f"{statistics.mean(result['scores']['chrf']['value'] for result in row.seeds):.2f}",
        f"{statistics.mean(result['train_seconds'] for result in row.seeds):.0f}",
        f"{bleu(row.peer):.2f} ({row.peer['train_seconds']:.0f} s)" if row.peer else "",
        f"{mean(row.seeds) - bleu(row.peer):+.2f}" if row.peer else "",
        ", ".join(sorted({result["machine"] for result in row.seeds})),
        ", ".join(sorted({result["date"] for result in row.seeds})),
    ]


def no_options() -> str:
    if not measured("no_options.json"):
        return ""
    results = read("no_options.json")
    runs = results["runs"]
    rows = [
        [
            str(run["seed"]),
            f"{run['step']:,}",
            f"{run['seconds']:.1f}",
            *(f"{run['scores'][name]:.2f}" for name in ("bleu", "chrf")),
        ]
        for run in runs
    ]
    return (
        f"## A recipe without options\n\n`heed train {results['recipe']}` with no option but the seed, one run after the "
        f"other: wall time of the whole command, and scores on the test data, {results['bleu']:.2f} BLEU on average. Values "
        f"selected for the machine: {', '.join(f'`{value}`' for value in runs[0]['chosen'])}. "
        f"{results['machine']}, torch {results['torch']}, {results['date']}.\n"
        f"\n`python benchmarks/no_options.py`\n\n{table(['seed', 'steps', 'seconds', 'BLEU', 'chrF'], rows)}\n"
    )


def starters() -> str:
    if not measured("starters.json"):
        return ""
    results = read("starters.json")
    rows = [
        [
            one["task"],
            one["corpus"],
            f"{one['rows']:,}",
            f"{one['train_seconds']:.0f}",
            one["metric"].replace("_", " "),
            f"{one['value']:.4g}",
            ", ".join(f"{name} {value:.4g}" for name, value in one["baselines"].items()),
            "yes" if one["better_than_all"] else "no",
            f"{one['machine']}, torch {one['torch']}, {one['date']}",
        ]
        for one in results["starters"]
    ]
    head = ["task", "data", "rows", "seconds", "metric", "starter", "baselines", "better than all", "machine"]
    return (
        "## Starter recipes\n\nThe recipes that `heed new` writes, unchanged, with rows of real data in place of their example "
        "files: results on test data, compared with baselines on the same test data.\n"
        f"\n`python benchmarks/starters.py`\n\n{table(head, rows)}\n"
    )
