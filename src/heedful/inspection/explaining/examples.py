"""Attention by hand, on words with two dimensions each.

    out = softmax(Q K^T / sqrt(d_k)) V          (Vaswani et al., 2017)

The numbers come from `attention_weights`, the function that models use; common mistakes are in `mistakes`.
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
TARGET = ["<s>", "die", "Katze", "tanzte"]
QUERY = torch.tensor([[-1.0, -2.5], [4.0, 3.0]], dtype=torch.float64)  # (die and Katze, 2)
KEY = torch.tensor([[-2.0, -4.0], [-2.5, -0.5], [4.5, 2.5]], dtype=torch.float64)  # (the, cat and danced, 2)
VECTORS = torch.tensor([[1.0, 1.0], [-1.0, -2.5], [4.0, 3.0], [2.0, -3.0]], dtype=torch.float64)  # (target words, 2)


def attention() -> Explanation:
    scores, value = QUERY @ KEY.T, KEY
    scaled = scores / math.sqrt(2)
    weights = compute_weights(QUERY, KEY)
    output = weights @ value  # (2, 2)
    stages = [
        Stage(
            "Queries, keys and values",
            "q = x W_Q , k = x W_K , v = x W_V",
            [
                matrix("Q", GERMAN, PAIR, QUERY),
                matrix("K", ENGLISH, PAIR, KEY),
                matrix("V", ENGLISH, PAIR, value),
            ],
            "A query is compared with all keys; each key belongs to a value, and the values are what is averaged. Keys and "
            "values are equal here to keep the numbers few; in a model each is its own linear projection of the hidden states.",
        ),
        Stage(
            "Scores",
            "S = Q K^T",
            [matrix("Kᵀ", PAIR, ENGLISH, KEY.T), matrix("S", GERMAN, ENGLISH, scores)],
            "Each score is the dot product of a query and a key: the better their directions agree and the longer they are, "
            "the larger it is. In the transposed matrix the keys are the columns.",
        ),
        Stage(
            "Scale",
            "S' = frac(S, sqrt(d_k)) , d_k = 2",
            [matrix("S'", GERMAN, ENGLISH, scaled)],
            "A sum of d_k products with variance 1 has variance d_k. Dividing by the square root of d_k restores variance 1 "
            "for every head dimension.",
            [mistakes.scaled_by_keys(scores, GERMAN, ENGLISH)],
        ),
        Stage(
            "Softmax",
            "A_(i j) = frac(exp S'_(i j), sum_m exp S'_(i m))",
            [matrix("A", GERMAN, ENGLISH, weights, shaded=True)],
            "The softmax over the keys turns each row into attention weights, which are positive and sum to 1: how much each "
            "query attends to each key. Nearly all weight is on the largest score.",
            [
                mistakes.unscaled(scores, value, GERMAN, ENGLISH),
                mistakes.weights_by_keys(scores, value, GERMAN, ENGLISH),
                mistakes.over_queries(scaled, GERMAN, ENGLISH),
            ],
        ),
        Stage(
            "Weighted sum",
            "out = A V",
            [matrix("out", GERMAN, PAIR, output)],
            "The output for a query is the mean of the values, weighted by its attention weights: for 'die' almost exactly the "
            "value of 'the', for 'Katze' that of 'danced'. It always lies within the convex hull of the values.",
            [
                mistakes.mixed_columns(weights, value, GERMAN),
                mistakes.truncated_weights(weights, value, GERMAN, ENGLISH),
            ],
        ),
    ]
    opening = "Cross-attention in translating 'the cat danced': the German prefix 'die Katze' attends to the English words."
    return Explanation("Attention: from queries, keys and values to a weighted sum", opening, stages)


def masked() -> Explanation:
    scores = VECTORS @ VECTORS.T
    scaled = scores / math.sqrt(2)
    mask = torch.ones(4, 4).tril().bool()
    weights = compute_weights(VECTORS, VECTORS, AttentionBias(causal=True))
    stages = [
        Stage(
            "One vector per word as query, key and value",
            "Q = K = V = X",
            [matrix("X", TARGET, PAIR, VECTORS)],
            "In self-attention the words of one sequence attend to each other. Projections are left out here, so each vector "
            "is query, key and value.",
        ),
        Stage(
            "Scores",
            "S = X X^T",
            [matrix("S", TARGET, TARGET, scores)],
            "The matrix is symmetric, but a word need not have its largest score with itself: <s> scores 2 with itself and 7 "
            "with 'Katze', whose vector is longer.",
        ),
        Stage(
            "Scale",
            "S' = frac(S, sqrt(d_k)) , d_k = 2",
            [matrix("S'", TARGET, TARGET, scaled)],
            "By the square root of the key dimension, as in all scaled dot-product attention.",
            [mistakes.scaled_by_keys(scores, TARGET, TARGET)],
        ),
        Stage(
            "Mask",
            "S'_(i j) = -inf for j > i",
            [
                Matrix("mask", TARGET, TARGET, mask.tolist()),
                matrix("S' masked", TARGET, TARGET, scaled.masked_fill(~mask, -math.inf)),
            ],
            "The causal mask lets each position attend to itself and to earlier positions only, because later tokens do not "
            "exist yet during generation. Training can therefore process the whole target in parallel, and each position uses "
            "exactly the context that it will have during generation.",
            [mistakes.large_number()],
        ),
        Stage(
            "Softmax",
            "A_(i j) = frac(exp S'_(i j), sum_(m <= i) exp S'_(i m))",
            [matrix("A", TARGET, TARGET, weights, shaded=True)],
            "exp(-inf) is 0: masked keys get weight 0, and the weights of the other keys sum to 1.",
            [
                mistakes.masked_late(scaled, mask, TARGET),
                mistakes.masked_unscaled(scores, mask, VECTORS, TARGET),
                mistakes.masked_by_keys(scores, mask, VECTORS, TARGET),
            ],
        ),
        Stage(
            "Weighted sum",
            "out = A X",
            [matrix("out", TARGET, PAIR, weights @ VECTORS)],
            "The first word attends only to itself, so its vector is unchanged. Changing a later word changes no earlier row.",
            [mistakes.unmasked(scores, VECTORS, TARGET)],
        ),
    ]
    opening = "The German words '<s> die Katze tanzte' attend to each other, but never to a later word."
    return Explanation("Masked self-attention: no position attends to later ones", opening, stages)


def compute_weights(query: Tensor, key: Tensor, attention_bias: AttentionBias | None = None) -> Tensor:
    """Apply the models' own function to one row and one head: (query, d_k), (key, d_k) -> (query, key)."""
    return attention_weights(query[None, None], key[None, None], attention_bias or AttentionBias())[0, 0]
