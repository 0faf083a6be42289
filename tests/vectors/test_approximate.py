"""Approximate search finds nearly what exact search finds, with the same scores; without faiss there is one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.storage.manifest import NAME as MANIFEST
from heedful.tasks.retrieval.knowledge import Encoders, Entry, KnowledgeBase, open_knowledge, write_index, write_replies
from heedful.vectors import approximate
from heedful.vectors.nearest import nearest_vectors

ENTRIES, DIM, LATENT, TOP = 12_000, 32, 8, 10


def vectors_of(count: int, seed: int) -> Tensor:
    """Unit vectors near a subspace, as the vectors of texts are."""
    mixture = torch.randn(LATENT, DIM, generator=torch.Generator().manual_seed(1))
    return torch.nn.functional.normalize(torch.randn(count, LATENT, generator=torch.Generator().manual_seed(seed)) @ mixture)


@pytest.fixture(scope="module")
def faiss() -> None:
    pytest.importorskip("faiss")


def test_nearly_all_of_the_ten_best_are_found_with_exact_scores_in_exact_order(faiss: None) -> None:
    vectors, queries = vectors_of(ENTRIES, 2), vectors_of(50, 3)
    found = approximate.ApproximateSearch(approximate.build_lists(vectors), vectors)
    assert found.lists is not None
    scores, numbers = found.nearest(queries, TOP)
    best_scores, best = nearest_vectors(vectors, queries, TOP)
    recall = np.mean([len(set(ours) & set(gold)) / TOP for ours, gold in zip(numbers.tolist(), best.tolist(), strict=True)])
    assert recall >= 0.95
    assert (np.diff(scores, axis=1) <= 0).all()
    exact = (vectors[torch.from_numpy(numbers)] @ queries[:, :, None])[..., 0]
    np.testing.assert_allclose(scores, exact.numpy(), atol=1e-5)
    every, _ = found.nearest(queries[:2], ENTRIES)  # more than the lists that are searched have
    assert every.shape == (2, ENTRIES)
    np.testing.assert_allclose(every[:, :TOP], best_scores[:2], atol=1e-6)


def test_few_vectors_are_all_searched(faiss: None) -> None:
    vectors, queries = vectors_of(100, 2), vectors_of(5, 3)
    stored = approximate.build_lists(vectors)
    assert not len(stored)
    assert np.array_equal(
        approximate.ApproximateSearch(stored, vectors).nearest(queries, 3)[1], nearest_vectors(vectors, queries, 3)[1]
    )


def make_index(folder: Path, *, is_approximate: bool, entries: int = ENTRIES) -> KnowledgeBase:
    checkpoint = folder / "checkpoints" / "step-1"
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / MANIFEST).write_text("{}")
    write_replies(folder / "knowledge", (Entry((), f"answer {number}") for number in range(entries)))
    encoders = Encoders(lambda texts: vectors_of(len(texts), 5), lambda texts: vectors_of(len(texts), len(texts[0])))
    write_index(folder / "knowledge", checkpoint, encoders, approximate=is_approximate)
    return open_knowledge(folder / "knowledge", checkpoint, DIM)


def test_an_index_is_exact_unless_asked_for(faiss: None, tmp_path: Path) -> None:
    bases = [make_index(tmp_path, is_approximate=wanted) for wanted in (True, False)]
    assert [base.tables["answers"].lists is not None for base in bases] == [True, False]
    queries = vectors_of(4, 7)
    ours, exact = ([[one.text for one in row] for row in base.search(queries, "answers", TOP)] for base in bases)
    assert np.mean([len({*a} & {*b}) / TOP for a, b in zip(ours, exact, strict=True)]) >= 0.9


def test_without_faiss_an_approximate_index_is_one_sentence_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigError, match="needs faiss, which is not installed") as caught:
        make_index(tmp_path, is_approximate=True, entries=3)
    assert "heedful[ann]" in str(caught.value.hint)
    assert not (tmp_path / "knowledge" / "index").exists()
    assert make_index(tmp_path, is_approximate=False, entries=3).tables["answers"].lists is None
