"""Attention before and after a step equals its formulas, computed here with torch's own cells; hooks may change it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import perturb
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.nn.decoder_state import Tree
from heedful.nn.hooks import ablate, patch, record
from heedful.nn.recurrent import Gru, Hidden, Layer, Lstm, RecurrentStack
from heedful.nn.recurrent_attention import AttentionAfterStep, AttentionBeforeStep
from heedful.nn.scores import SCOPES, Additive, General, SourceAttention

CELLS: dict[str, type[Layer]] = {"lstm": Lstm, "gru": Gru}
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


def attend(attention: SourceAttention, query: Tensor, memory: Tree, position: int) -> Tensor:
    weights = attention.weigh(query[:, None], memory, torch.full((ROWS, 1), position))
    context: Tensor = (weights @ memory["values"])[:, 0]
    return context


def state_of(layer: Layer) -> Hidden:
    return tuple(torch.randn(ROWS, DIM) for _ in range(layer.states))


@pytest.mark.parametrize("cell", CELLS)
def test_attention_before_a_step_uses_the_previous_state_and_enters_the_next(cell: str) -> None:
    attention = SourceAttention(Additive(DIM, VALUES))
    before = perturb(AttentionBeforeStep(CELLS[cell](INPUTS, DIM, fed=VALUES), attention))
    memory = attention.make_memory(torch.randn(ROWS, PLACES, VALUES), MASK)
    x, state = torch.randn(ROWS, TIME, INPUTS), state_of(before.layer)
    hidden, contexts, last = before(x, memory, state, None)
    by_torch = torch_cell(before.layer, INPUTS + VALUES)
    for time in range(TIME):
        context = attend(attention, state[0], memory, time)
        state = advance(by_torch, torch.cat((x[:, time], context), dim=-1), state)
        assert_close(contexts[:, time], context)
        assert_close(hidden[:, time], state[0])
    assert_close(last, state)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("scope", [None, *SCOPES])
@pytest.mark.parametrize("feeds", [True, False])
def test_attention_after_a_step_uses_the_new_state_and_feeds_the_next_input(cell: str, scope: str | None, feeds: bool) -> None:
    make = CELLS[cell]
    attention = SourceAttention(General(DIM, DIM), None if scope is None else SCOPES[scope](DIM, 1))
    stack = RecurrentStack([make(INPUTS, DIM, fed=DIM if feeds else 0), make(DIM, DIM)], 0.0)
    after = perturb(AttentionAfterStep(stack, attention, DIM, feeds=feeds))
    memory = attention.make_memory(torch.randn(ROWS, PLACES, DIM), MASK)
    x, states = torch.randn(ROWS, TIME, INPUTS), [state_of(layer) for layer in stack]
    out, row_state = after(x, memory, after.initial_state(states), None)
    lower, upper = stack
    cells = torch_cell(lower, INPUTS + (DIM if feeds else 0)), torch_cell(upper, DIM)
    attentional = torch.zeros(ROWS, DIM)
    for time in range(TIME):
        inputs = torch.cat((x[:, time], attentional), dim=-1) if feeds else x[:, time]
        states[0] = advance(cells[0], inputs, states[0])
        states[1] = advance(cells[1], states[0][0], states[1])
        context = attend(attention, states[1][0], memory, time)
        attentional = after.answer(torch.cat((context, states[1][0]), dim=-1)).tanh()
        assert_close(out[:, time], attentional)
    assert_close(row_state.layers, states)


def before_and_after() -> list[tuple[Any, Any]]:
    """Both kinds of decoder, with a state for each."""
    before = AttentionBeforeStep(CELLS["gru"](INPUTS, DIM, fed=DIM), SourceAttention(Additive(DIM, DIM)))
    stack = RecurrentStack([CELLS["lstm"](INPUTS, DIM, fed=DIM)], 0.0)
    after = AttentionAfterStep(stack, SourceAttention(General(DIM, DIM)), DIM, feeds=True)
    return [(perturb(before), state_of(before.layer)), (perturb(after), after.initial_state([state_of(next(iter(stack)))]))]


@pytest.mark.parametrize("which", [0, 1], ids=["before", "after"])
def test_a_hook_that_changes_weights_affects_every_later_step(which: int) -> None:
    decoder, state = before_and_after()[which]
    memory = decoder.cross_attention.make_memory(torch.randn(ROWS, PLACES, DIM), MASK)
    x = torch.randn(ROWS, TIME, INPUTS)
    with record(decoder, "*.weights") as recorded:
        plain = decoder(x, memory, state, None)[0]
    weights = recorded["cross_attention.weights"].clone()
    weights[:, :, 1] = weights[:, :, 1].roll(1, -1)  # only the second step
    with patch(decoder, {"cross_attention.weights": weights}):
        changed = decoder(x, memory, state, None)[0]
    assert_close(changed[:, 0], plain[:, 0])
    for time in range(1, TIME):
        assert (changed[:, time] - plain[:, time]).abs().max() > 1e-4


@pytest.mark.parametrize("which", [0, 1], ids=["before", "after"])
def test_ablated_context_equals_a_source_of_zeros(which: int) -> None:
    decoder, state = before_and_after()[which]
    source, x = torch.randn(ROWS, PLACES, DIM), torch.randn(ROWS, TIME, INPUTS)
    with ablate(decoder, "*.context"):
        ablated = decoder(x, decoder.cross_attention.make_memory(source, MASK), state, None)[0]
    zeros = decoder(x, decoder.cross_attention.make_memory(torch.zeros_like(source), MASK), state, None)[0]
    assert_close(ablated, zeros)
