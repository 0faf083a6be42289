"""Looking before and after a step are their formulas, walked here with torch's own cells; and listeners may interfere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import unsettle
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.nn.decoder_state import Tree
from heedful.nn.hooks import ablate, patch, record
from heedful.nn.recurrent import CELLS, Hidden, Layer, RecurrentStack
from heedful.nn.recurrent_attention import AttentionAfterStep, AttentionBeforeStep
from heedful.nn.scores import SCOPES, Additive, General, SourceAttention

ROWS, TIME, PLACES, INPUTS, DIM, VALUES = 2, 5, 6, 3, 4, 7
MASK = torch.arange(PLACES) < torch.tensor([6, 4])[:, None]


def torch_cell(layer: Layer, inputs: int) -> Any:
    """torch's cell with a layer's weights."""
    cell = {"Lstm": nn.LSTMCell, "Gru": nn.GRUCell}[type(layer).__name__](inputs, DIM)
    with torch.no_grad():
        cell.weight_ih.copy_(layer.weight[:, :-1])
        cell.bias_ih.copy_(layer.weight[:, -1])
        cell.weight_hh.copy_(layer.recurrent)
        cell.bias_hh.zero_()
    return cell


def advance(cell: Any, x: Tensor, state: Hidden) -> Hidden:
    new = cell(x, state if len(state) == 2 else state[0])
    return new if isinstance(new, tuple) else (new,)


def look(attention: SourceAttention, query: Tensor, memory: Tree, said: int) -> Tensor:
    weights = attention.weigh(query[:, None], memory, torch.full((ROWS, 1), said))
    found: Tensor = (weights @ memory["values"])[:, 0]
    return found


def state_of(layer: Layer) -> Hidden:
    return tuple(torch.randn(ROWS, DIM) for _ in range(layer.states))


@pytest.mark.parametrize("cell", CELLS)
def test_looking_before_uses_the_last_state_and_enters_the_next(cell: str) -> None:
    attention = SourceAttention(Additive(DIM, VALUES))
    before = unsettle(AttentionBeforeStep(CELLS[cell](INPUTS, DIM, fed=VALUES), attention))
    memory = attention.remember(torch.randn(ROWS, PLACES, VALUES), MASK)
    x, state = torch.randn(ROWS, TIME, INPUTS), state_of(before.layer)
    said, found, last = before(x, memory, state, None)
    by_torch = torch_cell(before.layer, INPUTS + VALUES)
    for time in range(TIME):
        here = look(attention, state[0], memory, time)
        state = advance(by_torch, torch.cat((x[:, time], here), dim=-1), state)
        assert_close(found[:, time], here)
        assert_close(said[:, time], state[0])
    assert_close(last, state)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("scope", [None, *SCOPES])
@pytest.mark.parametrize("feeds", [True, False])
def test_looking_after_uses_the_new_state_and_its_answer_is_fed(cell: str, scope: str | None, feeds: bool) -> None:
    made = CELLS[cell]
    attention = SourceAttention(General(DIM, DIM), None if scope is None else SCOPES[scope](DIM, 1))
    stack = RecurrentStack([made(INPUTS, DIM, fed=DIM if feeds else 0), made(DIM, DIM)], 0.0)
    after = unsettle(AttentionAfterStep(stack, attention, DIM, feeds=feeds))
    memory = attention.remember(torch.randn(ROWS, PLACES, DIM), MASK)
    x, states = torch.randn(ROWS, TIME, INPUTS), [state_of(layer) for layer in stack]
    answers, row_state = after(x, memory, after.begin(states), None)
    lower, upper = stack
    cells = torch_cell(lower, INPUTS + (DIM if feeds else 0)), torch_cell(upper, DIM)
    answer = torch.zeros(ROWS, DIM)
    for time in range(TIME):
        given = torch.cat((x[:, time], answer), dim=-1) if feeds else x[:, time]
        states[0] = advance(cells[0], given, states[0])
        states[1] = advance(cells[1], states[0][0], states[1])
        found = look(attention, states[1][0], memory, time)
        answer = after.answer(torch.cat((found, states[1][0]), dim=-1)).tanh()
        assert_close(answers[:, time], answer)
    assert_close(row_state.layers, states)


def before_and_after() -> list[tuple[Any, Any]]:
    """Both walks, and a state for each."""
    before = AttentionBeforeStep(CELLS["gru"](INPUTS, DIM, fed=DIM), SourceAttention(Additive(DIM, DIM)))
    stack = RecurrentStack([CELLS["lstm"](INPUTS, DIM, fed=DIM)], 0.0)
    after = AttentionAfterStep(stack, SourceAttention(General(DIM, DIM)), DIM, feeds=True)
    return [(unsettle(before), state_of(before.layer)), (unsettle(after), after.begin([state_of(next(iter(stack)))]))]


@pytest.mark.parametrize("which", [0, 1], ids=["before", "after"])
def test_who_interferes_with_a_walk_is_felt_at_every_later_step(which: int) -> None:
    walker, state = before_and_after()[which]
    memory = walker.cross_attention.remember(torch.randn(ROWS, PLACES, DIM), MASK)
    x = torch.randn(ROWS, TIME, INPUTS)
    with record(walker, "*.weights") as seen:
        plain = walker(x, memory, state, None)[0]
    other = seen["cross_attention.weights"].clone()
    other[:, :, 1] = other[:, :, 1].roll(1, -1)  # only the second look
    with patch(walker, {"cross_attention.weights": other}):
        changed = walker(x, memory, state, None)[0]
    assert_close(changed[:, 0], plain[:, 0])
    for time in range(1, TIME):
        assert (changed[:, time] - plain[:, time]).abs().max() > 1e-4


@pytest.mark.parametrize("which", [0, 1], ids=["before", "after"])
def test_finding_nothing_is_having_an_empty_source(which: int) -> None:
    walker, state = before_and_after()[which]
    source, x = torch.randn(ROWS, PLACES, DIM), torch.randn(ROWS, TIME, INPUTS)
    with ablate(walker, "*.found"):
        deaf = walker(x, walker.cross_attention.remember(source, MASK), state, None)[0]
    empty = walker(x, walker.cross_attention.remember(torch.zeros_like(source), MASK), state, None)[0]
    assert_close(deaf, empty)
