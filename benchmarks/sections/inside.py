"""What looking inside found: alignments, positions, heads, and what listening costs."""

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
    found = read("alignment.json")
    return (
        "## Word alignment\n\nAlignment error rate on the 200 test sentences of alignment-en-fr; models trained on anki-en-fr; "
        "thresholds, heads and rules chosen on the 100 validation sentences. By layer: the mean of all heads, one link for "
        f"every target word ({found['machine']}, torch {found['torch']}, {found['date']}).\n"
        f"\n`python benchmarks/alignment.py`\n\n{table(ALIGNMENT_HEAD, alignment_rows(found))}\n{builtin_alignment()}"
    )


def builtin_alignment() -> str:
    if not measured("builtin_alignment.json"):
        return ""
    found = read("builtin_alignment.json")
    return (
        "\nThe same on 1,000 unseen sentences of the built-in corpus, whose links are exact; everything chosen on 500 others; "
        "guided by what both directions found in the training text, or by its exact links "
        f"({found['machine']}, torch {found['torch']}, {found['date']}).\n"
        f"\n`python benchmarks/builtin_alignment.py`\n\n{table(ALIGNMENT_HEAD, alignment_rows(found))}\n"
    )


def positions() -> str:
    if not measured("positions.json"):
        return ""
    found = read("positions.json")
    head, *rows = position_rows(found)
    return (
        f"## Positions beyond training\n\nA Transformer of two layers for each scheme learns to {found['toy']} up to "
        f"{found['trained_to']} symbols in {found['steps']} steps and is asked for up to twice as many: the share of sequences "
        "that greedy search gets right to the last symbol, by their length, and of symbols that are right after a right "
        f"beginning. One seed, one thread ({found['machine']}, torch {found['torch']}, {found['date']}).\n"
        f"\n`python benchmarks/positions.py`\n\n{table(head, rows)}\n\n![by length](pictures/positions-beyond.png)\n"
    )


def neighbors() -> str:
    if not measured("heads.json"):
        return ""
    found = read("heads.json")["models"]
    return (
        f"## Heads that look at a neighbor\n\n{heads_text(found)}\n\n`python benchmarks/heads.py --help`\n"
        f"\n{table(NEIGHBORS_HEAD, head_rows(found))}\n"
    )


def pruning() -> str:
    if not measured("pruning.json"):
        return ""
    found = read("pruning.json")
    return (
        f"## Fewer heads\n\n{pruning_text(found)}\n\n`python benchmarks/pruning.py --help`\n"
        f"\n{table(HEAD, pruning_rows(found))}\n\n![BLEU against heads kept](pictures/pruning.png)\n"
        f"{pruning_speed()}{pruning_again()}"
    )


def pruning_speed() -> str:
    """How much smaller and faster, on each machine where that was measured."""
    found = [read(path.name) for path in sorted(RESULTS.glob("pruning_speed_*.json"))]
    rows = [[one["speed"]["machine"], *row] for one in found for row in chosen_rows(one)]
    return f"\n{chosen_text(found[0])}\n\n{table(['', *CHOSEN_HEAD], rows)}\n" if found else ""


def pruned_models() -> dict[str, dict[str, Any]]:
    """The first model, and those from other seeds."""
    others = {f"seed {path.stem.split('-')[1]}": read(path.name) for path in sorted(RESULTS.glob("pruning-*.json"))}
    return {"first": read("pruning.json")} | others


def pruning_again() -> str:
    """The same for models from other seeds, where there are some."""
    models = pruned_models()
    if len(models) == 1:
        return ""
    penalty = list(models.values())[-1]["points"][0]["amount"]
    return f"\n{seed_text(models, penalty)}\n\n{table(SEEDS_HEAD, seed_rows(models, penalty))}\n"


def listening() -> str:
    found = read("listening.json")
    asked = list(found["results"][0]["more"])
    rows = [[one["size"], *(more_of(one, name) for name in asked)] for one in found["results"]]
    same = all(one["bit_equal"] for one in found["results"])
    return (
        "## What taps cost\n\nA forced pass over 8 pairs of 32 tokens, eager, against the same model with its taps taken out; "
        f"outputs {'are bit-equal' if same else 'DIFFER'}. Medians on {found['threads']} threads, in brackets their "
        f"95% intervals: with nobody listening of {found['results'][0]['pairs']:,} pairs of passes, else of "
        f"{found['results'][0]['blocks']} alternating blocks of a second "
        f"({found['machine']}, torch {found['torch']}, {found['date']}).\n"
        f"\n`python benchmarks/listening.py`\n\n{table(['size', *asked], rows)}\n"
    )


def more_of(one: dict[str, Any], name: str) -> str:
    low, high = one["interval"][name]
    return f"{one['more'][name]:+.1%} ({low:+.1%} to {high:+.1%})"
