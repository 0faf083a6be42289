"""Recurrent layers are torch's with their bias as a weight, walk as they read, and do not see padding."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tiny import unsettle
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.recurrent import (
    CELLS,
    Bidirectional,
    Gru,
    Hidden,
    Layer,
    Lstm,
    RecurrentStack,
    Unidirectional,
    fused_gru,
    fused_lstm,
)

ROWS, TIME, INPUTS, DIM = 3, 6, 5, 4
LENGTHS = torch.tensor([6, 2, 4])
MASK = torch.arange(TIME) < LENGTHS[:, None]


@pytest.fixture(params=CELLS, name="layer")
def _layer(request: pytest.FixtureRequest) -> Layer:
    return unsettle(CELLS[request.param](INPUTS, DIM))


def reference(layer: Layer) -> Any:
    """torch's own layer, which has biases."""
    made = layer.kernel_class(INPUTS, DIM, batch_first=True)
    with torch.no_grad():
        made.get_parameter("weight_ih_l0").copy_(layer.weight[:, :-1])
        made.get_parameter("bias_ih_l0").copy_(layer.weight[:, -1])
        made.get_parameter("weight_hh_l0").copy_(layer.recurrent)
        made.get_parameter("bias_hh_l0").zero_()
    return made


def some_state(layer: Layer) -> Hidden:
    return tuple(torch.randn(ROWS, DIM) for _ in range(layer.states))


def as_torch(state: Hidden) -> Any:
    return (state[0][None], state[1][None]) if len(state) == 2 else state[0][None]


@pytest.mark.parametrize("begun", [False, True])
def test_a_layer_is_torchs(layer: Layer, begun: bool) -> None:
    x, state = torch.randn(ROWS, TIME, INPUTS), some_state(layer) if begun else None
    said, last = layer(x, state)
    expected, expected_last = reference(layer)(x, None if state is None else as_torch(state))
    assert_close(said, expected)
    assert_close(as_torch(last), expected_last)


def test_walking_is_reading(layer: Layer) -> None:
    x, state = torch.randn(ROWS, TIME, INPUTS), some_state(layer)
    expected, last = layer(x, state)
    walk, steps = layer.walk(), layer.foresee(x)
    assert len(steps) == TIME
    for time, gates in enumerate(steps):
        state = walk(gates, None, state)
        assert_close(state[0], expected[:, time])
    assert_close(state, last)


@pytest.mark.parametrize("begun", [False, True])
def test_step_by_step_is_the_kernel_with_its_gradients(layer: Layer, begun: bool) -> None:
    given, state = torch.randn(ROWS, TIME, INPUTS + 1, requires_grad=True), some_state(layer) if begun else None
    (said, last), (expected, expected_last) = layer.step_by_step(given, state), layer.call(given, state)
    assert_close(said, expected)
    assert_close(last, expected_last)
    wanted = given, layer.weight, layer.recurrent
    assert_close(*(torch.autograd.grad(one.square().sum(), wanted) for one in (said, expected)))


