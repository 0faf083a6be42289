"""What is told of heads that look at a neighbor: the best of each model, how many, and what it is worth beside all others."""

from __future__ import annotations

from typing import Any

from head_rows import HEAD, head_rows, heads_text
from heads import brief


def head(kind: str, layer: int, number: int, looks: str, share: float, ablation: float) -> dict[str, Any]:
    measures = [] if kind == "cross" else [{"role": "positional", "what": looks, "value": share}]
    found = {"kind": kind, "layer": layer, "head": number, "confidence": 0.5, "ablation": ablation, "measures": measures}
    return brief(found | {"roles": ["left out"]})


HEADS = [
    head("encoder", 0, 0, "-1", 0.91, 0.02),
    head("encoder", 0, 1, "itself", 0.99, 0.01),
    head("encoder", 1, 0, "-1", 0.97, 0.03),
    head("encoder", 1, 1, "+1", 0.5, 0.0),
    head("decoder", 0, 0, "-1", 1.0, 0.06),
    head("cross", 0, 0, "", 0.0, 0.04),
]
MODEL: dict[str, Any] = {
    "name": "a model",
    "bleu": 40.04,
    "recipe": "a-recipe",
    "sentences": 300,
    "machine": "a machine",
    "changes": ["a=1", "b=2"],
}


def test_a_row_tells_the_best_of_the_encoder_and_its_rank_among_all() -> None:
    (row,) = head_rows([MODEL | {"heads": HEADS}])
    places = ["97% (layer 1, head 0)", "50% (layer 1, head 1)"]
    assert row == ["a model", "`a=1 b=2`", "2 x 2", "40.0", *places, "2", "+0.030 (place 3 of 6)"]
    assert len(row) == len(HEAD)


def test_a_model_without_such_heads_has_none() -> None:
    (row,) = head_rows([MODEL | {"heads": HEADS[1:2]}])
    assert row[4:] == ["none", "none", "0", ""]


def test_a_model_of_another_recipe_says_so() -> None:
    usual, other = head_rows([MODEL | {"heads": HEADS}, MODEL | {"heads": HEADS, "recipe": "another"}])
    assert (usual[1], other[1]) == ("`a=1 b=2`", "`another a=1 b=2`")


def test_the_text_names_recipe_and_days() -> None:
    text = heads_text([MODEL | {"date": "2026-11-16"}, MODEL | {"date": "2026-11-15"}])
    assert "`a-recipe` where no other is named, 300 validation sentences, a machine, 2026-11-15 and 2026-11-16" in text
