"""Skip-gram with negative sampling (Mikolov et al., 2013): a word's vector v distinguishes its context words from random
words.

    loss = - sum over pairs (c, o) of   log s(u_o . v_c) + k E_n [ log s(- u_n . v_c) ]        s(x) = 1 / (1 + exp(-x))

Text is split into blocks of consecutive words. The pairs of a block are a band of one small matrix product, and the
expectation over n is estimated from a few words drawn per block instead of k per pair (shared as in Ji et al., 2016), so
that all scores of a block are

    v (block, dim) @ u (around and noise, dim)^T -> (block, around + noise)

each with a weight: 1 for a pair, 0 for other words, (pairs of the row) x k / noise for a negative sample. The objective is
the same.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from heedful.nn.losses import Loss

MAX_STEP = 2.0  # maximum of learning rate x weight for a row per update; otherwise a word that fills a batch would diverge


class Tables(NamedTuple):
    """The two vectors of every word; the first are the word vectors."""

    inner: Tensor  # v (words, dim)
    outer: Tensor  # u (words, dim)


class Batch(NamedTuple):
    words: Tensor  # (blocks, block): rows of `inner`
    others: Tensor  # (blocks, around + noise): rows of `outer`
    weights: Tensor  # (blocks, block, around + noise)
    around: int  # how many of the others are words of the text; the rest are negative samples


def new_tables(words: int, dim: int, generator: torch.Generator) -> Tables:
    """Return small random v and zero u, as in the authors' program."""
    return Tables((torch.rand(words, dim, generator=generator) - 0.5) / dim, torch.zeros(words, dim))


def make_batch(words: Tensor, around: Tensor, pairs: Tensor, noise: Tensor, negatives: int) -> Batch:
    """Build a batch from words (blocks, block), around (blocks, around), pairs (blocks, block, around) True where two words
    are a pair, and negative samples noise (blocks, noise)."""
    near = pairs.float()
    far = near.sum(-1, keepdim=True) * (negatives / noise.shape[1])  # (blocks, block, 1)
    weights = torch.cat((near, far.expand(-1, -1, noise.shape[1])), dim=-1)
    return Batch(words, torch.cat((around, noise), dim=1), weights, around.shape[1])


def scores(tables: Tables, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return v (blocks, block, dim), u (blocks, others, dim) and their products (blocks, block, others)."""
    inner = gather(tables.inner, batch.words)
    outer = gather(tables.outer, batch.others)
    return inner, outer, inner @ outer.transpose(1, 2)


def gather(table: Tensor, rows: Tensor) -> Tensor:
    return table.index_select(0, rows.flatten()).view(*rows.shape, -1)  # (blocks, n, dim)


def loss(tables: Tables, batch: Batch) -> Loss:
    """Return the loss summed over all pairs and their negative samples; the count is of pairs."""
    _, _, products = scores(tables, batch)
    near, far = products[..., : batch.around], products[..., batch.around :]
    losses = torch.cat((functional.softplus(-near), functional.softplus(far)), dim=-1)
    return Loss((losses * batch.weights).sum(), batch.weights[..., : batch.around].sum())


def gradients(tables: Tables, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the gradients of the summed loss for every v (blocks, block, dim) and u (blocks, others, dim) of the batch."""
    inner, outer, products = scores(tables, batch)
    gradient = products.sigmoid_()
    gradient[..., : batch.around] -= 1.0
    gradient *= batch.weights  # (blocks, block, others)
    return gradient @ outer, gradient.transpose(1, 2) @ inner


def update(tables: Tables, batch: Batch, learning_rate: float) -> None:
    """Do one gradient step in place, on the rows of the batch only."""
    inner_gradient, outer_gradient = gradients(tables, batch)
    update_rows(tables.inner, batch.words, inner_gradient, batch.weights.sum(2), learning_rate)
    update_rows(tables.outer, batch.others, outer_gradient, batch.weights.sum(1), learning_rate)


def update_rows(table: Tensor, rows: Tensor, gradient: Tensor, weight: Tensor, learning_rate: float) -> None:
    """table[rows] -= learning_rate x gradient, scaled down for a row that occurs so often that it exceeds MAX_STEP.
    rows and weight (blocks, n), gradient (blocks, n, dim)."""
    flat = rows.flatten()
    total = table.new_zeros(len(table)).index_add_(0, flat, weight.flatten())  # (words,): summed weight of each row
    scale = (total.index_select(0, flat) * (learning_rate / MAX_STEP)).clamp_(min=1.0)
    table.index_add_(0, flat, gradient.flatten(0, 1).div_(scale[:, None]), alpha=-learning_rate)
