"""What families.py measured, as a section of docs/results.md and as the headers of its recipes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headers import with_header

from heedful.recipe_files import MEASURED, all_recipes, settings_digest

Found = dict[str, Any]


def families_text(found: dict[str, Found]) -> str:
    """What stands above the table: of what the figures are."""
    first = next(iter(found.values()))
    test, short, lengths = first["test"], first["short"], first["lengths"]
    least, most = (pick(score["sentences"] for score in lengths.values()) for pick in (min, max))
    outermost = " and ".join((f"{min(map(int, lengths))} or fewer", f"{max(map(int, lengths))} or more"))
    threads = among(f"{one['threads']} thread" for one in found.values())
    return (
        "Every family learns the built-in corpus, English to Italian, by the recipe named: the same 60,000 generated pairs and "
        f"greedy search. Exact match and BLEU are of {test['sentences']:,} unseen sentences; {short['sentences']} of them have "
        f"up to {short['words']} words. Seconds are of the processor, validation included. The picture has {least} to {most} "
        f"unseen sentences of each length, {outermost} words together. {among(one['machine'] for one in found.values())}, "
        f"{threads}, torch {among(one['torch'] for one in found.values())}, {among(one['date'] for one in found.values())}."
    )


def among(texts: Iterator[str]) -> str:
    return " or ".join(sorted(set(texts)))


def families_head(found: dict[str, Found]) -> list[str]:
    words = next(iter(found.values()))["short"]["words"]
    return ["model", "recipe", "weights", "steps", "seconds", "exact match", f"up to {words} words", "BLEU"]


def families_rows(found: dict[str, Found]) -> list[list[str]]:
    return [
        [
            name,
            f"`{one['recipe']}`",
            f"{one['parameters']:,}",
            f"{one['steps']:,}",
            f"{one['seconds']:,.0f}",
            f"{one['test']['exact_match']['value']:.1f}%",
            f"{one['short']['exact_match']['value']:.1f}%",
            f"{one['test']['bleu']['value']:.1f}",
        ]
        for name, one in found.items()
    ]


def update_family_recipes(found: dict[str, Found]) -> Iterator[str]:
    """Write the headers of the recipes that were measured as they stand, and say what was done."""
    recipes = all_recipes()
    for one in found.values():
        path = recipes.get(one["recipe"])
        if path is None:
            yield f"{one['recipe']}: there is a result, but no recipe of that name"
        elif one["recipe"] == "demo":
            yield "demo: its header tells of `heed demo` on two cores"
        elif one["settings"] != settings_digest(path) or one["overrides"]:
            path.write_text(with_header(path.read_text(encoding="utf-8"), {}), encoding="utf-8")
            yield f"{one['recipe']}: it was measured with other settings"
        else:
            path.write_text(with_header(path.read_text(encoding="utf-8"), measured(one)), encoding="utf-8")
            yield f"{one['recipe']}: measured as it stands"


def measured(one: Found) -> dict[str, str]:
    exact, bleu = (one["test"][metric]["value"] for metric in ("exact_match", "bleu"))
    lines = {
        "result": f"exact match {exact:.1f}%, BLEU {bleu:.1f} on {one['test']['sentences']:,} unseen sentences",
        "machine": f"one CPU core, {one['threads']} thread",
        "minutes": f"{one['seconds'] / 60:.1f}",
        "date": one["date"],
    }
    return {name: lines[name] for name in MEASURED if name in lines}
