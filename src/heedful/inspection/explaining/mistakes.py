"""Common mistakes in computing attention, the numbers they give and why they are wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.inspection.explaining.stages import Matrix, Mistake, matrix, with_sum

Words = Sequence[str]
PAIR = ["1", "2"]  # the two dimensions of a word
GROWS = (
    "the variance of the scores grows with the key dimension, not with the number of keys; the same two words would get a "
    "different score in a longer sentence."
)


def scaled_by_keys(scores: Tensor, queries: Words, keys: Words) -> Mistake:
    what = f"dividing by the number of keys, {len(keys)}, instead of the square root of their dimension"
    return Mistake(what, [matrix(f"S / {len(keys)}", queries, keys, scores / len(keys))], GROWS)


def unscaled(scores: Tensor, value: Tensor, queries: Words, keys: Words) -> Mistake:
    return Mistake(
        "taking the softmax of the unscaled scores",
        weights_and_output(scores.softmax(-1), value, queries, keys),
        "the weights are closer to 0 and 1 than they should be. With two dimensions the error is small; with 64 or 512 the "
        "softmax saturates, its gradient vanishes, and nothing is learned.",
    )


def weights_by_keys(scores: Tensor, value: Tensor, queries: Words, keys: Words) -> Mistake:
    count = len(keys)
    return Mistake(
        f"taking the softmax of scores divided by the number of keys, {count}",
        weights_and_output((scores / count).softmax(-1), value, queries, keys),
        "the weights are too flat, flatter still in a longer sentence, and mix in some of every other word.",
    )


def over_queries(scaled: Tensor, queries: Words, keys: Words) -> Mistake:
    weights = scaled.softmax(0)
    return Mistake(
        "taking the softmax over the queries, down the columns",
        [with_sum(matrix("wrong axis", queries, keys, weights, shaded=True))],
        "the columns sum to 1 instead of the rows: the weights of a query do not sum to 1, so its output is not a mean of the "
        "values.",
    )


def mixed_columns(weights: Tensor, value: Tensor, queries: Words) -> Mistake:
    """Row i of the weights times column i of the values, repeated for every row of the result."""
    diagonal = torch.einsum("ij,ji->i", weights, value)  # (2,)
    return Mistake(
        "pairing the first row of A with the first column of V and the second with the second",
        [matrix("out", queries, PAIR, diagonal.expand(len(queries), -1))],
        "in a matrix product each row of A is multiplied with every column of V; paired this way, all queries get the same "
        "output.",
    )


def truncated_weights(weights: Tensor, value: Tensor, queries: Words, keys: Words) -> Mistake:
    truncated = (weights * 100).floor() / 100
    return Mistake(
        "truncating the weights to two digits before the sum",
        [
            with_sum(matrix("A truncated", queries, keys, truncated, shaded=True)),
            matrix("out", queries, PAIR, truncated @ value),
        ],
        "0.99999 becomes 0.99: the weights no longer sum to 1 and the output shrinks. Round what is printed, not what is "
        "computed with.",
    )


def masked_late(scaled: Tensor, mask: Tensor, words: Words) -> Mistake:
    late = scaled.softmax(-1) * mask
    return Mistake(
        "setting masked weights to zero after the softmax",
        [with_sum(matrix("A · mask", words, words, late, shaded=True))],
        "the later words are part of the softmax's denominator: the rows no longer sum to 1, and the missing part leaks "
        "information about the masked words.",
    )


def masked_unscaled(scores: Tensor, mask: Tensor, value: Tensor, words: Words) -> Mistake:
    return Mistake(
        "taking the masked softmax of the unscaled scores",
        weights_and_output(masked_softmax(scores, mask), value, words, words),
        "as without a mask, the weights are too close to 0 and 1: every word attends to itself more than it should.",
    )


def masked_by_keys(scores: Tensor, mask: Tensor, value: Tensor, words: Words) -> Mistake:
    count = len(words)
    matrices = weights_and_output(masked_softmax(scores / count, mask), value, words, words)
    return Mistake(f"dividing by the number of words, {count}", matrices, GROWS)


def unmasked(scores: Tensor, value: Tensor, words: Words) -> Mistake:
    weights = scores.softmax(-1)
    return Mistake(
        "omitting both the mask and the scale",
        [matrix("W", words, words, weights, shaded=True), matrix("Y = W X", words, PAIR, weights @ value)],
        "<s> attends to 'Katze', which has not been generated yet, with weight 0.9929: in training the decoder copies the "
        "answer from later positions, and in generation, where they do not exist, it fails. (Without mask and scale this is "
        "parameter-free self-attention, which is correct where the whole sentence is available.)",
    )


def large_number() -> Mistake:
    half = torch.tensor([-1e9]).to(torch.float16)
    infinite = torch.full((3,), -math.inf).softmax(-1).tolist()
    finite = torch.full((3,), -1e9).softmax(-1).tolist()
    return Mistake(
        "masking by adding -1e9 in half precision, or masking every key of a row",
        [
            Matrix("float16", ["-1e9"], ["becomes"], [[float(half)]]),
            Matrix("all masked", ["by -inf", "by -1e9"], ["1", "2", "3"], [infinite, finite]),
        ],
        "the largest finite float16 is 65504, so -1e9 becomes -inf. A row in which every key is masked becomes NaN, or with "
        "-1e9 a uniform mean over the masked keys; in this library its output is defined as zeros.",
    )


def weights_and_output(weights: Tensor, value: Tensor, queries: Words, keys: Words) -> list[Matrix]:
    """The attention weights and the weighted sum of the values. weights (query, key), value (key, 2)."""
    return [matrix("A", queries, keys, weights, shaded=True), matrix("out", queries, PAIR, weights @ value)]


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -math.inf).softmax(-1)
