"""Skip-gram with negative sampling (Mikolov et al., 2013): a word's vector v tells which words stand around it from those
drawn by chance.

    loss = - sum over pairs (c, o) of   log s(u_o . v_c) + k E_n [ log s(- u_n . v_c) ]        s(x) = 1 / (1 + exp(-x))

Text is cut into blocks of consecutive words. The pairs of a block are a band of one small matrix product, and the
expectation over n is taken over a few words drawn for the whole block instead of k for every pair (Ji et al., 2016, share them
likewise), so that all scores of a block are

    v (block, dim) @ u (around and noise, dim)^T -> (block, around + noise)

each with a weight: 1 for a pair, 0 for what is not one, (pairs of the row) x k / noise for a drawn word. The objective is
the same.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from heedful.nn.losses import Loss

FURTHEST = 2.0  # rate x weight that one update may move a row by: a word that fills a batch would be thrown about otherwise


class Tables(NamedTuple):
    """The two vectors of every word; the first are the word vectors."""

    inner: Tensor  # v (words, dim)
    outer: Tensor  # u (words, dim)


class Batch(NamedTuple):
    words: Tensor  # (blocks, block): rows of `inner`
    others: Tensor  # (blocks, around + noise): rows of `outer`
    weights: Tensor  # (blocks, block, around + noise)
    around: int  # how many of the others stand in the text


def new_tables(words: int, dim: int, generator: torch.Generator) -> Tables:
    """Small random v, zero u, as in the authors' program."""
    return Tables((torch.rand(words, dim, generator=generator) - 0.5) / dim, torch.zeros(words, dim))


def make_batch(words: Tensor, around: Tensor, pairs: Tensor, noise: Tensor, negatives: int) -> Batch:
    """words (blocks, block), around (blocks, around), pairs (blocks, block, around) True where two words are a pair,
    noise (blocks, noise)."""
    near = pairs.float()
    far = near.sum(-1, keepdim=True) * (negatives / noise.shape[1])  # (blocks, block, 1)
    weights = torch.cat((near, far.expand(-1, -1, noise.shape[1])), dim=-1)
    return Batch(words, torch.cat((around, noise), dim=1), weights, around.shape[1])


def scores(tables: Tables, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """v (blocks, block, dim), u (blocks, others, dim) and their products (blocks, block, others)."""
    inner = gather(tables.inner, batch.words)
    outer = gather(tables.outer, batch.others)
    return inner, outer, inner @ outer.transpose(1, 2)


def gather(table: Tensor, rows: Tensor) -> Tensor:
    return table.index_select(0, rows.flatten()).view(*rows.shape, -1)  # (blocks, n, dim)


def loss(tables: Tables, batch: Batch) -> Loss:
    """Summed over all pairs and their noise; the count is of pairs."""
    _, _, products = scores(tables, batch)
    near, far = products[..., : batch.around], products[..., batch.around :]
    surprise = torch.cat((functional.softplus(-near), functional.softplus(far)), dim=-1)
    return Loss((surprise * batch.weights).sum(), batch.weights[..., : batch.around].sum())


def gradients(tables: Tables, batch: Batch) -> tuple[Tensor, Tensor]:
    """Of the summed loss by every v (blocks, block, dim) and every u (blocks, others, dim) that the batch names."""
    inner, outer, products = scores(tables, batch)
    slope = products.sigmoid_()
    slope[..., : batch.around] -= 1.0
    slope *= batch.weights  # (blocks, block, others)
    return slope @ outer, slope.transpose(1, 2) @ inner


def update(tables: Tables, batch: Batch, rate: float) -> None:
    """One step downhill, in place. Only the rows that the batch names are touched."""
    by_inner, by_outer = gradients(tables, batch)
    descend(tables.inner, batch.words, by_inner, batch.weights.sum(2), rate)
    descend(tables.outer, batch.others, by_outer, batch.weights.sum(1), rate)


def descend(table: Tensor, rows: Tensor, gradient: Tensor, weight: Tensor, rate: float) -> None:
    """table[rows] -= rate x gradient, but a row that is named many times goes no further than FURTHEST.
    rows and weight (blocks, n), gradient (blocks, n, dim)."""
    flat = rows.flatten()
    load = table.new_zeros(len(table)).index_add_(0, flat, weight.flatten())  # (words,): weight of all it takes part in
    brake = (load.index_select(0, flat) * (rate / FURTHEST)).clamp_(min=1.0)
    table.index_add_(0, flat, gradient.flatten(0, 1).div_(brake[:, None]), alpha=-rate)
