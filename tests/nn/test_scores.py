"""Scores, scopes and attention weights equal their formulas, computed here by loops."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from tiny import perturb
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.nn.hooks import ablate, patch, record
from heedful.nn.scores import SCOPES, SCORES, Additive, Dot, General, Location, Predicted, Score, SourceAttention

SOURCES, QUERIES, PLACES, DIM, VALUES = 3, 4, 9, 5, 5
LENGTHS = [9, 4, 6]
MASK = torch.arange(PLACES) < torch.tensor(LENGTHS)[:, None]
STATE = torch.tensor([[[-1.0, -2.5]]])  # the worked example: "die" attends to "the cat danced"
KEYS = torch.tensor([[[-2.0, -4.0], [-2.5, -0.5], [4.5, 2.5]]])


def with_weights(score: Score, **weights: list[list[float]]) -> Score:
    with torch.no_grad():
        for parameter in score.parameters():
            parameter.zero_()
        for name, values in weights.items():
            score.get_parameter(f"{name}.weight").copy_(torch.tensor(values))
    return score


@pytest.mark.parametrize(
    ("score", "scores", "weights"),
    [
        (Dot(2, 2), [12, 3.75, -10.75], None),
        (with_weights(General(2, 2), key=[[0, 1], [1, 0]]), [9, 6.75, -13.75], [0.9047, 0.0953, 0.0000]),
        (
            with_weights(Additive(2, 2), query=[[0.1, 0], [0, 0.1]], key=[[0.1, 0], [0, 0.1]], value=[[1, 1]]),
            [-0.8630, -0.6277, 0.3364],
            [0.1791, 0.2266, 0.5943],
        ),
    ],
    ids=["dot", "general", "additive"],
)
def test_scores_of_the_worked_example(score: Score, scores: list[float], weights: list[float] | None) -> None:
    assert_close(score(STATE, score.project_keys(KEYS))[0, 0], torch.tensor(scores), atol=1e-4, rtol=0)
    if weights is not None:
        attention = SourceAttention(score)
        assert_close(attention.weigh(STATE, attention.make_memory(KEYS, None))[0, 0], torch.tensor(weights), atol=1e-4, rtol=0)


def by_formula(score: Any, query: Tensor, source: Tensor, place: int) -> Tensor:
    """The score of one query (dim,) and one position of one source."""
    key = source[place]
    if isinstance(score, Dot):
        return query @ key
    if isinstance(score, General):
        return query @ (score.key.weight @ key)
    if isinstance(score, Additive):
        hidden = score.query.weight @ query + score.key.weight @ key + score.key.bias
        return score.value.weight[0] @ hidden.tanh()
    assert isinstance(score, Location)
    return score.place.weight[place] @ query


def make(name: str) -> Score:
    return Location(DIM, PLACES) if name == "location" else SCORES[name](DIM, DIM)


@pytest.mark.parametrize("name", [*SCORES, "location"])
def test_every_score_is_its_formula(name: str) -> None:
    score = perturb(make(name))
    query, source = torch.randn(SOURCES, QUERIES, DIM), torch.randn(SOURCES, PLACES, DIM)
    scores = score(query, score.project_keys(source))
    for at, number, place in itertools.product(range(SOURCES), range(QUERIES), range(PLACES)):
        assert_close(scores[at, number, place], by_formula(score, query[at, number], source[at], place))


def test_general_with_the_identity_is_dot() -> None:
    general, query, source = General(DIM, DIM), torch.randn(2, 3, DIM), torch.randn(2, 4, DIM)
    nn.init.eye_(general.key.weight)
    assert_close(general(query, general.project_keys(source)), Dot(DIM, DIM)(query, source))


def test_a_location_score_masks_positions_beyond_its_table() -> None:
    attention = SourceAttention(Location(DIM, places=4))
    weights = attention.weigh(
        torch.randn(SOURCES, QUERIES, DIM), attention.make_memory(torch.randn(SOURCES, PLACES, DIM), MASK)
    )
    assert not weights[..., 4:].any()
    assert_close(weights.sum(-1), torch.ones(SOURCES, QUERIES))


@pytest.mark.parametrize("scope", [None, *SCOPES])
@pytest.mark.parametrize("name", [*SCORES, "location"])
def test_weights_are_the_softmax_over_unmasked_positions(name: str, scope: str | None) -> None:
    radius = 2
    attention = perturb(SourceAttention(make(name), None if scope is None else SCOPES[scope](DIM, radius)))
    query, source = torch.randn(SOURCES, QUERIES, DIM), torch.randn(SOURCES, PLACES, DIM)
    positions = torch.tensor([[0, 1, 2, 3], [2, 3, 4, 5], [9, 1, 7, 0]])
    memory = attention.make_memory(source, MASK)
    weights = attention.weigh(query, memory, positions)
    masked = 0
    for at, length in enumerate(LENGTHS):
        for number, state in enumerate(query[at]):
            scores = {place: by_formula(attention.score, state, source[at], place).item() for place in range(length)}
            center = None
            if scope == "local-m":
                center = min(positions[at, number].item(), length - 1)
            elif scope == "local-p":
                predicted = attention.scope
                assert isinstance(predicted, Predicted)
                inner = (predicted.value.weight[0] @ (predicted.query.weight @ state).tanh()).item()
                center = length / (1 + math.exp(-inner))
            if center is not None:
                scores = {place: score for place, score in scores.items() if abs(place - center) <= radius}
            total = sum(math.exp(score) for score in scores.values())
            for place in range(PLACES):
                expected = math.exp(scores[place]) / total if place in scores else 0.0
                if scope == "local-p" and center is not None:
                    expected *= math.exp(-((place - center) ** 2) / (2 * (radius / 2) ** 2))
                assert weights[at, number, place].item() == pytest.approx(expected, abs=1e-6)
                if place not in scores:
                    assert weights[at, number, place].item() == 0.0
                    masked += 1
    assert masked > 0


def test_a_query_with_all_keys_masked_gets_zeros_and_finite_gradients() -> None:
    attention = SourceAttention(Additive(DIM, VALUES))
    query, source = torch.randn(2, 1, DIM, requires_grad=True), torch.randn(2, 3, VALUES)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    context = attention(query, attention.make_memory(source, mask))
    assert not context[1].any()
    (gradient,) = torch.autograd.grad(context.sum(), query)
    assert gradient.isfinite().all()
    assert gradient[0].any()


def test_rows_of_a_source_share_its_memory() -> None:
    attention = SourceAttention(General(DIM, VALUES), Predicted(DIM, 2))
    source, query = torch.randn(SOURCES, PLACES, VALUES), torch.randn(SOURCES * 2, QUERIES, DIM)
    shared = attention(query, attention.make_memory(source, MASK))
    repeated = attention(query, attention.make_memory(source.repeat_interleave(2, 0), MASK.repeat_interleave(2, 0)))
    assert_close(shared, repeated)


def test_attention_of_one_step_equals_attention_of_all_steps() -> None:
    attention = SourceAttention(Additive(DIM, VALUES), SCOPES["local-m"](DIM, 1))
    memory = attention.make_memory(torch.randn(SOURCES, PLACES, VALUES), MASK)
    query = torch.randn(SOURCES * 2, 3, DIM)
    positions = torch.arange(3).expand(SOURCES * 2, -1)
    with record(attention, "weights") as recorded:
        context = attention(query, memory, positions)
    weights = recorded["weights"].view(SOURCES * 2, 3, PLACES)
    for time in range(3):
        step = attention.attend_step(query[:, time], memory, positions[:, time])
        assert_close(step, (weights[:, time], context[:, time]))


def test_hooks_get_the_weights_of_all_steps_and_may_change_the_context() -> None:
    attention = SourceAttention(Dot(DIM, DIM))
    memory = attention.make_memory(torch.randn(SOURCES, PLACES, DIM), MASK)
    steps = [attention.attend_step(torch.randn(SOURCES, DIM), memory) for _ in range(2)]
    weights, contexts = zip(*steps, strict=True)
    assert attention.apply_hooks(weights, memory) is None
    with record(attention, "*") as recorded:
        assert attention.apply_hooks(weights, memory) is None
    assert_close(recorded["weights"][:, 0], torch.stack(weights, dim=1))
    assert_close(recorded["context"][:, 0], torch.stack(contexts, dim=1))
    with ablate(attention, "weights"):
        ablated = attention.apply_hooks(weights, memory)
    assert ablated is not None and not ablated.any()
    first = torch.zeros(SOURCES, 1, 2, PLACES).index_fill(3, torch.tensor([0]), 1.0)
    with patch(attention, {"weights": first}):
        patched = attention.apply_hooks(weights, memory)
    assert_close(patched, memory["values"][:, :1].expand(-1, 2, -1))
