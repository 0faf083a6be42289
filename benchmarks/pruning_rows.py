"""What docs/results.md says of pruning, from the JSON of pruning.py."""

from __future__ import annotations

from typing import Any

from pruning_picture import heads_of

HEAD = ["", "penalty", "encoder", "decoder", "cross", "valid BLEU", "test BLEU", "parameters", "seconds of training"]


def bleu_of(one: dict[str, Any], split: str) -> str:
    return f"{one['scores'][split]['bleu']['value']:.2f}" if split in one["scores"] else ""


def counts(heads: dict[str, Any]) -> list[str]:
    return [str(heads_of(heads, kind)) for kind in ("encoder", "decoder", "cross")]


def pruning_rows(found: dict[str, Any]) -> list[list[str]]:
    """The whole model, then what gates left of it; heads kept by kind."""
    whole = found["whole"]
    figures = [bleu_of(whole, "valid"), bleu_of(whole, "test"), f"{whole['parameters']:,}", ""]
    rows = [["whole", "", *counts(whole["heads"]), *figures]]
    for one in found["points"]:
        if one["method"] == "gates":
            figures = [bleu_of(one, "valid"), bleu_of(one, "test"), f"{one['parameters']:,}", f"{one['train_seconds']:.0f}"]
            rows.append([f"gates on {one['kind']}", f"{one['amount']:g}", *counts(one["heads"]), *figures])
    return rows


def pruning_text(found: dict[str, Any]) -> str:
    text = (
        "Heads kept of each kind after training on with gates (docs/guides/pruning.md) and taking out what they closed; "
        f"{found['machine']}, torch {found['torch']}, {found['date']}."
    )
    if "chosen" not in found:
        return f"{text} No model was within {found['allowed']:g} BLEU of the whole one on the validation data."
    one = next(point for point in found["points"] if point["name"] == found["chosen"])
    before, after = heads_of(found["whole"]["heads"], found["kind"]), heads_of(one["heads"], found["kind"])
    step, sentence, there = found["speed"]["training_step"], found["speed"]["sentence"], found["speed"]["machine"]
    return (
        f"{text} The one with the fewest {found['kind']} heads within {found['allowed']:g} BLEU on the validation data, by "
        f"gates on {one['kind']}, keeps {after} of {before} ({1 - after / before:.0%} removed), "
        f"BLEU {changes(one, found['whole'])}: {one['bytes'] / 1e6:.2f} MB in place of {found['whole']['bytes'] / 1e6:.2f}, "
        f"training steps {step['times_as_fast']:.2f} times and translating {sentence['times_as_fast']:.2f} times as fast, "
        f"medians of alternating blocks ({there}).{rivals(one, found)}"
    )


def changes(one: dict[str, Any], whole: dict[str, Any]) -> str:
    """Of BLEU, on both splits."""
    splits = ("valid", "test")
    return ", ".join(f"{float(bleu_of(one, split)) - float(bleu_of(whole, split)):+.2f} on {split}" for split in splits)


def rivals(chosen: dict[str, Any], found: dict[str, Any]) -> str:
    """The other gated models with as few heads of the kind that counts, and what they lose."""
    least = heads_of(chosen["heads"], found["kind"])
    alike = [
        f"gates on {one['kind']}, penalty {one['amount']:g}: {changes(one, found['whole'])}"
        for one in found["points"]
        if one["method"] == "gates" and one is not chosen and heads_of(one["heads"], found["kind"]) == least
    ]
    return f" As few are left by {'; '.join(alike)}." if alike else ""
