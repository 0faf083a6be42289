"""Attention by hand, on words with two numbers each.

    out = softmax(Q K^T / sqrt(d_k)) V          (Vaswani et al., 2017)

The numbers come from the function that models use, `attention_weights`; the mistakes stand in `mistakes`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heedful.inspection.explaining import mistakes
from heedful.inspection.explaining.mistakes import PAIR
from heedful.inspection.explaining.stages import Explanation, Matrix, Stage, matrix
from heedful.nn.attention import AttentionBias, attention_weights

ENGLISH, GERMAN = ["the", "cat", "danced"], ["die", "Katze"]
SAID = ["<s>", "die", "Katze", "tanzte"]
QUERY = torch.tensor([[-1.0, -2.5], [4.0, 3.0]], dtype=torch.float64)  # (die and Katze, 2)
KEY = torch.tensor([[-2.0, -4.0], [-2.5, -0.5], [4.5, 2.5]], dtype=torch.float64)  # (the, cat and danced, 2)
WORDS = torch.tensor([[1.0, 1.0], [-1.0, -2.5], [4.0, 3.0], [2.0, -3.0]], dtype=torch.float64)  # (the German words, 2)


def attention() -> Explanation:
    scores, value = QUERY @ KEY.T, KEY
    scaled = scores / math.sqrt(2)
    weights = weigh(QUERY, KEY)
    found = weights @ value  # (2, 2)
    stages = [
        Stage(
            "Queries, keys and values",
            "q = x W_Q , k = x W_K , v = x W_V",
            [
                matrix("Q", GERMAN, PAIR, QUERY),
                matrix("K", ENGLISH, PAIR, KEY),
                matrix("V", ENGLISH, PAIR, value),
            ],
            "A query says what a word looks for, a key what a word offers, a value what it hands over. Keys and values are "
            "the same here to keep the numbers few; in a model each is its own projection of the same vector.",
        ),
        Stage(
            "Scores",
            "S = Q K^T",
            [matrix("Kᵀ", PAIR, ENGLISH, KEY.T), matrix("S", GERMAN, ENGLISH, scores)],
            "Each query is multiplied with every key: the more they point the same way, the larger the score. In the "
            "transposed keys the words are the columns.",
        ),
        Stage(
            "Scale",
            "S' = frac(S, sqrt(d_k)) , d_k = 2",
            [matrix("S'", GERMAN, ENGLISH, scaled)],
            "A sum of d_k products with variance 1 has variance d_k; divided by the root of d_k its variance is 1 again, "
            "whatever the size of a head.",
            [mistakes.scaled_by_keys(scores, GERMAN, ENGLISH)],
        ),
        Stage(
            "Softmax",
            "A_(i j) = frac(exp S'_(i j), sum_m exp S'_(i m))",
            [matrix("A", GERMAN, ENGLISH, weights, shaded=True)],
            "Each row becomes shares that add up to 1: how much each query takes from each key. Nearly all of it goes where "
            "the score is largest.",
            [
                mistakes.unscaled(scores, value, GERMAN, ENGLISH),
                mistakes.weights_by_keys(scores, value, GERMAN, ENGLISH),
                mistakes.over_queries(scaled, GERMAN, ENGLISH),
            ],
        ),
        Stage(
            "Weighted sum",
            "out = A V",
            [matrix("out", GERMAN, PAIR, found)],
            "Each query receives the mean of the values by its shares: 'die' finds almost exactly 'the', 'Katze' finds "
            "'danced'. The result lies between the values, never outside them.",
            [
                mistakes.mixed_columns(weights, value, GERMAN),
                mistakes.cut_weights(weights, value, GERMAN, ENGLISH),
            ],
        ),
    ]
    opening = "Translating 'the cat danced': the German words said so far, 'die Katze', look at the English ones."
    return Explanation("Attention: from queries, keys and values to a weighted sum", opening, stages)


def masked() -> Explanation:
    scores = WORDS @ WORDS.T
    scaled = scores / math.sqrt(2)
    mask = torch.ones(4, 4).tril().bool()
    weights = weigh(WORDS, WORDS, AttentionBias(causal=True))
    stages = [
        Stage(
            "One vector a word, in all three roles",
            "Q = K = V = X",
            [matrix("X", SAID, PAIR, WORDS)],
            "In self-attention the words look at each other. Without projections each vector is query, key and value at once.",
        ),
        Stage(
            "Scores",
            "S = X X^T",
            [matrix("S", SAID, SAID, scores)],
            "The matrix is symmetric, but a word need not fit itself best: <s> scores 2 with itself and 7 with 'Katze', whose "
            "vector is longer.",
        ),
        Stage(
            "Scale",
            "S' = frac(S, sqrt(d_k)) , d_k = 2",
            [matrix("S'", SAID, SAID, scaled)],
            "By the root of the size of a key, as always.",
            [mistakes.scaled_by_keys(scores, SAID, SAID)],
        ),
        Stage(
            "Mask",
            "S'_(i j) = -inf for j > i",
            [
                Matrix("may look", SAID, SAID, mask.tolist()),
                matrix("S' masked", SAID, SAID, scaled.masked_fill(~mask, -math.inf)),
            ],
            "A word may look at itself and at what came before it: when it is said, nothing else exists. Then training can "
            "read the whole target at once and still see at each place only what generation will see there.",
            [mistakes.large_number()],
        ),
        Stage(
            "Softmax",
            "A_(i j) = frac(exp S'_(i j), sum_(m <= i) exp S'_(i m))",
            [matrix("A", SAID, SAID, weights, shaded=True)],
            "exp(-inf) is 0, so the shares of what may be seen add up to 1 by themselves.",
            [
                mistakes.masked_late(scaled, mask, SAID),
                mistakes.masked_unscaled(scores, mask, WORDS, SAID),
                mistakes.masked_by_keys(scores, mask, WORDS, SAID),
            ],
        ),
        Stage(
            "Weighted sum",
            "out = A X",
            [matrix("out", SAID, PAIR, weights @ WORDS)],
            "The first word sees nothing but itself and stays as it is; changing a later word changes no earlier row.",
            [mistakes.unmasked(scores, WORDS, SAID)],
        ),
    ]
    opening = "The German words '<s> die Katze tanzte' look at each other, but none at a word that comes after it."
    return Explanation("Masked self-attention: nobody looks ahead", opening, stages)


def weigh(query: Tensor, key: Tensor, attention_bias: AttentionBias | None = None) -> Tensor:
    """The model's own function for one row and one head: (query, d_k), (key, d_k) -> (query, key)."""
    return attention_weights(query[None, None], key[None, None], attention_bias or AttentionBias())[0, 0]
