"""One attention head of a trained model as stages, for one query: scores, attention weights, output, and common mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.inspection.explaining.heads import HeadTrace
from heedful.inspection.explaining.source_attention import SourceAttentionTrace
from heedful.inspection.explaining.stages import Matrix, Mistake, Stage, matrix, with_sum

SHOWN_COLUMNS = 5  # of a long vector


class QueryView(NamedTuple):
    """The query that is shown, and the tokens that label queries and keys."""

    queries: Sequence[str]
    keys: Sequence[str]
    query_index: int
    inputs: Sequence[str] = ()  # the decoder's input tokens, where queries are labeled by the tokens predicted from them

    @property
    def query(self) -> list[str]:
        return [self.queries[self.query_index]]

    @property
    def row_note(self) -> str:
        """How to read the row labels where they are not the input tokens."""
        if not self.inputs:
            return ""
        labels = "Rows are labeled by the token that is predicted there; the decoder's input there is the previous token"
        return f" {labels}: {self.inputs[self.query_index]} where '{self.query[0]}' is predicted."

    def describe_max(self, weights: Tensor) -> str:
        """The key with the largest attention weight, which is hard to spot in a long row. weights (query, key)."""
        weight, key = weights[self.query_index].max(-1)
        return f"most to '{self.keys[int(key)]}' ({float(weight):.4f})"

    def row(self, name: str, values: Tensor, *, shaded: bool = False) -> Matrix:
        """Return the row of `values`, (query, key), that belongs to this query."""
        return matrix(name, self.query, self.keys, values[self.query_index : self.query_index + 1], shaded=shaded)


def abbreviate(name: str, rows: Sequence[str], values: Tensor) -> Matrix:
    """The first columns and the norm of each vector. values (rows, dim)."""
    count = min(SHOWN_COLUMNS, values.shape[1])
    first, norms = values[:, :count].tolist(), values.norm(dim=-1).tolist()
    gap = ["…"] if count < values.shape[1] else []
    cells = [[*row, *gap, norm] for row, norm in zip(first, norms, strict=True)]
    return Matrix(f"{name} ({values.shape[1]})", rows, [*map(str, range(1, count + 1)), *gap, "norm"], cells)


def head_stages(head: HeadTrace, view: QueryView, number: int) -> list[Stage]:
    size = head.query.shape[-1]
    stages = [] if head.x is None else [input_stage(head.x, view)]
    stages += [
        Stage(
            "Query, keys and values",
            "" if head.x is None else "q = x W_Q + b_Q , k = x W_K + b_K , v = x W_V + b_V",
            [
                abbreviate("q", view.query, head.query[view.query_index : view.query_index + 1]),
                abbreviate("K", view.keys, head.key),
                abbreviate("V", view.keys, head.value),
            ],
            f"The head's vectors have {size} dimensions; the first few and the norm of the whole vector are shown."
            + (
                " Queries and keys are rotated by their positions, each pair of dimensions at its own frequency."
                if head.rotary
                else ""
            )
            + (view.row_note if head.x is None else ""),
            checks=head.checks["projections"],
        ),
        Stage(
            "Scores",
            "S = q K^T",
            [view.row("S", head.scores)],
            "The dot product of the query with every key.",
        ),
        Stage(
            "Scale" if head.bias is None else "Scale and positional bias",
            f"S' = frac(S, sqrt({size}))" + ("" if head.bias is None else " + bias"),
            [view.row("S'", head.scores / math.sqrt(size) + (0 if head.bias is None else head.bias))]
            + ([] if head.bias is None else [view.row("bias", head.bias)]),
            f"Divided by the square root of the head dimension, {math.sqrt(size):.4g}."
            + ("" if head.bias is None else " Then a bias for each relative distance is added."),
        ),
    ]
    if bool((head.masked_scores == -math.inf).any()):
        why = "The query may attend neither to later positions nor to padding."
        stages.append(Stage("Mask", "S'_j = -inf where j is masked", [view.row("S' masked", head.masked_scores)], why))
    return [*stages, softmax_stage(head, view), sum_stage(head, view), *output_stage(head, view, number)]


def input_stage(x: Tensor, view: QueryView) -> Stage:
    why = "The hidden state at each query position; all heads of the layer receive the same input." + view.row_note
    return Stage("Input", "x", [abbreviate("x", view.queries, x)], why)


def softmax_stage(head: HeadTrace, view: QueryView) -> Stage:
    return Stage(
        "Softmax",
        "A = softmax(S')",
        [view.row("A", head.weights, shaded=True), matrix("A, all", view.queries, view.keys, head.weights, shaded=True)],
        f"The attention weights of '{view.query[0]}', {view.describe_max(head.weights)}; below them those of every query."
        f"{view.row_note}",
        head_mistakes(head, view),
        head.checks["weights"],
    )


def head_mistakes(head: HeadTrace, view: QueryView) -> list[Mistake]:
    masked = head.masked_scores == -math.inf
    raw, scaled = head.scores, head.scores / math.sqrt(head.query.shape[-1])
    scaled = scaled if head.bias is None else scaled + head.bias
    unscaled = raw.masked_fill(masked, -math.inf).softmax(-1)
    by_keys = (raw / len(view.keys)).masked_fill(masked, -math.inf).softmax(-1)
    mistakes = [
        Mistake(
            "taking the softmax of the unscaled scores",
            [view.row("A", unscaled, shaded=True)],
            "the weights are too close to 0 and 1, where the gradient of the softmax vanishes.",
        ),
        Mistake(
            f"dividing by the number of keys, {len(view.keys)}",
            [view.row("A", by_keys, shaded=True)],
            "the same two tokens would get a different score in a longer sentence.",
        ),
    ]
    if bool(masked[view.query_index].any()):
        late = scaled.softmax(-1).masked_fill(masked, 0.0)
        why = "the masked keys are part of the softmax's denominator, so the remaining weights no longer sum to 1."
        mistakes.append(Mistake("masking after the softmax", [with_sum(view.row("A", late, shaded=True))], why))
    return mistakes


def sum_stage(head: HeadTrace, view: QueryView) -> Stage:
    return Stage(
        "Weighted sum",
        "out = A V" + ("" if head.position_context is None else " + r"),
        [
            weighted_norms(head.weights[view.query_index], head.value, view),
            abbreviate("out", view.query, head.context[view.query_index, None]),
        ],
        "Each token contributes its value times its attention weight; a token with a large weight and a short value "
        "contributes little." + ("" if head.position_context is None else " Relative positions add a vector r of their own."),
        checks=head.checks["context"],
    )


def weighted_norms(weights: Tensor, value: Tensor, view: QueryView) -> Matrix:
    norms = value.norm(dim=-1)
    table = torch.stack((weights, norms, weights * norms), dim=-1)  # (key, 3)
    return matrix("token", view.keys, ["A", "|v|", "A |v|"], table)


def output_stage(head: HeadTrace, view: QueryView, number: int) -> list[Stage]:
    if head.contributions is None:
        return []
    own = head.contributions[number, view.query_index, None]
    norms = head.contributions[:, view.query_index].norm(dim=-1)[None]
    heads = [f"head {count}" for count in range(len(head.contributions))]
    stage = Stage(
        "Output projection",
        "c_h = out_h W_(O,h) , layer = sum_h c_h + b_O",
        [abbreviate(f"c of head {number}", view.query, own), matrix("norm of c", view.query, heads, norms)],
        "The output projection W_O combines the heads; the rows of W_O that belong to this head map its output to its "
        "contribution c. The larger its norm beside those of the other heads, the more the head changes the hidden state.",
        checks=head.checks["contributions"],
    )
    return [stage]


def source_attention_stages(trace: SourceAttentionTrace, view: QueryView) -> list[Stage]:
    local = [] if trace.center is None else [local_stage(trace, view)]
    return [
        Stage(
            "Decoder state and encoder states",
            "",
            [
                abbreviate("q", view.query, trace.query[view.query_index : view.query_index + 1]),
                abbreviate("K", view.keys, trace.key),
                abbreviate("V", view.keys, trace.value),
            ],
            "The decoder's hidden state is the query. Values are the encoder's hidden states; keys are the same states after "
            "the score function's key projection, if it has one.",
        ),
        Stage(
            "Scores",
            trace.formula,
            [view.row("S", trace.scores)],
            "How well each source position matches the decoder state.",
            checks=trace.checks["scores"],
        ),
        *local,
        Stage(
            "Softmax",
            "A = softmax(S)",
            [
                view.row("A", trace.weights, shaded=True),
                matrix("A, all", view.queries, view.keys, trace.weights, shaded=True),
            ],
            f"The attention weights when '{view.query[0]}' is predicted, {view.describe_max(trace.weights)}; below them those "
            "of every target position.",
            checks=trace.checks["weights"],
        ),
        Stage(
            "Weighted sum",
            "context = A V",
            [
                weighted_norms(trace.weights[view.query_index], trace.value, view),
                abbreviate("context", view.query, trace.context[view.query_index, None]),
            ],
            "The context vector is passed to the decoder.",
            checks=trace.checks["context"],
        ),
    ]


def local_stage(trace: SourceAttentionTrace, view: QueryView) -> Stage:
    assert trace.center is not None, "only local attention has a center"
    return Stage(
        "Local window",
        "S_s = -inf where s is far from the center",
        [
            Matrix("center", view.query, ["position"], [[float(trace.center[view.query_index])]]),
            view.row("S in window", trace.masked_scores),
        ],
        "Only source positions near the center, counted from 0, are attended to; with a predicted center the weights are also "
        "multiplied by a Gaussian around it.",
    )
