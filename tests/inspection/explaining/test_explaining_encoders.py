"""The worked examples of encoders: masking, and hierarchical attention."""

from __future__ import annotations

import pytest
import torch

from heedful import inspection
from heedful.inspection.explaining.hierarchical import SENTENCE_QUERY, STATES, WORD_QUERY, make_pooling
from heedful.inspection.explaining.stages import Matrix


def cells_of(matrices: list[Matrix], row: int) -> list[object]:
    return [cell for one in matrices for cell in one.cells[row]]


def test_the_shown_masks_are_consistent_and_their_shares_within_three_standard_deviations() -> None:
    draws, fates, given, shares = (list(stage.matrices) for stage in inspection.explain("masking").stages)
    chosen = [at for at, cell in enumerate(cells_of(draws, 1)) if cell == "chosen"]
    numbers = [(value, at) for at, value in enumerate(cells_of(draws, 0)) if isinstance(value, float)]
    assert chosen == sorted(at for _, at in sorted(numbers)[:3]) and len(numbers) == 20
    text, inputs = [token for one in draws for token in one.columns], cells_of(given, 0)
    targets = {at: target for at, target in enumerate(cells_of(given, 1)) if target is not None}
    assert targets == {at: text[at] for at in chosen}
    assert [at for at, (before, after) in enumerate(zip(text, inputs, strict=True)) if before != after] == [
        at for at in chosen if text[at] != inputs[at]
    ]
    assert sorted(row[2] for row in fates[0].cells if isinstance(row[2], str)) == ["mask", "random", "unchanged"]
    assert all(abs(row[3]) < 3 for row in shares[0].cells if isinstance(row[3], float))
    assert shares[0].cells[0][0] == pytest.approx(0.15)


def test_the_document_vector_is_that_of_two_pooling_layers() -> None:
    """Reference: AttentionPooling, applied to the words of each sentence and to the results."""
    explanation = inspection.explain("hierarchical")
    words, sentences = make_pooling(WORD_QUERY), make_pooling(SENTENCE_QUERY)
    with torch.no_grad():
        vectors = torch.cat([words(torch.tensor([rows], dtype=torch.float64), None) for rows in STATES])  # (sentences, 2)
        expected = sentences(vectors[None], None)  # (1, 2)
    stage = next(stage for stage in explanation.stages if stage.title == "Document vector")
    assert list(stage.matrices[0].cells[0]) == pytest.approx(expected[0].tolist())
    checks = [check for one in explanation.stages for check in one.checks]
    assert len(checks) == 4 and all(check.holds for check in checks)
