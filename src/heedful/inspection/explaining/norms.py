"""Layer and batch normalization by hand: the same formula, with mean and variance over different axes.

out = gain (x - m) / sqrt(v + epsilon) + bias

layer normalization    m and v of each token, over its features           (Ba et al., 2016)
batch normalization    m and v of each feature, over all tokens of a batch  (Ioffe and Szegedy, 2015)
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from heedful.inspection.explaining.stages import Check, Explanation, Matrix, Mistake, Stage, check, matrix
from heedful.nn.normalized_recurrent import NormalizedLstm

TOKENS = ["the", "cat", "danced", "a", "dog", "slept"]  # of two sentences
FEATURES = ["x1", "x2", "x3", "x4"]
INPUT = torch.tensor(
    [[1, 2, 3, 6], [0, 2, -2, 4], [3, 3, 1, 5], [2, 1, 1, 8], [1, -1, -3, 7], [5, 1, 2, 12]], dtype=torch.float64
)  # (tokens, features)
EPSILON = 1e-5
SHOWN = 2  # tokens of a smaller batch


def norms() -> Explanation:
    by_token, by_feature = normalize(INPUT, 1), normalize(INPUT, 0)
    stages = [
        Stage(
            "Input",
            "X",
            [matrix("X", TOKENS, FEATURES, INPUT)],
            "Two sentences of three tokens; a row is the hidden state of a token, a column one of its features.",
        ),
        Stage(
            "Layer normalization: over the features of each token",
            "m_t = frac(1, d) sum_j x_(t j) , v_t = frac(1, d) sum_j (x_(t j) - m_t)^2 , "
            "y_(t j) = frac(x_(t j) - m_t, sqrt(v_t + epsilon))",
            [with_moments("X", INPUT), matrix("Y", TOKENS, FEATURES, by_token)],
            "Of (batch, time, features), the axis of the features: a mean and a variance for each row. Every row of the "
            "result has mean 0 and variance 1, and depends on no other token. A learned gain and bias for each feature follow "
            "(1 and 0 at first).",
            [sample_variance()],
            [layer_check(by_token)],
        ),
        Stage(
            "Batch normalization: over all tokens of the batch, for each feature",
            "m_j = frac(1, n) sum_t x_(t j) , v_j = frac(1, n) sum_t (x_(t j) - m_j)^2 , "
            "y_(t j) = frac(x_(t j) - m_j, sqrt(v_j + epsilon))",
            [moments_of_features(INPUT), matrix("Y", TOKENS, FEATURES, by_feature)],
            "Of (batch, time, features), the axes of batch and time: a mean and a variance for each column. Every column of "
            "the result has mean 0 and variance 1, and a token depends on all others of its batch. The large feature x4 no "
            "longer stands out.",
            [padding_counted()],
        ),
        Stage(
            "Another batch",
            "",
            [
                matrix("layer, of 6", TOKENS[:SHOWN], FEATURES, by_token[:SHOWN]),
                matrix("layer, of 2", TOKENS[:SHOWN], FEATURES, normalize(INPUT[:SHOWN], 1)),
                matrix("batch, of 6", TOKENS[:SHOWN], FEATURES, by_feature[:SHOWN]),
                matrix("batch, of 2", TOKENS[:SHOWN], FEATURES, normalize(INPUT[:SHOWN], 0)),
            ],
            "The first two tokens in a batch of six and in one of two. Layer normalization gives the same; batch normalization "
            "does not, so at inference it uses means and variances stored during training. Sequences of other lengths and "
            "generation token by token therefore use layer normalization.",
            [one_token()],
        ),
        Stage(
            "In a recurrent cell",
            "i, f, g, o = N(W x) + N(U h) + b , c = sigmoid(f) c + sigmoid(i) tanh(g) , h = sigmoid(o) tanh(N(c))",
            recurrent_matrices(),
            "The sums that enter the gates of an LSTM are normalized over the gates, for each row and step, and so is the "
            "cell. Twice as large weights give the same state, and the scale of the state does not drift over many steps. "
            "Batch normalization would need stored means for every step, and has none for steps beyond the longest sequence "
            "of the training data.",
        ),
    ]
    opening = (
        "One formula, out = gain (x - m) / sqrt(v + epsilon) + bias; the two differ in the axis of the mean m and variance v."
    )
    return Explanation("Layer and batch normalization: which axis is averaged over", opening, stages)


def normalize(x: Tensor, axis: int) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon), with mean and variance over this axis of x (tokens, features)."""
    centered = x - x.mean(axis, keepdim=True)
    return centered / (centered.square().mean(axis, keepdim=True) + EPSILON).sqrt()


def with_moments(name: str, x: Tensor) -> Matrix:
    """Mean and variance of each row beside it."""
    moments = torch.stack((x.mean(1), x.var(1, correction=0)), dim=1)  # (tokens, 2)
    return matrix(name, TOKENS[: len(x)], [*FEATURES, "m", "v"], torch.cat((x, moments), dim=1))


def moments_of_features(x: Tensor) -> Matrix:
    return matrix("X", ["m", "v"], FEATURES, torch.stack((x.mean(0), x.var(0, correction=0))))


def layer_check(ours: Tensor) -> Check:
    return check("layer normalization", ours, functional.layer_norm(INPUT, (len(FEATURES),), eps=EPSILON))


def sample_variance() -> Mistake:
    centered = INPUT - INPUT.mean(1, keepdim=True)
    wrong = centered / (INPUT.var(1, keepdim=True) + EPSILON).sqrt()
    return Mistake(
        "dividing the sum of squares by d - 1, the sample variance",
        [matrix("Y", TOKENS[:SHOWN], FEATURES, wrong[:SHOWN])],
        f"a norm divides by d, here {len(FEATURES)}. With few features the results differ by the factor sqrt((d - 1) / d), "
        "and weights trained with one do not fit the other.",
    )


def padding_counted() -> Mistake:
    padded = torch.cat((INPUT, torch.zeros(2, len(FEATURES), dtype=INPUT.dtype)))
    return Mistake(
        "counting padding in the mean of batch normalization",
        [moments_of_features(padded), matrix("Y", TOKENS[:SHOWN], FEATURES, normalize(padded, 0)[:SHOWN])],
        "two padded positions with zeros change the result of every real token. Layer normalization cannot make this mistake.",
    )


def one_token() -> Mistake:
    return Mistake(
        "using the statistics of the batch at inference, for a batch of one token",
        [matrix("batch, of 1", TOKENS[:1], FEATURES, normalize(INPUT[:1], 0))],
        "every feature equals its own mean, so the result is 0 whatever the token is.",
    )


@torch.inference_mode()
def recurrent_matrices() -> list[Matrix]:
    """The hidden state after each token of the first sentence, with random weights, and with twice as large ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        layer = NormalizedLstm(len(FEATURES), 3).double()
    names, states = ["h1", "h2", "h3"], []
    for scale in (1.0, 2.0):
        layer.weight[:, :-1] *= scale
        layer.recurrent.mul_(scale)
        states.append(layer(INPUT[None, :3], None)[0][0])  # (tokens, 3)
    titles = ["h", "h, with 2 W and 2 U"]
    return [matrix(title, TOKENS[:3], names, state) for title, state in zip(titles, states, strict=True)]
