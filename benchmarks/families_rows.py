"""The results of families.py as a section of docs/results.md and as headers of its recipes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headers import is_measured, with_header

from heedful.runs.recipes import MEASURED, all_recipes

Result = dict[str, Any]


def families_text(results: dict[str, Result]) -> str:
    """The text above the table."""
    first = next(iter(results.values()))
    test, short, lengths = first["test"], first["short"], first["lengths"]
    least, most = (pick(score["sentences"] for score in lengths.values()) for pick in (min, max))
    outermost = " and ".join((f"{min(map(int, lengths))} or fewer", f"{max(map(int, lengths))} or more"))
    threads = join_distinct(f"{result['threads']} thread" for result in results.values())
    machine, torch, date = (join_distinct(result[key] for result in results.values()) for key in ("machine", "torch", "date"))
    return (
        "Every family is trained on the built-in corpus, English to Italian, with the recipe given: the same 60,000 generated "
        f"pairs and greedy search. Exact match and BLEU on {test['sentences']:,} unseen sentences; {short['sentences']} of "
        f"them have up to {short['words']} words. Seconds are CPU time, including validation. The plot has {least} to {most} "
        f"unseen sentences of each length, {outermost} words together. {machine}, {threads}, torch {torch}, {date}."
    )


def join_distinct(texts: Iterator[str]) -> str:
    return " or ".join(sorted(set(texts)))


def families_head(results: dict[str, Result]) -> list[str]:
    words = next(iter(results.values()))["short"]["words"]
    return ["model", "recipe", "parameters", "steps", "seconds", "exact match", f"up to {words} words", "BLEU"]


def families_rows(results: dict[str, Result]) -> list[list[str]]:
    return [
        [
            name,
            f"`{result['recipe']}`",
            f"{result['parameters']:,}",
            f"{result['steps']:,}",
            f"{result['seconds']:,.0f}",
            f"{result['test']['exact_match']['value']:.1f}%",
            f"{result['short']['exact_match']['value']:.1f}%",
            f"{result['test']['bleu']['value']:.1f}",
        ]
        for name, result in results.items()
    ]


def update_family_recipes(results: dict[str, Result]) -> Iterator[str]:
    """Write the headers of recipes whose current settings were measured; yield messages."""
    recipes = all_recipes()
    for result in results.values():
        path = recipes.get(result["recipe"])
        if path is None:
            yield f"{result['recipe']}: there is a result, but no recipe with this name"
        elif result["recipe"] == "demo":
            yield "demo: its header describes `heed demo` on two cores"
        elif not is_measured(result, path):
            path.write_text(with_header(path.read_text(encoding="utf-8"), {}), encoding="utf-8")
            yield f"{result['recipe']}: measured with other settings"
        else:
            path.write_text(with_header(path.read_text(encoding="utf-8"), measured(result)), encoding="utf-8")
            yield f"{result['recipe']}: measured with the current settings"


def measured(result: Result) -> dict[str, str]:
    exact, bleu = (result["test"][metric]["value"] for metric in ("exact_match", "bleu"))
    lines = {
        "result": f"exact match {exact:.1f}%, BLEU {bleu:.1f} on {result['test']['sentences']:,} unseen sentences",
        "machine": f"one CPU core, {result['threads']} thread",
        "minutes": f"{result['seconds'] / 60:.1f}",
        "date": result["date"],
    }
    return {name: lines[name] for name in MEASURED if name in lines}
