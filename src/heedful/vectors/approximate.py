"""Approximate nearest neighbors by faiss (pip install 'heedful[ann]'): inverted lists, then exact scores of the candidates.

    built       k-means with 4 sqrt(n) centers; a vector is in the list of its nearest center, with 8 bits per element
    searched    the lists of the PROBES nearest centers -> 4 k candidates -> q . v with the vectors themselves -> the k best

A vector in a list that is not searched is not found. Scores are those of `nearest_vectors`, and their order, too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import ConfigError
from heedful.vectors.nearest import nearest_vectors

SMALLEST = 10_000  # with fewer vectors, exact search is as fast
PROBES = 64  # lists that are searched
ITERATIONS = 10  # of k-means
SAMPLE = 40  # vectors per center that k-means sees; faiss asks for 39 or more
CHUNK = 1 << 16  # vectors added at a time
MORE = 4  # candidates per result, because 8 bits change the order


def import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ConfigError(
            "approximate search needs faiss, which is not installed",
            hint="pip install 'heedful[ann]', or index the stored answers again without --approximate",
        ) from error
    return faiss


def build_lists(vectors: Tensor) -> NDArray[np.uint8]:
    """vectors (entries, dim) -> the inverted lists as bytes; none if there are so few vectors that all are searched."""
    faiss = import_faiss()
    total, dim = vectors.shape
    if total < SMALLEST:
        return np.zeros(0, np.uint8)
    centers = 4 * math.isqrt(total)
    lists = faiss.index_factory(dim, f"IVF{centers},SQ8", faiss.METRIC_INNER_PRODUCT)
    lists.cp.niter = ITERATIONS
    shuffled = torch.randperm(total, generator=torch.Generator().manual_seed(0))
    lists.train(vectors[shuffled[: SAMPLE * centers].sort().values].numpy())
    for start in range(0, total, CHUNK):
        lists.add(vectors[start : start + CHUNK].numpy())
    found: NDArray[np.uint8] = faiss.serialize_index(lists)
    return found


class ApproximateSearch:
    """Inverted lists of vectors, open for search."""

    def __init__(self, stored: NDArray[np.uint8], vectors: Tensor) -> None:
        """stored: from `build_lists`; vectors (entries, dim)."""
        self.vectors, self.lists = vectors, None
        if len(stored):
            self.lists = import_faiss().deserialize_index(np.array(stored))
            self.lists.nprobe = PROBES

    def nearest(self, queries: Tensor, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """As `nearest_vectors`."""
        count = min(count, len(self.vectors))
        if self.lists is None or not count or not len(queries):
            return nearest_vectors(self.vectors, queries, count)
        # threads that wait for each other cost more than they save with few queries
        import_faiss().omp_set_num_threads(min(torch.get_num_threads(), -(-len(queries) // 16)))
        _, candidates = self.lists.search(queries.numpy(), min(MORE * count, len(self.vectors)))  # (queries, 4 count)
        scores, numbers = np.zeros((len(queries), count), np.float32), np.zeros((len(queries), count), np.int64)
        for row, found in enumerate(candidates):
            known = np.sort(found[found >= 0])  # -1: the lists have fewer vectors
            if len(known) < count:
                (scores[row],), (numbers[row],) = nearest_vectors(self.vectors, queries[row : row + 1], count)
                continue
            exact = (self.vectors[torch.from_numpy(known)] @ queries[row]).numpy()
            best = np.argsort(-exact, kind="stable")[:count]
            scores[row], numbers[row] = exact[best], known[best]
        return scores, numbers
