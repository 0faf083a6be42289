"""Alignment, positions, heads, and the cost of hook points."""

from __future__ import annotations

from typing import Any

from alignment_rows import ALIGNMENT_HEAD, alignment_rows
from head_rows import HEAD as NEIGHBORS_HEAD
from head_rows import head_rows, heads_text
from position_rows import position_rows
from pruning_rows import (
    CHOSEN_HEAD,
    HEAD,
    SEEDS_HEAD,
    chosen_rows,
    chosen_text,
    pruning_rows,
    pruning_text,
    seed_rows,
    seed_text,
)

from sections import RESULTS, measured, read, table


def alignment() -> str:
    if not measured("alignment.json"):
        return ""
    results = read("alignment.json")
    return (
        "## Word alignment\n\nAlignment error rate on the 200 test sentences of alignment-en-fr; models trained on anki-en-fr; "
        "thresholds, heads and rules selected on the 100 validation sentences. By layer: the mean of all heads, one link per "
        f"target word ({results['machine']}, torch {results['torch']}, {results['date']}).\n"
        f"\n`python benchmarks/alignment.py`\n\n{table(ALIGNMENT_HEAD, alignment_rows(results))}\n{builtin_alignment()}"
    )


def builtin_alignment() -> str:
    if not measured("builtin_alignment.json"):
        return ""
    results = read("builtin_alignment.json")
    return (
        "\nThe same on 1,000 unseen sentences of the built-in corpus with exact gold links; everything selected on 500 "
        "others; guided by the links of both directions on the training text, or by its gold links "
        f"({results['machine']}, torch {results['torch']}, {results['date']}).\n"
        f"\n`python benchmarks/builtin_alignment.py`\n\n{table(ALIGNMENT_HEAD, alignment_rows(results))}\n"
    )


def positions() -> str:
    if not measured("positions.json"):
        return ""
    results = read("positions.json")
    head, *rows = position_rows(results)
    return (
        f"## Length generalization by positional scheme\n\nA two-layer Transformer for each scheme "
        f"learns to {results['toy']} up to {results['trained_to']} symbols in {results['steps']} steps and is "
        "tested on up to twice as many: the share of sequences that greedy search copies without error, by length, and of "
        f"symbols predicted correctly after a correct prefix. One seed, one thread "
        f"({results['machine']}, torch {results['torch']}, {results['date']}).\n"
        f"\n`python benchmarks/positions.py`\n\n{table(head, rows)}\n\n![by length](pictures/positions-beyond.png)\n"
    )


def neighbors() -> str:
    if not measured("heads.json"):
        return ""
    results = read("heads.json")["models"]
    return (
        f"## Previous- and next-token heads\n\n{heads_text(results)}\n\n`python benchmarks/heads.py --help`\n"
        f"\n{table(NEIGHBORS_HEAD, head_rows(results))}\n"
    )


def pruning() -> str:
    if not measured("pruning.json"):
        return ""
    results = read("pruning.json")
    return (
        f"## Head pruning\n\n{pruning_text(results)}\n\n`python benchmarks/pruning.py --help`\n"
        f"\n{table(HEAD, pruning_rows(results))}\n\n![BLEU by heads kept](pictures/pruning.png)\n"
        f"{pruning_speed()}{pruning_again()}"
    )


def pruning_speed() -> str:
    """Size and speed on each measured machine."""
    results = [read(path.name) for path in sorted(RESULTS.glob("pruning_speed_*.json"))]
    rows = [[result["speed"]["machine"], *row] for result in results for row in chosen_rows(result)]
    return f"\n{chosen_text(results[0])}\n\n{table(['', *CHOSEN_HEAD], rows)}\n" if results else ""


def pruned_models() -> dict[str, dict[str, Any]]:
    """The first model and those of other seeds."""
    others = {f"seed {path.stem.split('-')[1]}": read(path.name) for path in sorted(RESULTS.glob("pruning-*.json"))}
    return {"first": read("pruning.json")} | others


def pruning_again() -> str:
    """The same for models of other seeds, if any."""
    models = pruned_models()
    if len(models) == 1:
        return ""
    penalty = list(models.values())[-1]["points"][0]["amount"]
    return f"\n{seed_text(models, penalty)}\n\n{table(SEEDS_HEAD, seed_rows(models, penalty))}\n"


LABELS = {"nobody listens": "no hooks", "no hooks registered": "no hooks"}  # name in listening.json -> column


def listening() -> str:
    results = read("listening.json")
    names = list(results["results"][0]["more"])
    rows = [[result["size"], *(more_of(result, name) for name in names)] for result in results["results"]]
    same = all(result["bit_equal"] for result in results["results"])
    return (
        "## Overhead of hook points\n\nA teacher-forced pass over 8 pairs of 32 tokens, eager, compared with the same model "
        f"without hook points; outputs {'are bit-identical' if same else 'DIFFER'}. Medians on {results['threads']} threads, "
        f"in brackets 95% intervals: without hooks over {results['results'][0]['pairs']:,} pairs of passes, otherwise over "
        f"{results['results'][0]['blocks']} alternating blocks of a second "
        f"({results['machine']}, torch {results['torch']}, {results['date']}).\n"
        f"\n`python benchmarks/listening.py`\n\n{table(['size', *(LABELS.get(name, name) for name in names)], rows)}\n"
    )


def more_of(result: dict[str, Any], name: str) -> str:
    low, high = result["interval"][name]
    return f"{result['more'][name]:+.1%} ({low:+.1%} to {high:+.1%})"
