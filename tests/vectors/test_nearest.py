"""Blockwise search returns what sorting all scores returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from heedful.vectors.nearest import nearest_vectors


@pytest.mark.parametrize("block", [1, 20, 64, 1 << 20])
@pytest.mark.parametrize("count", [1, 3, 7, 50])
def test_the_best_are_those_of_a_stable_sort_of_all_scores(count: int, block: int) -> None:
    """Small integers: products are exact, and many are equal."""
    torch.manual_seed(count)
    vectors, queries = torch.randint(-2, 3, (40, 3)).float(), torch.randint(-2, 3, (5, 3)).float()
    products = (queries @ vectors.T).numpy()
    order = np.argsort(-products, axis=1, kind="stable")[:, :count]  # of equal scores the lower number first
    scores, numbers = nearest_vectors(vectors, queries, count, block=block)
    assert numbers.tolist() == order.tolist()
    assert scores.tolist() == np.take_along_axis(products, order, axis=1).tolist()
    assert len(np.unique(products)) < products.size / 4


def test_no_vectors_and_no_queries_have_empty_results() -> None:
    assert [array.shape for array in nearest_vectors(torch.zeros(0, 3), torch.zeros(2, 3), 5)] == [(2, 0), (2, 0)]
    assert [array.shape for array in nearest_vectors(torch.zeros(4, 3), torch.zeros(0, 3), 5)] == [(0, 4), (0, 4)]
