"""The table of previous-token and next-token heads in docs/results.md, from the JSON of heads.py."""

from __future__ import annotations

from typing import Any

HEAD = [
    "",
    "with",
    "layers x heads",
    "valid BLEU",
    "previous token",
    "next token",
    "specialized heads",
    "ablation of the first, nats",
]
ALWAYS = 0.9


def head_rows(results: list[dict[str, Any]]) -> list[list[str]]:
    """One row per model: its best previous-token and next-token encoder heads, and how many exceed the threshold."""
    return [row(model, results[0]["recipe"]) for model in results]


def row(model: dict[str, Any], default: str) -> list[str]:
    encoder = [head for head in model["heads"] if head["kind"] == "encoder"]
    layers = 1 + max(head["layer"] for head in encoder)
    before, after = (best(encoder, offset) for offset in ("-1", "+1"))
    always = sum(head["share"] >= ALWAYS for head in encoder if head["looks"] in ("-1", "+1"))
    ranked = sorted((head["ablation"] for head in model["heads"]), reverse=True)
    worth = f"{before['ablation']:+.3f} (rank {ranked.index(before['ablation']) + 1} of {len(ranked)})" if before else ""
    places = [
        f"{head['share']:.0%} (layer {head['layer']}, head {head['head']})" if head else "none" for head in (before, after)
    ]
    changes_text = [*([] if model["recipe"] == default else [model["recipe"]]), *model["changes"]]
    changes = f"`{' '.join(changes_text)}`" if changes_text else ""
    return [model["name"], changes, f"{layers} x {len(encoder) // layers}", f"{model['bleu']:.1f}", *places, str(always), worth]


def best(heads: list[dict[str, Any]], offset: str) -> dict[str, Any] | None:
    return max((head for head in heads if head["looks"] == offset), key=lambda head: head["share"], default=None)


def heads_text(results: list[dict[str, Any]]) -> str:
    return (
        "For each model the encoder heads that attend most often to the previous and to the next token, among tokens that have "
        f"one; the number of heads that do so at least {ALWAYS:.0%} of the time; and the increase of the loss without the "
        "first of them, ranked among all heads. "
        f"Recipe `{results[0]['recipe']}` unless given, {results[0]['sentences']} validation sentences, "
        f"{results[0]['machine']}, {' and '.join(sorted({model['date'] for model in results}))}."
    )
