"""Decoding by hand: sampling at a temperature, and beam search.

p_T(w) = softmax(ln p(w) / T)              score = log P(y) / ((5 + |y|) / 6)^alpha
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heedful.inspection.explaining.losses import OUTPUTS, TARGETS, WORDS
from heedful.inspection.explaining.stages import Cell, Explanation, Matrix, Mistake, Stage, matrix
from heedful.inspection.explaining.tree import Node, Tree, grow_tree, make_hypothesis, prefix_of
from heedful.search.expand import draw_tokens
from heedful.search.hypothesis import SearchConfig, wu

FOOD = ["hot dogs", "pancakes"]
PROBABILITIES = torch.tensor([0.8, 0.2], dtype=torch.float64)
SAMPLES = 10_000


def sampling() -> Explanation:
    temperatures = torch.stack([apply_temperature(t) for t in (0.5, 1.0, 2.0)])
    stages = [
        Stage(
            "Temperature",
            "p_T = softmax(frac(ln p, T))",
            [matrix("T", ["0.5", "1", "2"], FOOD, temperatures, shaded=True)],
            "T < 1 sharpens the distribution, T > 1 flattens it, and T = 1 leaves it unchanged. As T approaches 0, sampling "
            "becomes greedy decoding: the most probable token is always chosen.",
            [divide_probabilities(), multiply_by_temperature()],
        ),
        Stage(
            "Sample",
            "w ~ p_T",
            [count_samples()],
            f"{SAMPLES:,} samples at T = 1: the relative frequencies are within about 0.01 of the probabilities.",
        ),
        Stage(
            "Top-k and top-p",
            "p'_w = frac(p_w, sum_(v in kept) p_v)",
            truncate(),
            "Top-k sampling keeps the k most probable tokens. Top-p (nucleus) sampling keeps the smallest set of most probable "
            "tokens whose total probability reaches p. The probabilities of the kept tokens are renormalized to sum to 1.",
            [Mistake("not renormalizing after truncation", [unnormalized()], "with probability 0.2 no token is drawn.")],
        ),
        Stage(
            "Generate token by token",
            "y_t = draw from p(y_t given y_(<t), x)",
            [greedy_steps()],
            "The source is encoded once. Then each generated token is appended to the decoder's input for the next step, until "
            "the end token is generated: one step more than the sentence has words.",
        ),
    ]
    return Explanation("Sampling: draw a token, append it, repeat", "Sampling the continuation of 'I like to eat …'.", stages)


def apply_temperature(temperature: float) -> Tensor:
    return (PROBABILITIES.log() / temperature).softmax(-1)


def divide_probabilities() -> Mistake:
    divided = PROBABILITIES / 2
    return Mistake(
        "dividing the probabilities by T instead of their logarithms",
        [matrix("p / 2, renormalized", ["T = 2"], FOOD, (divided / divided.sum())[None], shaded=True)],
        "normalization cancels the division: the temperature has no effect.",
    )


def multiply_by_temperature() -> Mistake:
    return Mistake(
        "multiplying the log-probabilities by T",
        [matrix("softmax(2 ln p)", ["T = 2"], FOOD, apply_temperature(0.5)[None], shaded=True)],
        "the effect is reversed: a high temperature sharpens the distribution.",
    )


def count_samples() -> Matrix:
    """Samples drawn by the function that the search uses."""
    uniform = torch.rand(SAMPLES, generator=torch.Generator().manual_seed(0))
    ids = draw_tokens(PROBABILITIES.log().float().expand(SAMPLES, -1), uniform)
    counts = torch.bincount(ids, minlength=2)
    return Matrix("samples", ["count", "frequency"], FOOD, [counts.tolist(), (counts / SAMPLES).tolist()])


def truncate() -> list[Matrix]:
    p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    kept = [p, p * (p >= 0.3), p * (p >= 0.15)]  # all; the top two; those that together reach 0.9
    rows = torch.stack([row / row.sum() for row in kept])
    return [matrix("kept", ["all", "top-k 2", "top-p 0.9"], ["a", "b", "c", "d"], rows, shaded=True)]


def unnormalized() -> Matrix:
    return Matrix("top-k 2", ["p"], ["a", "b", "c", "d", "sum"], [[0.5, 0.3, 0.0, 0.0, 0.8]])


def greedy_steps() -> Matrix:
    """Greedy decoding with the probabilities of the topic 'loss'."""
    tokens = [WORDS[int(word)] for word in OUTPUTS.argmax(-1)]
    rows: list[list[Cell]] = [
        [" ".join(["<start>", *tokens[:t]]), tokens[t], float(OUTPUTS[t, TARGETS[t]])] for t in range(len(tokens))
    ]
    return Matrix("step", [str(t + 1) for t in range(len(tokens))], ["decoder input", "next token", "p"], rows)


# A model with a vocabulary of six tokens and fixed probabilities, in which the most probable first word misleads greedy search.

ITALIAN = ["<s>", "</s>", "io", "sono", "moda", "alla"]
START, END = 0, 1
NEXT: dict[str, dict[str, float]] = {
    "<s>": {"io": 0.55, "sono": 0.45},
    "<s> io": {"sono": 0.5, "moda": 0.3, "alla": 0.2},
    "<s> sono": {"alla": 0.9, "moda": 0.1},
    "<s> io sono": {"alla": 0.6, "moda": 0.25, "</s>": 0.15},
    "<s> sono alla": {"moda": 0.95, "</s>": 0.05},
    "<s> io sono alla": {"moda": 0.7, "</s>": 0.3},
    "<s> sono alla moda": {"</s>": 0.9, "alla": 0.1},
    "<s> io sono alla moda": {"</s>": 0.9, "alla": 0.1},
}
DEFAULT_NEXT = {"</s>": 0.6, "moda": 0.4}  # after any other prefix
LIMIT = 5  # tokens, including the end


def next_log_probabilities(prefixes: list[list[int]]) -> Tensor:
    """(rows, 6) log-probabilities of the next token."""
    rows = []
    for prefix in prefixes:
        p = NEXT.get(" ".join(ITALIAN[token] for token in prefix), DEFAULT_NEXT)
        rows.append([math.log(p[word]) if word in p else -math.inf for word in ITALIAN])
    return torch.tensor(rows, dtype=torch.float64)


def search() -> Explanation:
    config = SearchConfig(beam=2, n_best=2, length_penalty=0.6)
    nodes, best = grow_tree(next_log_probabilities, config, LIMIT, start=START, end=END)
    greedy, greedy_best = grow_tree(next_log_probabilities, SearchConfig(method="greedy"), LIMIT, start=START, end=END)
    stages = [
        Stage(
            "Greedy search",
            "y_t = argmax p(y_t given y_(<t), x)",
            [hypothesis_table([("greedy", greedy, greedy_best[0])])],
            "Greedy search chooses the most probable token at every step and never revises a choice.",
            tree=label_tree(greedy, greedy_best),
        ),
        Stage(
            "Beam search, beam size 2",
            "log P = sum_t ln p_t , score = frac(log P, lp) , lp = (frac(5 + n, 6))^alpha , alpha = 0.6",
            [hypothesis_table([(f"beam 2, rank {rank}", nodes, at) for rank, at in enumerate(best, start=1)])],
            "Two prefixes are kept at every step, so a less probable first word can still win: the sentence that begins with "
            "'sono' is more probable as a whole. p is the probability of the last token, log P the log-probability of all "
            "tokens so far.",
            [greedy_is_not_best(greedy, greedy_best[0], nodes, best[0])],
            tree=label_tree(nodes, best),
        ),
        Stage(
            "Length penalty",
            "lp(n) = (frac(5 + n, 6))^alpha",
            [Matrix("lp(n)", ["α = 0.2", "α = 0.6"], LENGTHS, [[wu(a)(int(n)) for n in LENGTHS] for a in (0.2, 0.6)])],
            "Every additional token lowers the probability of a sentence. Dividing log P by a penalty that grows with the "
            "length n, the end token included, lets longer hypotheses compete (Wu et al., 2016).",
            [no_penalty()],
        ),
    ]
    opening = "A model with six tokens and fixed probabilities translates 'I am trendy' into Italian."
    return Explanation("Beam search as a tree", opening, stages)


LENGTHS = ["1", "5", "10", "20"]


def label_tree(nodes: list[Node], best: list[int]) -> Tree:
    return Tree(nodes, [ITALIAN[node.token] for node in nodes], best)


def hypothesis_table(rows: list[tuple[str, list[Node], int]]) -> Matrix:
    cells: list[list[Cell]] = []
    for _, nodes, at in rows:
        words = " ".join(ITALIAN[token] for token in prefix_of(nodes, at)[1:])
        hypothesis = make_hypothesis(nodes, at)
        cells.append([words, math.exp(hypothesis.log_probability), hypothesis.log_probability, hypothesis.score])
    return Matrix("hypothesis", [name for name, _, _ in rows], ["sentence", "P", "log P", "score"], cells)


def greedy_is_not_best(greedy: list[Node], greedy_best: int, nodes: list[Node], best: int) -> Mistake:
    probabilities = [[math.exp(greedy[greedy_best].total)], [math.exp(nodes[best].total)]]
    return Mistake(
        "assuming that the most probable token at each step gives the most probable sentence",
        [Matrix("P", ["greedy", "beam 2"], ["of the sentence"], probabilities)],
        "later probabilities depend on earlier choices, so the product of the largest factors need not be the largest product. "
        "(Beam search does not guarantee the best sentence, either.)",
    )


def no_penalty() -> Mistake:
    """Two hypotheses whose order the length penalty reverses."""
    short, long = -2.0, -2.3
    rows = [[short, short / wu(0.6)(4), short / 4], [long, long / wu(0.6)(8), long / 8]]
    return Mistake(
        "comparing hypotheses of different lengths by their log-probability",
        [Matrix("finished", ["4 tokens", "8 tokens"], ["log P", "score, α = 0.6", "log P / n"], rows)],
        "the short sentence wins only because it is short; per token the long one is much more probable. Dividing by n itself "
        "goes too far the other way and favors long sentences.",
    )
