"""Attention as a soft lookup, other score functions, and why scores are scaled."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heedful.inspection.explaining.examples import ENGLISH, GERMAN, KEY, QUERY
from heedful.inspection.explaining.mistakes import PAIR
from heedful.inspection.explaining.stages import Explanation, Mistake, Stage, matrix

DIE = GERMAN[:1]
SWAP = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)  # W of the bilinear score
BOTH = 0.1 * torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1]], dtype=torch.float64)  # W1 of the additive score, (2, 4)
DRAWS = 20_000  # pairs of random queries and keys


def look_up() -> Explanation:
    query, value = QUERY[:1], KEY  # (1, 2), (3, 2)
    scores = query @ KEY.T / math.sqrt(2)  # (1, 3)
    soft, hard, uniform = scores.softmax(-1), (1000 * scores).softmax(-1), (0 * scores).softmax(-1)
    stages = [
        Stage(
            "A table of keys and values",
            "score_j = frac(q * k_j, sqrt(d_k))",
            [
                matrix("q", DIE, PAIR, query),
                matrix("key", ENGLISH, PAIR, KEY),
                matrix("value", ENGLISH, PAIR, value),
                matrix("score", DIE, ENGLISH, scores),
            ],
            "A dictionary returns the value whose key equals the query. Here no key equals the query, but some are more "
            "similar to it than others; the score measures the similarity.",
        ),
        Stage(
            "Soft lookup",
            "out = sum_j alpha_j v_j , alpha = softmax(score)",
            [matrix("α", DIE, ENGLISH, soft, shaded=True), matrix("out", DIE, PAIR, soft @ value)],
            "The output is the mean of all values, weighted by the attention weights α. The weights are differentiable in "
            "query and keys, so both can be learned by gradient descent; choosing the single best key is not differentiable.",
            [normalize_by_sum(scores, value)],
        ),
        Stage(
            "Hard lookup as a limit",
            "alpha = softmax(1000 score)",
            [matrix("α", DIE, ENGLISH, hard, shaded=True), matrix("out", DIE, PAIR, hard @ value)],
            "With scores a thousand times as large the best key gets all the weight: an ordinary dictionary lookup.",
        ),
        Stage(
            "The mean as a limit",
            "alpha = softmax(0 score)",
            [matrix("α", DIE, ENGLISH, uniform, shaded=True), matrix("out", DIE, PAIR, uniform @ value)],
            "With equal scores the attention weights are uniform, and the output is the mean of the values.",
        ),
        other_scores(query[0]),
    ]
    opening = "The query of 'die' is compared with the keys of three English words."
    return Explanation("Attention is a soft lookup", opening, stages)


def normalize_by_sum(scores: Tensor, value: Tensor) -> Mistake:
    weights = scores / scores.sum(-1, keepdim=True)
    return Mistake(
        "dividing the scores by their sum instead of taking their softmax",
        [matrix("weights", DIE, ENGLISH, weights, shaded=True), matrix("out", DIE, PAIR, weights @ value)],
        "scores may be negative or sum to 0: weights below 0 or above 1 put the output outside the range of the values.",
    )


def other_scores(query: Tensor) -> Stage:
    scores = torch.stack(
        [
            KEY @ query,
            KEY @ SWAP.T @ query,
            (torch.cat((query.expand_as(KEY), KEY), dim=-1) @ BOTH.T).tanh().sum(-1),
        ]
    )  # (3, keys)
    names = ["dot", "general", "concat"]
    return Stage(
        "Other score functions",
        "dot = q * k , general = q * W k , concat = v * tanh(W_1 [q; k])",
        [matrix("score", names, ENGLISH, scores), matrix("softmax", names, ENGLISH, scores.softmax(-1), shaded=True)],
        "The score function can have parameters, too: a matrix between query and key (Luong et al., 2015), or one hidden layer "
        "(Bahdanau et al., 2015). Here W swaps the two dimensions, W₁ is 0.1 [I I] and v is [1 1]. Softmax and weighted sum "
        "are the same for all of them.",
    )


def scaling() -> Explanation:
    words = ["Thinking", "Machines"]
    scores = torch.tensor([[112.0, 96.0], [32.0, 64.0]], dtype=torch.float64)  # q . k
    scaled = scores / math.sqrt(64)
    stages = [
        Stage(
            "Scores",
            "S = Q K^T , d_k = 64",
            [matrix("S", words, words, scores)],
            "Queries and keys have 64 dimensions, a common head dimension; every score is a sum of 64 products.",
        ),
        Stage(
            "Scale",
            "S' = frac(S, sqrt(d_k)) = frac(S, 8)",
            [matrix("S'", words, words, scaled)],
            "The square root of 64 is 8. The head dimension counts, because the dot product sums over it.",
        ),
        Stage(
            "Softmax",
            "A = softmax(S')",
            [matrix("A", words, words, scaled.softmax(-1), shaded=True)],
            "Each word has its own query, so each row is normalized by itself.",
            [
                Mistake(
                    "dividing by the square root of the model dimension, 512, instead of the head dimension, 64",
                    [matrix("A", words, words, (scores / math.sqrt(512)).softmax(-1), shaded=True)],
                    "eight heads of 64 make 512, but a score sums over one head only. The weights are too flat.",
                ),
                Mistake(
                    "not dividing at all",
                    [matrix("A", words, words, scores.softmax(-1), shaded=True)],
                    "one word gets all the weight, and where a softmax is 0 or 1 its gradient is 0: nothing is learned.",
                ),
            ],
        ),
        variances(),
    ]
    opening = "'Thinking' and 'Machines' attend to each other."
    return Explanation("Why scores are scaled: a head of dimension 64", opening, stages)


def variances() -> Stage:
    """Simulated: entries of mean 0 and variance 1."""
    sizes = [16, 64, 512]
    generator = torch.Generator().manual_seed(0)
    cells = []
    for size in sizes:
        query, key = (torch.randn(DRAWS, size, generator=generator) for _ in range(2))
        scores = (query * key).sum(-1)  # (draws,)
        cells.append([float(scores.var()), float((scores / math.sqrt(size)).var()), *mean_gradients(scores.view(-1, 4), size)])
    columns = ["var(q·k)", "var(q·k/√d_k)", "gradient, unscaled", "gradient, scaled"]
    return Stage(
        "Why the square root",
        "var(q * k) = d_k",
        [matrix("d_k", [str(size) for size in sizes], columns, torch.tensor(cells))],
        f"{DRAWS:,} random pairs of vectors whose entries have mean 0 and variance 1: the variance of the scores equals the "
        "head dimension, and is 1 after scaling. The gradient is the derivative a (1 - a) of a weight a with respect to its "
        "own score, averaged over a softmax of four keys: without scaling it shrinks as the head dimension grows.",
    )


def mean_gradients(scores: Tensor, size: int) -> tuple[float, float]:
    """The mean of a (1 - a), without and with scaling. scores (draws, 4)."""
    weights = scores.softmax(-1), (scores / math.sqrt(size)).softmax(-1)
    unscaled, scaled = (float((weight * (1 - weight)).mean()) for weight in weights)
    return unscaled, scaled
