"""What docs/results.md says of heads that look at a neighbor, from the JSON of heads.py."""

from __future__ import annotations

from typing import Any

HEAD = ["", "with", "layers x heads", "valid BLEU", "token before", "token after", "always there", "worth of the first, nats"]
ALWAYS = 0.9


def head_rows(found: list[dict[str, Any]]) -> list[list[str]]:
    """A model a row: the encoder heads that look most often at the token before and after, and how many do nearly always."""
    return [row(one, found[0]["recipe"]) for one in found]


def row(one: dict[str, Any], usual: str) -> list[str]:
    encoder = [head for head in one["heads"] if head["kind"] == "encoder"]
    layers = 1 + max(head["layer"] for head in encoder)
    before, after = (best(encoder, offset) for offset in ("-1", "+1"))
    always = sum(head["share"] >= ALWAYS for head in encoder if head["looks"] in ("-1", "+1"))
    ranked = sorted((head["ablation"] for head in one["heads"]), reverse=True)
    worth = f"{before['ablation']:+.3f} (place {ranked.index(before['ablation']) + 1} of {len(ranked)})" if before else ""
    places = [
        f"{head['share']:.0%} (layer {head['layer']}, head {head['head']})" if head else "none" for head in (before, after)
    ]
    told = [*([] if one["recipe"] == usual else [one["recipe"]]), *one["changes"]]
    changes = f"`{' '.join(told)}`" if told else ""
    return [one["name"], changes, f"{layers} x {len(encoder) // layers}", f"{one['bleu']:.1f}", *places, str(always), worth]


def best(heads: list[dict[str, Any]], offset: str) -> dict[str, Any] | None:
    return max((head for head in heads if head["looks"] == offset), key=lambda head: head["share"], default=None)


def heads_text(found: list[dict[str, Any]]) -> str:
    return (
        "Of each model the encoder head that looks most often at the token before, and at the token after, among tokens that "
        f"have one; how many do so at least {ALWAYS:.0%} of the time; and what the loss grows without the first of them, "
        f"beside all heads of the model. Recipe `{found[0]['recipe']}` where no other is named, {found[0]['sentences']} "
        f"validation sentences, {found[0]['machine']}, {' and '.join(sorted({one['date'] for one in found}))}."
    )
