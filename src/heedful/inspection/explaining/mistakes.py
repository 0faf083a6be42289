"""What people compute instead of attention, with the numbers it gives and why it is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.inspection.explaining.stages import Matrix, Mistake, matrix, with_sum

Words = Sequence[str]
PAIR = ["1", "2"]  # the two numbers of a word
GROWS = (
    "scores grow with the size of a key, not with the length of the sentence; so the same two words would be judged "
    "differently in a longer sentence."
)


def scaled_by_keys(scores: Tensor, queries: Words, keys: Words) -> Mistake:
    what = f"dividing by the number of keys, {len(keys)}, instead of the root of their size"
    return Mistake(what, [matrix(f"S / {len(keys)}", queries, keys, scores / len(keys))], GROWS)


def unscaled(scores: Tensor, value: Tensor, queries: Words, keys: Words) -> Mistake:
    return Mistake(
        "taking the softmax of the scores and forgetting the scaled ones",
        shares_and_sum(scores.softmax(-1), value, queries, keys),
        "the shares are nearer to 0 and 1 than they should be. With two numbers a key the error is small; with 64 or 512 "
        "nothing is left between 0 and 1, the slope of the softmax vanishes, and nothing is learned.",
    )


def weights_by_keys(scores: Tensor, value: Tensor, queries: Words, keys: Words) -> Mistake:
    count = len(keys)
    return Mistake(
        f"taking the softmax of scores divided by the number of keys, {count}",
        shares_and_sum((scores / count).softmax(-1), value, queries, keys),
        "the shares are flatter by accident, flatter still in a longer sentence, and let in some of every other word.",
    )


def over_queries(scaled: Tensor, queries: Words, keys: Words) -> Mistake:
    weights = scaled.softmax(0)
    return Mistake(
        "taking the softmax over the queries, down the columns",
        [with_sum(matrix("wrong axis", queries, keys, weights, shaded=True))],
        "then keys choose queries; the shares of a query do not add up to 1, and what it receives is no mean of the values.",
    )


def mixed_columns(weights: Tensor, value: Tensor, queries: Words) -> Mistake:
    """Row i of the weights meets column i of the values, and that for every row of the result."""
    diagonal = torch.einsum("ij,ji->i", weights, value)  # (2,)
    return Mistake(
        "pairing the first row of A with the first column of V and the second with the second",
        [matrix("out", queries, PAIR, diagonal.expand(len(queries), -1))],
        "each row of A belongs to one query and meets every column of V; mixed so, all queries receive the same vector.",
    )


def cut_weights(weights: Tensor, value: Tensor, queries: Words, keys: Words) -> Mistake:
    cut = (weights * 100).floor() / 100
    return Mistake(
        "cutting the shares off after two digits before the sum",
        [with_sum(matrix("A cut", queries, keys, cut, shaded=True)), matrix("out", queries, PAIR, cut @ value)],
        "0.99999 becomes 0.99: the shares no longer add up to 1 and the result shrinks. Round what is printed, not what is "
        "computed with.",
    )


def masked_late(scaled: Tensor, mask: Tensor, words: Words) -> Mistake:
    late = scaled.softmax(-1) * mask
    return Mistake(
        "masking after the softmax, by zeros",
        [with_sum(matrix("A · mask", words, words, late, shaded=True))],
        "the words ahead have taken their share already: the rows no longer add up to 1, and how much is missing tells "
        "what is hidden.",
    )


def masked_unscaled(scores: Tensor, mask: Tensor, value: Tensor, words: Words) -> Mistake:
    return Mistake(
        "masking and weighing the unscaled scores",
        shares_and_sum(softmax_seen(scores, mask), value, words, words),
        "as without a mask, the shares are too near to 0 and 1: every word keeps more of itself than it should.",
    )


def masked_by_keys(scores: Tensor, mask: Tensor, value: Tensor, words: Words) -> Mistake:
    count = len(words)
    shares = shares_and_sum(softmax_seen(scores / count, mask), value, words, words)
    return Mistake(f"dividing by the number of words, {count}", shares, GROWS)


def unmasked(scores: Tensor, value: Tensor, words: Words) -> Mistake:
    weights = scores.softmax(-1)
    return Mistake(
        "leaving out both the mask and the scale",
        [matrix("W", words, words, weights, shaded=True), matrix("Y = W X", words, PAIR, weights @ value)],
        "<s> takes 0.9929 from 'Katze', a word that has not been said yet: in training the answer is read off, and in "
        "generation, where it is not there, nothing has been learned. (Without either this is self-attention with no "
        "parameters at all, and right where a whole sentence may be seen.)",
    )


def large_number() -> Mistake:
    half = torch.tensor([-1e9]).to(torch.float16)
    nothing = torch.full((3,), -math.inf).softmax(-1).tolist()
    alike = torch.full((3,), -1e9).softmax(-1).tolist()
    return Mistake(
        "masking by adding -1e9 in half precision, or leaving a row without any key",
        [
            Matrix("float16", ["-1e9"], ["becomes"], [[float(half)]]),
            Matrix("all masked", ["by -inf", "by -1e9"], ["1", "2", "3"], [nothing, alike]),
        ],
        "half precision ends at 65504, so -1e9 is -inf there already. A row with no key at all becomes nan, or an even mean "
        "of what is forbidden; it is defined as zeros here.",
    )


def shares_and_sum(weights: Tensor, value: Tensor, queries: Words, keys: Words) -> list[Matrix]:
    """What each query takes of each key, and what it receives."""
    return [matrix("A", queries, keys, weights, shaded=True), matrix("out", queries, PAIR, weights @ value)]


def softmax_seen(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -math.inf).softmax(-1)
