"""How good: translations on real data."""

from __future__ import annotations

import statistics

from quality_rows import Row, bleu, mean, quality_rows

from sections import RESULTS, table


def quality() -> str:
    found = quality_rows(RESULTS / "quality")
    if not found:
        return ""
    head = ["data", "seeds", "BLEU, cased", "lower-cased", "chrF", "seconds", "HF Marian", "difference", "machine", "date"]
    signatures = sorted({one["scores"]["bleu"]["signature"] for row in found for one in row.seeds})
    return (
        "## Quality\n\nSingle models on the test sets of their data: the mean of the seeds and each of them. Seconds are "
        "those of the whole training, imports, data, tokenizer, compilation and validation included, on a machine that several "
        "runs shared. "
        "Settings were chosen on the validation sets. HF Marian is a model of the same size and tokenizer, trained by "
        "`benchmarks/peers/translation.py` for the seconds in brackets, to which imports, data and tokenizer are not counted: "
        "they are the same as what `training.minutes` gave ours; of several peers the one with the best validation BLEU. "
        f"Signature: {' and '.join(f'`{signature}`' for signature in signatures)}.\n\n`python benchmarks/quality.py --help`\n"
        f"\n{table(head, [cells(row) for row in found])}\n"
    )


def cells(row: Row) -> list[str]:
    each = f" ({', '.join(f'{bleu(one):.2f}' for one in row.seeds)})" if len(row.seeds) > 1 else ""
    return [
        f"{row.data}, {row.source} -> {row.target}",
        str(len(row.seeds)),
        f"{mean(row.seeds):.2f}{each}",
        f"{mean(row.seeds, 'lowercased'):.2f}",
        f"{statistics.mean(one['scores']['chrf']['value'] for one in row.seeds):.2f}",
        f"{statistics.mean(one['train_seconds'] for one in row.seeds):.0f}",
        f"{bleu(row.peer):.2f} ({row.peer['train_seconds']:.0f} s)" if row.peer else "",
        f"{mean(row.seeds) - bleu(row.peer):+.2f}" if row.peer else "",
        ", ".join(sorted({one["machine"] for one in row.seeds})),
        ", ".join(sorted({one["date"] for one in row.seeds})),
    ]
