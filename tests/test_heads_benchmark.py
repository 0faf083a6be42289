"""The table of previous-token and next-token heads: the best of each model, their number, and the rank of the ablation loss."""

from __future__ import annotations

from typing import Any

import pytest
from head_rows import HEAD, head_rows, heads_text
from heads import brief

pytestmark = pytest.mark.benchmark


def head(kind: str, layer: int, number: int, looks: str, share: float, ablation: float) -> dict[str, Any]:
    measures = [] if kind == "cross" else [{"role": "positional", "what": looks, "value": share}]
    measured = {"kind": kind, "layer": layer, "head": number, "confidence": 0.5, "ablation": ablation, "measures": measures}
    return brief(measured | {"roles": ["left out"]})


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


def test_a_row_has_the_best_encoder_heads_and_the_rank_among_all_heads() -> None:
    (row,) = head_rows([MODEL | {"heads": HEADS}])
    best = ["97% (layer 1, head 0)", "50% (layer 1, head 1)"]
    assert row == ["a model", "`a=1 b=2`", "2 x 2", "40.0", *best, "2", "+0.030 (rank 3 of 6)"]
    assert len(row) == len(HEAD)


def test_a_model_without_such_heads_has_none() -> None:
    (row,) = head_rows([MODEL | {"heads": HEADS[1:2]}])
    assert row[4:] == ["none", "none", "0", ""]


def test_another_recipe_is_named() -> None:
    default, other = head_rows([MODEL | {"heads": HEADS}, MODEL | {"heads": HEADS, "recipe": "another"}])
    assert (default[1], other[1]) == ("`a=1 b=2`", "`another a=1 b=2`")


def test_the_text_names_recipe_and_dates() -> None:
    text = heads_text([MODEL | {"date": "2026-11-16"}, MODEL | {"date": "2026-11-15"}])
    assert "`a-recipe` where no other is given, 300 validation sentences, a machine, 2026-11-15 and 2026-11-16" in text
