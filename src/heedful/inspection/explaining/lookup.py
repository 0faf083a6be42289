"""Look-ups by hand: attention as a table that answers softly, what scores there are, and what the scale is for."""

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
    soft, hard, even = scores.softmax(-1), (1000 * scores).softmax(-1), (0 * scores).softmax(-1)
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
            "An ordinary table returns the value of the one key that equals the query. No key equals this one, but some fit "
            "it better than others.",
        ),
        Stage(
            "The soft answer",
            "out = sum_j alpha_j v_j , alpha = softmax(score)",
            [matrix("α", DIE, ENGLISH, soft, shaded=True), matrix("out", DIE, PAIR, soft @ value)],
            "Every value answers by its share. The shares are smooth in query and keys, so that both can be learned by slopes; "
            "which key is the nearest is not.",
            [taking_scores(scores, value)],
        ),
        Stage(
            "The hard answer is a limit of it",
            "alpha = softmax(1000 score)",
            [matrix("α", DIE, ENGLISH, hard, shaded=True), matrix("out", DIE, PAIR, hard @ value)],
            "Scores a thousand times as large leave everything to the best key: the ordinary table is back.",
        ),
        Stage(
            "And so is the mean",
            "alpha = softmax(0 score)",
            [matrix("α", DIE, ENGLISH, even, shaded=True), matrix("out", DIE, PAIR, even @ value)],
            "Where all scores are equal nobody is preferred, and the answer is the mean of the values.",
        ),
        other_scores(query[0]),
    ]
    return Explanation("Attention is a soft look-up", "The word 'die' looks something up among three English words.", stages)


def taking_scores(scores: Tensor, value: Tensor) -> Mistake:
    shares = scores / scores.sum(-1, keepdim=True)
    return Mistake(
        "dividing the scores by their sum instead of taking their softmax",
        [matrix("shares", DIE, ENGLISH, shares, shaded=True), matrix("out", DIE, PAIR, shares @ value)],
        "scores may be negative or add up to 0: shares below 0 or above 1 put the answer outside all values.",
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
        "Other ways to score",
        "dot = q * k , general = q * W k , concat = v * tanh(W_1 [q; k])",
        [matrix("score", names, ENGLISH, scores), matrix("softmax", names, ENGLISH, scores.softmax(-1), shaded=True)],
        "The score may be learned, too: a matrix between the two (Luong et al., 2015), or one hidden layer (Bahdanau et al., "
        "2015). Here W swaps the two numbers, W₁ is 0.1 [I I] and v is [1 1]. The rest stays as it is.",
    )


def thinking() -> Explanation:
    words = ["Thinking", "Machines"]
    scores = torch.tensor([[112.0, 96.0], [32.0, 64.0]], dtype=torch.float64)  # q . k
    scaled = scores / math.sqrt(64)
    stages = [
        Stage(
            "Scores",
            "S = Q K^T , d_k = 64",
            [matrix("S", words, words, scores)],
            "Queries and keys have 64 numbers each, a usual size of a head; every score is a sum of 64 products.",
        ),
        Stage(
            "Scale",
            "S' = frac(S, sqrt(d_k)) = frac(S, 8)",
            [matrix("S'", words, words, scaled)],
            "The root of 64 is 8. It is the size of a head that counts, for that is what was summed over.",
        ),
        Stage(
            "Softmax",
            "A = softmax(S')",
            [matrix("A", words, words, scaled.softmax(-1), shaded=True)],
            "Both rows are computed: every word has its own query.",
            [
                Mistake(
                    "dividing by the root of the model's size, 512, instead of the head's, 64",
                    [matrix("A", words, words, (scores / math.sqrt(512)).softmax(-1), shaded=True)],
                    "eight heads of 64 make 512, but no score is a sum over more than one head. The shares are too flat.",
                ),
                Mistake(
                    "not dividing at all",
                    [matrix("A", words, words, scores.softmax(-1), shaded=True)],
                    "one word takes everything, and where a softmax is 0 or 1 its slope is 0: nothing is learned from it.",
                ),
            ],
        ),
        variances(),
    ]
    return Explanation("A head of 64: what the scale is for", "'Thinking' and 'Machines' look at each other.", stages)


def variances() -> Stage:
    """Simulated: entries of mean 0 and variance 1."""
    sizes = [16, 64, 512]
    draws = torch.Generator().manual_seed(0)
    cells = []
    for size in sizes:
        query, key = (torch.randn(DRAWS, size, generator=draws) for _ in range(2))
        scores = (query * key).sum(-1)  # (draws,)
        cells.append([float(scores.var()), float((scores / math.sqrt(size)).var()), *slopes(scores.view(-1, 4), size)])
    columns = ["var(q·k)", "var(q·k/√d_k)", "slope, unscaled", "slope, scaled"]
    return Stage(
        "Why the root",
        "var(q * k) = d_k",
        [matrix("d_k", [str(size) for size in sizes], columns, torch.tensor(cells))],
        f"{DRAWS:,} random pairs whose numbers have mean 0 and variance 1: the variance of the scores is the size of the "
        "head, and 1 after scaling. The slope is what a share a of the softmax over four keys passes on, a (1 - a), on "
        "average: without the scale it shrinks as heads grow.",
    )


def slopes(scores: Tensor, size: int) -> tuple[float, float]:
    """scores (draws, 4) -> the mean of a (1 - a), without and with the scale."""
    shares = scores.softmax(-1), (scores / math.sqrt(size)).softmax(-1)
    unscaled, scaled = (float((share * (1 - share)).mean()) for share in shares)
    return unscaled, scaled
