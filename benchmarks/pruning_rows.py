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
    lost = [
        f"{float(bleu_of(one, split)) - float(bleu_of(found['whole'], split)):+.2f} on {split}" for split in ("valid", "test")
    ]
    step, sentence, there = found["speed"]["training_step"], found["speed"]["sentence"], found["speed"]["machine"]
    return (
        f"{text} The one with the fewest {found['kind']} heads within {found['allowed']:g} BLEU on the validation data, by "
        f"gates on {one['kind']}, keeps {after} of {before} ({1 - after / before:.0%} removed), BLEU {', '.join(lost)}: "
        f"{one['bytes'] / 1e6:.2f} MB in place of {found['whole']['bytes'] / 1e6:.2f}, training steps "
        f"{step['times_as_fast']:.2f} times and translating {sentence['times_as_fast']:.2f} times as fast, medians of "
        f"alternating blocks ({there})."
    )
