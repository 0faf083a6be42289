"""Hierarchical attention by hand: words -> sentences -> document, with two softmaxes (Yang et al., 2016).

    u = tanh(W h + b) , a = softmax(u . v) , s = sum a h          for the words of each sentence, then for the sentences

Weights are compared with those of `AttentionPooling`, the layer of models; the recurrent layers before it are left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.inspection.explaining.mistakes import PAIR
from heedful.inspection.explaining.stages import Check, Explanation, Matrix, Mistake, Stage, check, matrix, with_sum
from heedful.nn.hooks import hook_points, record
from heedful.nn.pooling import AttentionPooling

SENTENCES = [["we", "went", "on", "a", "Monday"], ["the", "food", "was", "great"], ["go"]]
NAMES = ["sentence 1", "sentence 2", "sentence 3"]
STATES = [  # of each word, (words, 2)
    [[0.1, 0.2], [0.3, -0.1], [0.0, 0.1], [0.1, 0.0], [0.2, -0.6]],
    [[0.1, 0.1], [0.9, 0.6], [0.2, 0.0], [1.6, 1.3]],
    [[0.7, 0.4]],
]
MAP = [[1.0, 0.5], [0.5, 1.0]]  # W
WORD_QUERY, SENTENCE_QUERY = [1.5, 1.0], [2.0, 2.0]  # v of each level


def hierarchical() -> Explanation:
    words, sentences = make_pooling(WORD_QUERY), make_pooling(SENTENCE_QUERY)
    states = [torch.tensor(rows, dtype=torch.float64) for rows in STATES]
    weights = [pooled_weights(words, rows) for rows in states]
    vectors = torch.stack([a @ h for a, h in zip(weights, states, strict=True)])  # (sentences, 2)
    importance = pooled_weights(sentences, vectors)  # (sentences,)
    document = importance @ vectors  # (2,)
    stages = [
        Stage(
            "Hidden states of the words",
            "h_(i t) = BiGRU(words of sentence i)_t",
            [matrix(name, text, PAIR, h) for name, text, h in zip(NAMES, SENTENCES, states, strict=True)],
            "One vector for each word. A recurrent layer reads each sentence by itself; here the vectors are given.",
        ),
        Stage(
            "Scores of the words",
            "u_(i t) = tanh(W h_(i t) + b) , score_(i t) = u_(i t) * v",
            [score_matrix(name, text, words, h) for name, text, h in zip(NAMES, SENTENCES, states, strict=True)],
            "A small layer, and a learned vector v that stands for the question 'which word matters?'. It is the same for all "
            "sentences.",
        ),
        Stage(
            "First softmax: words of a sentence",
            "a_(i t) = frac(exp score_(i t), sum_s exp score_(i s))",
            [
                with_sum(matrix(name, ["a"], text, a[None], shaded=True))
                for name, text, a in zip(NAMES, SENTENCES, weights, strict=True)
            ],
            "Each sentence has its own softmax, so the weights of its words sum to 1, however long it is and whether it "
            "matters or not: the only word of sentence 3 has weight 1.",
            [flat_softmax(words, states, float(importance[0]))],
            [check_weights(words, h, a, name) for name, h, a in zip(NAMES, states, weights, strict=True)],
        ),
        Stage(
            "Sentence vectors",
            "s_i = sum_t a_(i t) h_(i t)",
            [matrix("s", NAMES, PAIR, vectors)],
            "The weighted mean of the states of the words. In the model, a second recurrent layer reads these vectors.",
        ),
        Stage(
            "Second softmax: sentences of the document",
            "u_i = tanh(W s_i + b) , a_i = softmax(u_i * v)",
            [
                score_matrix("sentence", NAMES, sentences, vectors),
                with_sum(matrix("a", ["sentences"], NAMES, importance[None], shaded=True)),
            ],
            "The same computation with parameters of its own (here W is shared, to keep the numbers few, and v is not): which "
            "sentence matters?",
            checks=[check_weights(sentences, vectors, importance, "all sentences")],
        ),
        Stage(
            "Document vector",
            "d = sum_i a_i s_i",
            [matrix("d", ["document"], PAIR, document[None])],
            "A linear layer and a softmax over the labels follow.",
        ),
        shading(weights, importance),
    ]
    opening = "A document of three sentences: '" + ". ".join(" ".join(text) for text in SENTENCES) + ".'"
    return Explanation("Hierarchical attention: words, sentences, document", opening, stages)


def make_pooling(query: list[float]) -> AttentionPooling:
    pooling = AttentionPooling(2).double()
    with torch.no_grad():
        pooling.map.weight.copy_(torch.tensor(MAP))
        pooling.map.bias.zero_()
        pooling.query.copy_(torch.tensor(query))
    return pooling


@torch.no_grad()
def scores_of(pooling: AttentionPooling, states: Tensor) -> tuple[Tensor, Tensor]:
    """states (parts, 2) -> u (parts, 2), score (parts,)."""
    u = (states @ pooling.map.weight.T + pooling.map.bias).tanh()
    return u, u @ pooling.query


def pooled_weights(pooling: AttentionPooling, states: Tensor) -> Tensor:
    exponentials = scores_of(pooling, states)[1].exp()
    return exponentials / exponentials.sum()


def check_weights(pooling: AttentionPooling, states: Tensor, weights: Tensor, name: str) -> Check:
    """Compare with the layer of models."""
    (point,) = hook_points(pooling)
    with torch.no_grad(), record(pooling, point) as recorded:
        pooling(states[None], None)
    return check(f"the softmax of {name}", weights, recorded[point][0])


def score_matrix(name: str, rows: list[str], pooling: AttentionPooling, states: Tensor) -> Matrix:
    u, scores = scores_of(pooling, states)
    return matrix(name, rows, ["u₁", "u₂", "score"], torch.cat((u, scores[:, None]), dim=-1))


def flat_softmax(pooling: AttentionPooling, states: list[Tensor], two_levels: float) -> Mistake:
    """One softmax over all words; two_levels: the weight of the first sentence with two softmaxes."""
    exponentials = [scores_of(pooling, one)[1].exp() for one in states]
    total = sum(float(one.sum()) for one in exponentials)
    shares = torch.tensor([[float(one.sum()) / total for one in exponentials]])
    return Mistake(
        "one softmax over all words of the document",
        [with_sum(matrix("share", ["all words"], NAMES, shares, shaded=True))],
        f"a sentence gets the sum of its words, so length counts as importance: {NAMES[0]}, which has no word of a large "
        f"score, gets {float(shares[0, 0]):.0%}, and {two_levels:.0%} with the second softmax below.",
    )


def shading(weights: list[Tensor], importance: Tensor) -> Stage:
    """What `heed inspect document` draws."""
    rows = [
        matrix(name, ["a", "shade"], text, torch.stack((a, a * weight.sqrt())), shaded=True)
        for name, text, a, weight in zip(NAMES, SENTENCES, weights, importance, strict=True)
    ]
    products = [
        matrix(name, ["product"], text, (a * weight)[None])
        for name, text, a, weight in zip(NAMES, SENTENCES, weights, importance, strict=True)
    ]
    return Stage(
        "Shades of a picture",
        "shade_(i t) = a_(i t) sqrt(a_i)",
        rows,
        "Pictures of such models show both levels at once: heed inspect document shades each word by its weight times the "
        "square root of the weight of its sentence.",
        [
            Mistake(
                "shading by the product of both weights",
                products,
                "it is the share of the word in the document, but the words of less important sentences become invisible.",
            )
        ],
    )
