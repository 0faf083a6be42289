"""Busy machines and time limits."""

from __future__ import annotations

from sections import read, table


def busy() -> str:
    results = read("busy.json")
    work = {"train": f"{results['steps']} steps of the demo", "translate": f"translation of {results['sentences']:,} sentences"}
    rows = [
        [
            name,
            f"{results[part]['spin-300000']['alone']:.1f} s",
            f"{results[part]['default']['alone']:.1f} s",
            f"{results[part]['default']['side_by_side']:.1f} s ({results[part]['default']['ratio']:.1f} x)",
        ]
        for part, name in work.items()
    ]
    head = ["work", "libgomp's default, alone", "heedful, alone", "heedful, three at once"]
    return (
        "## Several commands on one machine\n\nWall time of whole commands, medians "
        f"({results['machine']}, torch {results['torch']}, {results['date']}).\n"
        "\n`python benchmarks/busy.py --repeats 3 --settings spin-300000,default --alone spin-300000`\n"
        f"\n{table(head, rows)}\n"
    )


def time_limit() -> str:
    results = read("minutes.json")
    return (
        f"## Time limits\n\n`small` on {results['pairs']:,} pairs of tatoeba-pt-en with "
        f"`training.minutes={results['minutes']:g}`, two cores of an Intel Xeon: {results['seconds']:.1f} s "
        "including start-up, vocabulary and final validation; "
        f"{results['steps']} updates, the highest learning rate at update {results['highest_rate_at_step']} (warm-up shortened "
        f"from {results['configured_warmup']}), BLEU {results['best_bleu']:.1f} ({results['date']}).\n"
        "\n`python benchmarks/minutes.py`\n"
    )
