"""The alignment benchmark tokenizes text like its gold data, and its table has every layer of every system."""

from __future__ import annotations

from typing import Any

import pytest
from alignment_rows import ALIGNMENT_HEAD, alignment_rows
from hansards import normalize

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Don't go! I can't, it's Tom's 3.5 years.", "do not go ! i can not , it 's tom 's 3.5 years ."),
        ("en", "Mr. Smith won't say: “Let's wait…”", "mr. smith will not say : “ let us wait … ”"),
        ("fr", "« Aujourd’hui, l'ami du roi n'a qu'une idée. »", "« aujourd' hui , le ami de le roi ne a que une idée . »"),
        ("fr", "Va-t-il aux États-Unis ?", "va - t - il à les états - unis ?"),
        ("fr", "au-dessus des toits", "au - dessus de les toits"),
    ],
)
def test_text_is_tokenized_as_in_the_hansards(language: str, text: str, expected: str) -> None:
    assert normalize(text, language) == expected
    assert normalize(expected, language) == expected  # normalizing twice changes nothing


def test_the_table_has_a_row_for_every_layer_and_one_for_the_selected_aligner() -> None:
    layers: list[dict[str, Any]] = [
        {"layer": at, "heads": 8, "said": 0.4 + at / 10, "fed": 0.3, "chosen": 0.25} for at in (0, 1)
    ]
    rate = {"value": 0.2, "low": 0.18, "high": 0.22}
    rows = alignment_rows(
        {
            "rows": [
                {"system": "one", "layers": layers, "aligner": {"heads": ["0.3", "1.1"]}, "aer": rate},
                {"system": "both directions", "rule": "union", "aer": rate},
            ]
        }
    )
    assert rows[1] == ["one, layer 1", "all 8", "50.0%", "30.0%", "25.0%", "", ""]
    assert rows[2] == ["one", "0.3 1.1", "", "", "", "20.0%", "18.0% to 22.0%"]
    assert rows[3][:2] == ["both directions", "union"]
    assert {len(row) for row in rows} == {len(ALIGNMENT_HEAD)}
