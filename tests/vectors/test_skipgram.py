from __future__ import annotations

import math

import torch
from torch import Tensor

from heedful.vectors.skipgram import MAX_STEP, Batch, Tables, gradients, loss, make_batch, update, update_rows

WORDS, DIM, NEGATIVES = 7, 6, 3


def example() -> tuple[Tables, Batch]:
    """Two blocks of three words with five around and four negative samples; words recur within and between blocks."""
    tables = Tables(torch.randn(WORDS, DIM, dtype=torch.float64), torch.randn(WORDS, DIM, dtype=torch.float64))
    words, around, noise = (torch.randint(WORDS, (2, count)) for count in (3, 5, 4))
    batch = make_batch(words, around, torch.rand(2, 3, 5) < 0.6, noise, NEGATIVES)
    return tables, batch._replace(weights=batch.weights.double())


def loss_of_pairs(tables: Tables, batch: Batch) -> float:
    """The loss of the paper: pair by pair, with the mean over the block's negative samples instead of the expectation."""

    def log_sigmoid(product: Tensor) -> float:
        return -math.log1p(math.exp(-float(product)))

    total, pairs = 0.0, 0
    for words, others, weights in zip(batch.words, batch.others, batch.weights, strict=True):
        for i, word in enumerate(words):
            inner = tables.inner[word]
            noise = [log_sigmoid(-tables.outer[other] @ inner) for other in others[batch.around :]]
            for j in range(batch.around):
                if weights[i, j]:
                    pairs += 1
                    total -= log_sigmoid(tables.outer[others[j]] @ inner) + NEGATIVES * sum(noise) / len(noise)
    assert pairs > 5
    return total


def test_the_loss_is_that_of_the_paper_summed_over_pairs() -> None:
    tables, batch = example()
    assert math.isclose(float(loss(tables, batch).total), loss_of_pairs(tables, batch), rel_tol=1e-6)
    assert float(loss(tables, batch).count) == batch.weights[..., : batch.around].sum()


def test_gradients_are_those_of_autograd() -> None:
    tables, batch = example()
    leaves = Tables(tables.inner.clone().requires_grad_(), tables.outer.clone().requires_grad_())
    expected = torch.autograd.grad(loss(leaves, batch).total, list(leaves))
    for table, rows, own, reference in zip(tables, batch[:2], gradients(tables, batch), expected, strict=True):
        summed = torch.zeros_like(table).index_add_(0, rows.flatten(), own.flatten(0, 1))
        assert reference.abs().max() > 0.1
        torch.testing.assert_close(summed, reference)


def test_a_small_update_is_the_learning_rate_times_the_gradient() -> None:
    tables, batch = example()
    leaves = Tables(tables.inner.clone().requires_grad_(), tables.outer.clone().requires_grad_())
    expected = torch.autograd.grad(loss(leaves, batch).total, list(leaves))
    rate = 1e-3
    update(tables, batch, rate)
    for table, leaf, gradient in zip(tables, leaves, expected, strict=True):
        torch.testing.assert_close(table, leaf.detach() - rate * gradient)


def test_the_update_of_a_frequent_row_is_limited() -> None:
    """The gradient of each occurrence is 1, so the change is the step itself."""
    for mentions, weight, rate in ((1, 1.0, 0.5), (100, 1.0, 0.5), (3, 50.0, 0.1)):
        table = torch.zeros(4, 2)
        rows = torch.full((1, mentions), 2)
        update_rows(table, rows, torch.full((1, mentions, 2), weight), torch.full((1, mentions), weight), rate)
        expected = min(rate * mentions * weight, MAX_STEP)
        torch.testing.assert_close(table[2], torch.full((2,), -expected))
        assert (table[[0, 1, 3]] == 0).all()
