"""Exact nearest neighbors among vectors of any number: products of queries with blocks of vectors, and a running top k.

    scores = q . v for the vectors of a block        the k best so far + those of the block that exceed the k-th -> the k best

Memory is a block of scores; vectors may be a memory-mapped file. Of equal scores, the vector with the lower number is first.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 1 << 22  # scores computed at a time


def nearest_vectors(
    vectors: Tensor, queries: Tensor, count: int, *, block: int = BLOCK
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """vectors (entries, dim), queries (queries, dim) -> scores and numbers of the best, both (queries, count), best first;
    fewer columns if there are fewer entries."""
    count = min(count, len(vectors))
    total = len(queries)
    rows = np.zeros(0, np.int64)  # query of each of the best so far
    numbers = np.zeros(0, np.int64)
    scores = np.zeros(0, np.float32)
    if not count or not total:
        return np.zeros((total, count), np.float32), np.zeros((total, count), np.int64)
    lowest = torch.full((total, 1), -torch.inf)  # the k-th best score of each query
    size = max(count, block // total)
    for start in range(0, len(vectors), size):
        products = queries @ vectors[start : start + size].T  # (queries, block)
        best = products.topk(min(count, products.shape[1]), dim=1).values[:, -1:]  # (queries, 1)
        is_candidate = (products > lowest) & (products >= best)  # a vector of an earlier block precedes one of equal score
        found = is_candidate.nonzero(as_tuple=True)
        rows = np.concatenate((rows, found[0].numpy()))
        numbers = np.concatenate((numbers, found[1].numpy() + start))
        scores = np.concatenate((scores, products[found].numpy()))
        order = np.lexsort((numbers, -scores, rows))
        rows, numbers, scores = rows[order], numbers[order], scores[order]
        first = np.searchsorted(rows, np.arange(total))  # where each query begins
        is_kept = np.arange(len(rows)) - first[rows] < count
        rows, numbers, scores = rows[is_kept], numbers[is_kept], scores[is_kept]
        if len(rows) == total * count:
            lowest = torch.from_numpy(scores.reshape(total, count)[:, -1:].copy())
    return scores.reshape(total, count), numbers.reshape(total, count)
