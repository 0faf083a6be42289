"""Saying by hand: drawing a word at a temperature, and searching for a sentence with a beam.

p_T(w) = softmax(ln p(w) / T)              score = log P(y) / ((5 + |y|) / 6)^alpha
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heedful.inspection.explaining.losses import OUTPUTS, TARGETS, WORDS
from heedful.inspection.explaining.stages import Cell, Explanation, Matrix, Mistake, Stage, matrix
from heedful.inspection.explaining.tree import Node, Tree, grow, hypothesis, tokens_of
from heedful.search.expand import draw_tokens
from heedful.search.hypothesis import SearchConfig, wu

FOOD = ["hot dogs", "pancakes"]
CHANCES = torch.tensor([0.8, 0.2], dtype=torch.float64)
DRAWS = 10_000


def sampling() -> Explanation:
    stages = [
        Stage(
            "Temperature",
            "p_T = softmax(frac(ln p, T))",
            [matrix("T", ["0.5", "1", "2"], FOOD, torch.stack([warm(t) for t in (0.5, 1.0, 2.0)]), shaded=True)],
            "Below 1 the likely becomes likelier, above 1 all become more alike, and at 1 nothing changes. Towards 0 it is "
            "greedy: the likeliest, always.",
            [dividing_chances(), other_way()],
        ),
        Stage(
            "Draw",
            "w ~ p_T",
            [drawn()],
            f"{DRAWS:,} draws at T = 1: the shares come near the probabilities, within about 0.01.",
        ),
        Stage(
            "Leave the unlikely out",
            "p'_w = frac(p_w, sum_(v in kept) p_v)",
            cut_down(),
            "top-k keeps the k likeliest words, top-p the likeliest that together reach a probability. What is kept is divided "
            "by its sum, so that it adds up to 1 again.",
            [Mistake("not dividing by the sum of what is kept", [short()], "a draw could then come out as nothing at all.")],
        ),
        Stage(
            "Iterate",
            "y_t = draw from p(y_t given y_(<t), x)",
            [trace()],
            "The source is read once. Then each word that is said becomes the last of what the next step reads, until the end "
            "is said: one step more than the sentence has words.",
        ),
    ]
    return Explanation("Sampling: draw, append, go on", "How does 'I like to eat …' go on?", stages)


def warm(temperature: float) -> Tensor:
    return (CHANCES.log() / temperature).softmax(-1)


def dividing_chances() -> Mistake:
    divided = CHANCES / 2
    return Mistake(
        "dividing the probabilities by T instead of their logarithms",
        [matrix("p / 2, divided by its sum", ["T = 2"], FOOD, (divided / divided.sum())[None], shaded=True)],
        "dividing by the sum undoes it: the temperature would have no effect at all.",
    )


def other_way() -> Mistake:
    return Mistake(
        "multiplying the logarithms by T",
        [matrix("softmax(2 ln p)", ["T = 2"], FOOD, warm(0.5)[None], shaded=True)],
        "the dial works backwards: hot is cold.",
    )


def drawn() -> Matrix:
    """By the function that search draws with."""
    chance = torch.rand(DRAWS, generator=torch.Generator().manual_seed(0))
    ids = draw_tokens(CHANCES.log().float().expand(DRAWS, -1), chance, 0, 1.0)
    counts = torch.bincount(ids, minlength=2)
    return Matrix("drawn", ["times", "share"], FOOD, [counts.tolist(), (counts / DRAWS).tolist()])


def cut_down() -> list[Matrix]:
    given = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    kept = [given, given * (given >= 0.3), given * (given >= 0.15)]  # all; the two likeliest; those that reach 0.9
    rows = torch.stack([one / one.sum() for one in kept])
    return [matrix("kept", ["all", "top-k 2", "top-p 0.9"], ["a", "b", "c", "d"], rows, shaded=True)]


def short() -> Matrix:
    return Matrix("top-k 2", ["p"], ["a", "b", "c", "d", "sum"], [[0.5, 0.3, 0.0, 0.0, 0.8]])


def trace() -> Matrix:
    """Greedy, by the probabilities of the topic 'loss'."""
    said = [WORDS[int(word)] for word in OUTPUTS.argmax(-1)]
    rows: list[list[Cell]] = [
        [" ".join(["<start>", *said[:t]]), said[t], float(OUTPUTS[t, TARGETS[t]])] for t in range(len(said))
    ]
    return Matrix("step", [str(t + 1) for t in range(len(said))], ["the decoder reads", "says", "p"], rows)


# A model of six words, written down, in which the likeliest first word leads astray.

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
ELSE = {"</s>": 0.6, "moda": 0.4}
LIMIT = 5  # tokens, the end counted


def say(beginnings: list[list[int]]) -> Tensor:
    """(rows, 6) log-probabilities."""
    rows = []
    for beginning in beginnings:
        after = NEXT.get(" ".join(ITALIAN[token] for token in beginning), ELSE)
        rows.append([math.log(after[word]) if word in after else -math.inf for word in ITALIAN])
    return torch.tensor(rows, dtype=torch.float64)


def search() -> Explanation:
    config = SearchConfig(beam=2, n_best=2, length_penalty=0.6)
    nodes, best = grow(say, config, LIMIT, start=START, end=END)
    greedy, straight = grow(say, SearchConfig(method="greedy"), LIMIT, start=START, end=END)
    stages = [
        Stage(
            "Always the likeliest word",
            "y_t = argmax p(y_t given y_(<t), x)",
            [found([("greedy", greedy, straight[0])])],
            "Greedy search takes the likeliest word at every step and never comes back.",
            tree=labeled(greedy, straight),
        ),
        Stage(
            "A beam of two",
            "log P = sum_t ln p_t , score = frac(log P, lp) , lp = (frac(5 + n, 6))^alpha , alpha = 0.6",
            [found([(f"beam 2, number {rank}", nodes, at) for rank, at in enumerate(best, start=1)])],
            "Two beginnings are kept at every step, so a word that looks worse at first gets its chance: the sentence that "
            "begins with 'sono' is likelier as a whole. p is the probability of the last token, log P that of all so far.",
            [greedy_is_not_best(greedy, straight[0], nodes, best[0])],
            tree=labeled(nodes, best),
        ),
        Stage(
            "Length",
            "lp(n) = (frac(5 + n, 6))^alpha",
            [Matrix("lp(n)", ["α = 0.2", "α = 0.6"], LENGTHS, [[wu(a)(int(n)) for n in LENGTHS] for a in (0.2, 0.6)])],
            "Every further word makes a sentence less probable. Dividing by a penalty that grows with the length n, the end "
            "counted, lets longer ones compete (Wu et al., 2016).",
            [no_penalty()],
        ),
    ]
    opening = "A model of six words, whose probabilities are written down, says 'I am trendy' in Italian."
    return Explanation("Beam search as a tree", opening, stages)


LENGTHS = ["1", "5", "10", "20"]


def labeled(nodes: list[Node], best: list[int]) -> Tree:
    return Tree(nodes, [ITALIAN[node.token] for node in nodes], best)


def found(rows: list[tuple[str, list[Node], int]]) -> Matrix:
    cells: list[list[Cell]] = []
    for _, nodes, at in rows:
        words = " ".join(ITALIAN[token] for token in tokens_of(nodes, at)[1:])
        one = hypothesis(nodes, at)
        cells.append([words, math.exp(one.log_probability), one.log_probability, one.score])
    return Matrix("found", [name for name, _, _ in rows], ["sentence", "P", "log P", "score"], cells)


def greedy_is_not_best(greedy: list[Node], straight: int, nodes: list[Node], best: int) -> Mistake:
    chances = [[math.exp(greedy[straight].total)], [math.exp(nodes[best].total)]]
    return Mistake(
        "taking the likeliest word at each step for the likeliest sentence",
        [Matrix("P", ["greedy", "beam 2"], ["of the sentence"], chances)],
        "a product of largest factors is not the largest product, because the later factors depend on the earlier choices. "
        "(Nor does a beam always find the largest.)",
    )


def no_penalty() -> Mistake:
    """Two hypotheses whose order the penalty turns round."""
    short, long = -2.0, -2.3
    rows = [[short, short / wu(0.6)(4), short / 4], [long, long / wu(0.6)(8), long / 8]]
    return Mistake(
        "comparing sentences of different lengths by their plain log-probability",
        [Matrix("finished", ["4 tokens", "8 tokens"], ["log P", "score, α = 0.6", "log P / n"], rows)],
        "the short sentence wins only because it is short; per token the long one is much surer. Dividing by n itself goes to "
        "the other end and favors the long.",
    )
