"""The tables of pruning: the smallest model within the allowed loss, its figures, and a curve from the full model down."""

from __future__ import annotations

from typing import Any

import pytest
from pruning import best_within
from pruning_picture import curves
from pruning_rows import CHOSEN_HEAD, HEAD, SEEDS_HEAD, chosen_rows, chosen_text, pruning_rows, seed_rows, seed_text

pytestmark = pytest.mark.benchmark


def scored(bleu: float) -> dict[str, Any]:
    return {"scores": {split: {"bleu": {"value": bleu}} for split in ("valid", "test")}, "parameters": 900, "bytes": 3_000_000}


def point(kind: str, encoder: tuple[int, ...], bleu: float, method: str = "gates") -> dict[str, Any]:
    result = scored(bleu) | {"method": method, "kind": kind, "amount": 0.1, "train_seconds": 61.4}
    return result | {"name": f"{kind}-{sum(encoder)}", "heads": {"encoder": encoder, "decoder": (4, 4), "cross": (4, 0)}}


POINTS = [
    point("encoder", (3, 2), 38.7),
    point("encoder", (1, 2), 38.6),
    point("encoder", (1, 0), 38.4),  # below the floor
    point("all", (1, 1), 38.5),  # fewer, but of another kind
    point("encoder", (0, 1), 38.9, method="gradient"),
]
RESULTS: dict[str, Any] = {
    "whole": scored(39.0) | {"heads": {"encoder": 8, "decoder": 8, "cross": 8}, "parameters": 1000, "bytes": 4_000_000},
    "points": POINTS,
    "allowed": 0.5,
    "chosen": {"encoder": "encoder-3", "all": "all-2"},
    "speed": {
        "training_step": {"times_as_fast": {"encoder": 1.25, "all": 1.3}},
        "sentence": {"times_as_fast": {"encoder": 1.5, "all": 1.6}},
        "machine": "another",
    },
    "machine": "a machine",
    "torch": "2",
    "date": "2026-11-15",
}


def test_the_model_with_the_fewest_heads_above_the_floor_is_selected() -> None:
    assert best_within(POINTS, "encoder", 38.5) is POINTS[1]
    assert best_within(POINTS, "encoder", 39.5) is None


def test_the_text_and_the_tables_have_the_figures() -> None:
    assert "within 0.5 BLEU of the full model (4.00 MB)" in chosen_text(RESULTS)
    chosen = chosen_rows(RESULTS)
    assert chosen[0] == ["39.00", "encoder", "0.1", "3 of 8", "62%", "-0.40", "-0.40", "3.00", "1.25 x", "1.50 x"]
    assert chosen[1] == ["39.00", "all", "0.1", "14 of 24", "42%", "-0.50", "-0.50", "3.00", "1.30 x", "1.60 x"]
    assert all(len(row) == len(CHOSEN_HEAD) for row in chosen)
    rows = pruning_rows(RESULTS)
    assert rows[0] == ["full model", "", "8", "8", "8", "39.00", "39.00", "1,000", ""]
    assert rows[1] == ["gates on encoder", "0.1", "5", "8", "4", "38.70", "38.70", "900", "61"]
    assert len(rows) == 5 and all(len(row) == len(HEAD) for row in rows)


def test_models_of_other_seeds_are_compared_with_their_own_full_model() -> None:
    better = RESULTS | {
        "whole": RESULTS["whole"] | scored(38.0),
        "points": [point("encoder", (1, 1), 38.2), point("all", (2, 1), 38.0)],
    }
    worse = RESULTS | {"points": [point("encoder", (1, 2), 38.6), point("all", (2, 1), 38.5)]}
    models = {"first": worse, "seed 4": better}
    rows = seed_rows(models, 0.1)
    assert rows[2] == ["seed 4", "encoder", "2", "8", "4", "38.20", "+0.20", "38.20", "+0.20"]
    assert len(rows) == 4 and all(len(row) == len(SEEDS_HEAD) for row in rows)
    assert "-0.10 with gates on encoder and -0.25 with gates on all" in seed_text(models, 0.1)


def test_a_curve_starts_at_the_full_model() -> None:
    trained, ranked = curves(RESULTS, "encoder")
    assert trained.points == [(8, 39.0), (5, 38.7), (3, 38.6), (1, 38.4)]
    assert ranked.points == [(8, 39.0), (1, 38.9)]
