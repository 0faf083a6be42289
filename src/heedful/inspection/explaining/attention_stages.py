"""A trained model's head as stages, for one query: what it looked for, what it found, and what mistakes would have given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.inspection.explaining.heads import HeadTrace
from heedful.inspection.explaining.recurrent import Scored
from heedful.inspection.explaining.stages import Matrix, Mistake, Stage, matrix, with_sum

FEW = 5  # columns of a long vector that are shown


class View(NamedTuple):
    """Whose look is shown: one query among all, and the words to read it by."""

    queries: Sequence[str]
    keys: Sequence[str]
    at: int  # which query
    fed: Sequence[str] = ()  # the tokens that stand where the queries look from, where those are named by what is said there

    @property
    def query(self) -> list[str]:
        return [self.queries[self.at]]

    @property
    def naming(self) -> str:
        """How the names of rows are to be read, where they say more than which token it is."""
        if not self.fed:
            return ""
        told = "Rows are named by the word that is said there; the token that stands there is the one before it"
        return f" {told}: {self.fed[self.at]} where '{self.query[0]}' is said."

    def most(self, weights: Tensor) -> str:
        """weights (query, key) -> from whom the one query takes most; a long row hides it from the eye."""
        share, key = weights[self.at].max(-1)
        return f"most from '{self.keys[int(key)]}' ({float(share):.4f})"

    def row(self, name: str, values: Tensor, *, shaded: bool = False) -> Matrix:
        """values (query, key) -> what the one query has of it."""
        return matrix(name, self.query, self.keys, values[self.at : self.at + 1], shaded=shaded)


def abbreviated(name: str, rows: Sequence[str], values: Tensor) -> Matrix:
    """values (rows, dim): the first few columns and the length of each whole vector."""
    count = min(FEW, values.shape[1])
    first, lengths = values[:, :count].tolist(), values.norm(dim=-1).tolist()
    gap = ["…"] if count < values.shape[1] else []
    cells = [[*row, *gap, length] for row, length in zip(first, lengths, strict=True)]
    return Matrix(f"{name} ({values.shape[1]})", rows, [*map(str, range(1, count + 1)), *gap, "norm"], cells)


def head_stages(head: HeadTrace, view: View, number: int) -> list[Stage]:
    size = head.query.shape[-1]
    stages = [] if head.x is None else [what_comes_in(head.x, view)]
    stages += [
        Stage(
            "Query, keys and values",
            "" if head.x is None else "q = x W_Q + b_Q , k = x W_K + b_K , v = x W_V + b_V",
            [
                abbreviated("q", view.query, head.query[view.at : view.at + 1]),
                abbreviated("K", view.keys, head.key),
                abbreviated("V", view.keys, head.value),
            ],
            f"This head has {size} numbers for each token; the first few are shown, and the length of the whole vector."
            + (" Queries and keys are turned by their positions, each pair of numbers at its own speed." if head.turned else "")
            + (view.naming if head.x is None else ""),
            checks=head.checks["projected"],
        ),
        Stage(
            "Scores",
            "S = q K^T",
            [view.row("S", head.scores)],
            "The query is multiplied with every key.",
        ),
        Stage(
            "Scale" if head.bias is None else "Scale, and what positions add",
            f"S' = frac(S, sqrt({size}))" + ("" if head.bias is None else " + bias"),
            [view.row("S'", head.scores / math.sqrt(size) + (0 if head.bias is None else head.bias))]
            + ([] if head.bias is None else [view.row("bias", head.bias)]),
            f"Divided by the root of the head's size, {math.sqrt(size):.4g}."
            + ("" if head.bias is None else " Then each distance adds its own number."),
        ),
    ]
    if bool((head.seen == -math.inf).any()):
        why = "What comes later, and what is no word, may not be looked at."
        stages.append(Stage("Mask", "S'_j = -inf where j is hidden", [view.row("S' masked", head.seen)], why))
    return [*stages, softmax_stage(head, view), sum_stage(head, view), *output_stage(head, view, number)]


def what_comes_in(x: Tensor, view: View) -> Stage:
    why = "What the layer was given for each token that looks; all its heads are given the same." + view.naming
    return Stage("What comes in", "x", [abbreviated("x", view.queries, x)], why)


def softmax_stage(head: HeadTrace, view: View) -> Stage:
    return Stage(
        "Softmax",
        "A = softmax(S')",
        [view.row("A", head.weights, shaded=True), matrix("A, all", view.queries, view.keys, head.weights, shaded=True)],
        f"How much '{view.query[0]}' takes from each token, {view.most(head.weights)}; then the same of every token that looks."
        f"{view.naming}",
        head_mistakes(head, view),
        head.checks["weights"],
    )


def head_mistakes(head: HeadTrace, view: View) -> list[Mistake]:
    hidden = head.seen == -math.inf
    plain, scaled = head.scores, head.scores / math.sqrt(head.query.shape[-1])
    scaled = scaled if head.bias is None else scaled + head.bias
    unscaled = plain.masked_fill(hidden, -math.inf).softmax(-1)
    by_keys = (plain / len(view.keys)).masked_fill(hidden, -math.inf).softmax(-1)
    found = [
        Mistake(
            "taking the softmax of the unscaled scores",
            [view.row("A", unscaled, shaded=True)],
            "the shares come too near to 0 and 1, where the softmax has no slope to learn by.",
        ),
        Mistake(
            f"dividing by the number of keys, {len(view.keys)}",
            [view.row("A", by_keys, shaded=True)],
            "the same two tokens would be judged differently in a longer sentence.",
        ),
    ]
    if bool(hidden[view.at].any()):
        late = scaled.softmax(-1).masked_fill(hidden, 0.0)
        why = "what is hidden has taken its share already, and the rest no longer adds up to 1."
        found.append(Mistake("masking after the softmax", [with_sum(view.row("A", late, shaded=True))], why))
    return found


def sum_stage(head: HeadTrace, view: View) -> Stage:
    return Stage(
        "Weighted sum",
        "out = A V" + ("" if head.mixed is None else " + mix"),
        [contributions(head.weights[view.at], head.value, view), abbreviated("out", view.query, head.found[view.at, None])],
        "What each token hands over is its share times its value; a token with a large share and a short value gives little."
        + ("" if head.mixed is None else " Each distance adds a vector of its own."),
        checks=head.checks["found"],
    )


def contributions(weights: Tensor, value: Tensor, view: View) -> Matrix:
    lengths = value.norm(dim=-1)
    table = torch.stack((weights, lengths, weights * lengths), dim=-1)  # (key, 3)
    return matrix("token", view.keys, ["A", "|v|", "A |v|"], table)


def output_stage(head: HeadTrace, view: View, number: int) -> list[Stage]:
    if head.shares is None:
        return []
    mine, norms = head.shares[number, view.at, None], head.shares[:, view.at].norm(dim=-1)[None]
    heads = [f"head {count}" for count in range(len(head.shares))]
    stage = Stage(
        "What the layer makes of it",
        "share = out W_O , layer = sum_h share_h + b_O",
        [abbreviated(f"share of head {number}", view.query, mine), matrix("norm of share", view.query, heads, norms)],
        "The heads are joined by one more map; the rows of W_O that belong to this head say what it contributes. The longer "
        "its share beside the others, the more it moves the token.",
        checks=head.checks["shares"],
    )
    return [stage]


def scored_stages(scored: Scored, view: View) -> list[Stage]:
    scope = [] if scored.center is None else [scope_stage(scored, view)]
    return [
        Stage(
            "The state that looks, and what was read",
            "",
            [
                abbreviated("q", view.query, scored.query[view.at : view.at + 1]),
                abbreviated("K", view.keys, scored.key),
                abbreviated("V", view.keys, scored.value),
            ],
            "The decoder's state is the query. Keys are what was read, as the score remembers it; values are what was read.",
        ),
        Stage(
            "Scores",
            scored.formula,
            [view.row("S", scored.scores)],
            "How well each place fits the state.",
            checks=scored.checks["scores"],
        ),
        *scope,
        Stage(
            "Softmax",
            "A = softmax(S)",
            [
                view.row("A", scored.weights, shaded=True),
                matrix("A, all", view.queries, view.keys, scored.weights, shaded=True),
            ],
            f"How much is taken from each token when '{view.query[0]}' is said, {view.most(scored.weights)}; then the same of "
            "every token that is said.",
            checks=scored.checks["weights"],
        ),
        Stage(
            "Weighted sum",
            "found = A V",
            [
                contributions(scored.weights[view.at], scored.value, view),
                abbreviated("found", view.query, scored.found[view.at, None]),
            ],
            "What was found goes on into the decoder.",
            checks=scored.checks["found"],
        ),
    ]


def scope_stage(scored: Scored, view: View) -> Stage:
    assert scored.center is not None, "asked for where there is one"
    return Stage(
        "Scope",
        "S_s = -inf where s is far from the center",
        [
            Matrix("center", view.query, ["place"], [[float(scored.center[view.at])]]),
            view.row("S near", scored.seen),
        ],
        "Only places near the center are seen, counted from 0; a predicted center also weighs them by a bell around it.",
    )