def lstm_as_documented(given: Tensor, kept: Tensor, cell: Tensor) -> Hidden:
    i, f, g, o = (given + kept).chunk(4, dim=-1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def gru_as_documented(given: Tensor, kept: Tensor, hidden: Tensor) -> Tensor:
    (r, z, n), (kept_r, kept_z, kept_n) = given.chunk(3, dim=-1), kept.chunk(3, dim=-1)
    update = (z + kept_z).sigmoid()
    return (1 - update) * (n + (r + kept_r).sigmoid() * kept_n).tanh() + update * hidden


@pytest.mark.parametrize("fed", [0, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_fused_cells_are_told_all_they_need(cell: str, fed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = unsettle(CELLS[cell](INPUTS, DIM, fed=fed))
    x, state, more = torch.randn(ROWS, 1, INPUTS), some_state(layer), torch.randn(ROWS, fed) if fed else None
    expected = layer.walk()(layer.foresee(x)[0], more, state)
    for name, value in {
        "has_fused_cells": lambda x: True,
        "fused_lstm": lstm_as_documented,
        "fused_gru": gru_as_documented,
    }.items():
        monkeypatch.setattr(f"heedful.nn.recurrent.{name}", value)
    assert_close(layer.walk()(layer.foresee(x)[0], more, state), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_fused_cells_are_as_documented(layer: Layer) -> None:
    gates = layer.gates * DIM
    given, kept, state = (torch.randn(ROWS, size, device="cuda", requires_grad=True) for size in (gates, gates, DIM))
    ours, plain = (fused_lstm, lstm_as_documented) if isinstance(layer, Lstm) else (fused_gru, gru_as_documented)
    found, expected = ours(given, kept, state), plain(given, kept, state)
    assert_close(found, expected)
    pulled = [torch.cat(one, -1) if isinstance(one, tuple) else one for one in (found, expected)]
    slopes = [torch.autograd.grad(one.square().sum(), (given, kept, state)) for one in pulled]
    assert_close(*slopes)


@pytest.mark.parametrize("cell", CELLS)
def test_what_is_fed_is_more_input(cell: str) -> None:
    layer = unsettle(CELLS[cell](3, DIM, fed=2))
    x, state = torch.randn(ROWS, 1, INPUTS), some_state(layer)
    fed = layer.walk()(layer.foresee(x[..., :3])[0], x[:, 0, 3:], state)
    assert_close(fed, layer(x, state)[1])


def test_a_step_of_an_lstm_is_its_formula() -> None:
    layer, x, (hidden, cell) = unsettle(Lstm(2, 1)), [0.3, -1.2], (0.4, -0.7)
    after = layer(torch.tensor([[x]]), (torch.tensor([[hidden]]), torch.tensor([[cell]])))[1]

    def gate(at: int) -> float:
        one, two, bias = map(float, layer.weight[at].detach())
        return one * x[0] + two * x[1] + bias + float(layer.recurrent[at].detach()) * hidden

    def sigmoid(value: float) -> float:
        return 1 / (1 + math.exp(-value))

    new_cell = sigmoid(gate(1)) * cell + sigmoid(gate(0)) * math.tanh(gate(2))
    assert [each.item() for each in after] == pytest.approx([sigmoid(gate(3)) * math.tanh(new_cell), new_cell], abs=1e-6)


def test_a_step_of_a_gru_is_its_formula() -> None:
    layer, x, hidden = unsettle(Gru(1, 1)), 0.8, -0.6
    (after,) = layer(torch.tensor([[[x]]]), (torch.tensor([[hidden]]),))[1]
    (r, z, n), u = [w * x + b for w, b in layer.weight.tolist()], layer.recurrent.flatten().tolist()
    r, z = (1 / (1 + math.exp(-(given + weight * hidden))) for given, weight in ((r, u[0]), (z, u[1])))
    n = math.tanh(n + r * u[2] * hidden)
    assert after.item() == pytest.approx((1 - z) * n + z * hidden, abs=1e-6)


def test_an_lstm_has_one_bias_and_begins_by_remembering() -> None:
    layer = Lstm(DIM, DIM)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * (2 * DIM**2 + DIM)
    assert_close(layer.weight[:, -1].view(4, DIM), torch.tensor([0.0, 1.0, 0.0, 0.0])[:, None].expand(4, DIM))


def test_padding_before_the_first_token_leaves_no_trace(layer: Layer) -> None:
    real = torch.arange(TIME).expand(ROWS, -1) >= 2
    x = torch.randn(ROWS, TIME, INPUTS)
    said, last = layer(x, None, real)
    expected, expected_last = layer(x[:, 2:], None)
    assert not said[:, :2].any()
    assert torch.equal(said[:, 2:], expected)
    assert all(torch.equal(one, other) for one, other in zip(last, expected_last, strict=True))


def test_a_token_that_is_not_real_changes_nothing(layer: Layer) -> None:
    real = torch.tensor([[0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]).bool()
    x, state = torch.randn(ROWS, TIME, INPUTS), some_state(layer)
    said, last = layer(x, state, real)
    for row in range(ROWS):
        owned_slots = tuple(each[row : row + 1] for each in state)
        if real[row].any():
            expected, owned_slots = layer(x[row : row + 1, real[row]], owned_slots)
            assert_close(said[row, real[row]], expected[0])
        assert_close(tuple(each[row : row + 1] for each in last), owned_slots)


def sentences(x: Tensor) -> list[Tensor]:
    return [x[row : row + 1, :length] for row, length in enumerate(LENGTHS.tolist())]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_source_is_read_to_its_end_and_its_padding_stays_where_it_is(cell: str, reverse: bool) -> None:
    """Reversed, the first word comes last, also in a short sentence; what is said of a word stands at its place."""
    encoder = unsettle(Unidirectional(RecurrentStack([CELLS[cell](INPUTS, DIM), CELLS[cell](DIM, DIM)], 0.0), reverse))
    x = torch.randn(ROWS, TIME, INPUTS)
    words, last, _ = encoder(x, MASK)
    for row, sentence in enumerate(sentences(x)):
        alone = sentence.flip(1) if reverse else sentence
        for layer, state in zip(encoder.stack, last, strict=True):
            alone, expected = layer(alone, None)
            assert_close(tuple(each[row : row + 1] for each in state), expected)
        assert_close(words[row : row + 1, : alone.shape[1]], alone.flip(1) if reverse else alone)


def test_both_ways_are_two_readings_side_by_side(layer: Layer) -> None:
    encoder = Bidirectional(layer, unsettle(type(layer)(INPUTS, DIM)))
    x = torch.randn(ROWS, TIME, INPUTS)
    words = encoder(x, MASK).words
    for row, sentence in enumerate(sentences(x)):
        ahead, back = encoder.ahead(sentence, None)[0], encoder.back(sentence.flip(1), None)[0].flip(1)
        assert_close(words[row : row + 1, : sentence.shape[1]], torch.cat((ahead, back), dim=-1))


@pytest.mark.parametrize("cell", CELLS)
def test_a_stack_walks_as_it_reads(cell: str) -> None:
    stack = unsettle(RecurrentStack([CELLS[cell](INPUTS, DIM), CELLS[cell](DIM, DIM), CELLS[cell](DIM, DIM)], 0.0))
    x = torch.randn(ROWS, TIME, INPUTS)
    states = [some_state(layer) for layer in stack]
    expected, last = stack(x, states, None)
    walk = stack.walk()
    for time, gates in enumerate(stack.foresee(x)):
        states = walk(gates, None, states)
        assert_close(states[-1][0], expected[:, time])
    assert_close(states, last)


def test_dropout_falls_between_the_layers_of_a_stack() -> None:
    stack = RecurrentStack([Lstm(INPUTS, DIM), Lstm(DIM, DIM)], 0.5)
    x = torch.randn(ROWS, TIME, INPUTS)
    assert not torch.equal(stack(x, None, None)[0], stack(x, None, None)[0])
    assert_close(
        RecurrentStack(list(stack)[:1], 0.5)(x, None, None)[0], next(iter(stack))(x, None)[0]
    )  # nothing to stand between
    stack.eval()
    assert torch.equal(stack(x, None, None)[0], stack(x, None, None)[0])
