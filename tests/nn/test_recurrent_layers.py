"""Recurrent layers equal torch's, with their bias as a weight, or, normalized, the equations of Ba et al. (2016); steps equal
the whole sequence; padding has no effect."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tiny import perturb
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.normalized_recurrent import CELLS, NormalizedGru, NormalizedLstm
from heedful.nn.recurrent import (
    Bidirectional,
    Gru,
    Hidden,
    Layer,
    Lstm,
    RecurrentStack,
    Unidirectional,
)
from heedful.nn.torch_private import fused_gru_cell, fused_lstm_cell

ROWS, TIME, INPUTS, DIM = 3, 6, 5, 4
LENGTHS = torch.tensor([6, 2, 4])
MASK = torch.arange(TIME) < LENGTHS[:, None]


LAYERS = {f"{cell}, norm {norm}": layer for norm, cells in CELLS.items() for cell, layer in cells.items()}


@pytest.fixture(params=LAYERS, name="layer")
def _layer(request: pytest.FixtureRequest) -> Layer:
    return perturb(LAYERS[request.param](INPUTS, DIM))


@pytest.fixture(params=CELLS["none"], name="plain")
def _plain(request: pytest.FixtureRequest) -> Layer:
    return perturb(CELLS["none"][request.param](INPUTS, DIM))


def reference(layer: Layer) -> Any:
    """torch's own layer, which has biases."""
    torchs = layer.kernel_class(INPUTS, DIM, batch_first=True)
    with torch.no_grad():
        torchs.get_parameter("weight_ih_l0").copy_(layer.weight[:, :-1])
        torchs.get_parameter("bias_ih_l0").copy_(layer.weight[:, -1])
        torchs.get_parameter("weight_hh_l0").copy_(layer.recurrent)
        torchs.get_parameter("bias_hh_l0").zero_()
    return torchs


def some_state(layer: Layer) -> Hidden:
    return tuple(torch.randn(ROWS, DIM) for _ in range(layer.states))


def as_torch(state: Hidden) -> Any:
    return (state[0][None], state[1][None]) if len(state) == 2 else state[0][None]


@pytest.mark.parametrize("with_state", [False, True])
def test_a_layer_equals_torchs(plain: Layer, with_state: bool) -> None:
    x, state = torch.randn(ROWS, TIME, INPUTS), some_state(plain) if with_state else None
    hidden, last = plain(x, state)
    expected, expected_last = reference(plain)(x, None if state is None else as_torch(state))
    assert_close(hidden, expected)
    assert_close(as_torch(last), expected_last)


def test_steps_equal_the_whole_sequence(layer: Layer) -> None:
    x, state = torch.randn(ROWS, TIME, INPUTS), some_state(layer)
    expected, last = layer(x, state)
    step, inputs = layer.step_function(), layer.project_inputs(x)
    assert len(inputs) == TIME
    for time, gates in enumerate(inputs):
        state = step(gates, None, state)
        assert_close(state[0], expected[:, time])
    assert_close(state, last)


@pytest.mark.parametrize("with_state", [False, True])
def test_step_by_step_equals_the_kernel_with_its_gradients(plain: Layer, with_state: bool) -> None:
    inputs, state = torch.randn(ROWS, TIME, INPUTS + 1, requires_grad=True), some_state(plain) if with_state else None
    (hidden, last), (expected, expected_last) = plain.step_by_step(inputs, state), plain.call(inputs, state)
    assert_close(hidden, expected)
    assert_close(last, expected_last)
    variables = inputs, plain.weight, plain.recurrent
    assert_close(*(torch.autograd.grad(out.square().sum(), variables) for out in (hidden, expected)))


def lstm_formula(from_input: Tensor, from_hidden: Tensor, cell: Tensor) -> Hidden:
    i, f, g, o = (from_input + from_hidden).chunk(4, dim=-1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def gru_formula(from_input: Tensor, from_hidden: Tensor, hidden: Tensor) -> Tensor:
    (r, z, n), (hidden_r, hidden_z, hidden_n) = from_input.chunk(3, dim=-1), from_hidden.chunk(3, dim=-1)
    update = (z + hidden_z).sigmoid()
    return (1 - update) * (n + (r + hidden_r).sigmoid() * hidden_n).tanh() + update * hidden


@pytest.mark.parametrize("fed", [0, 2])
@pytest.mark.parametrize("cell", CELLS["none"])
def test_fused_cells_get_the_right_arguments(cell: str, fed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = perturb(CELLS["none"][cell](INPUTS, DIM, fed=fed))
    x, state, more = torch.randn(ROWS, 1, INPUTS), some_state(layer), torch.randn(ROWS, fed) if fed else None
    expected = layer.step_function()(layer.project_inputs(x)[0], more, state)
    for name, value in {
        "has_fused_cells": lambda x: True,
        "fused_lstm_cell": lstm_formula,
        "fused_gru_cell": gru_formula,
    }.items():
        monkeypatch.setattr(f"heedful.nn.recurrent.{name}", value)
    assert_close(layer.step_function()(layer.project_inputs(x)[0], more, state), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_fused_cells_equal_their_formulas(plain: Layer) -> None:
    gates = plain.gates * DIM
    sizes = gates, gates, DIM
    from_input, from_hidden, state = (torch.randn(ROWS, size, device="cuda", requires_grad=True) for size in sizes)
    fused, formula = (fused_lstm_cell, lstm_formula) if isinstance(plain, Lstm) else (fused_gru_cell, gru_formula)
    new, expected = fused(from_input, from_hidden, state), formula(from_input, from_hidden, state)
    assert_close(new, expected)
    outputs = [torch.cat(out, -1) if isinstance(out, tuple) else out for out in (new, expected)]
    gradients = [torch.autograd.grad(out.square().sum(), (from_input, from_hidden, state)) for out in outputs]
    assert_close(*gradients)


@pytest.mark.parametrize("cell", LAYERS)
def test_fed_inputs_are_concatenated_to_the_inputs(cell: str) -> None:
    layer = perturb(LAYERS[cell](3, DIM, fed=2))
    x, state = torch.randn(ROWS, 1, INPUTS), some_state(layer)
    fed = layer.step_function()(layer.project_inputs(x[..., :3])[0], x[:, 0, 3:], state)
    assert_close(fed, layer(x, state)[1])


def normalized(values: Tensor, gain: Tensor) -> Tensor:
    """a (z - mean) / deviation over the last axis, written out."""
    mean = values.sum(-1, keepdim=True) / values.shape[-1]
    variance = ((values - mean) ** 2).sum(-1, keepdim=True) / values.shape[-1]
    return gain * (values - mean) / (variance + 1e-5).sqrt()


def normalized_lstm(layer: NormalizedLstm, x: Tensor, state: Hidden) -> Hidden:
    """One step: x (rows, inputs)."""
    hidden, cell = state
    from_input = normalized(x @ layer.weight[:, :-1].T, layer.input_norm.gain)
    from_hidden = normalized(hidden @ layer.recurrent.T, layer.hidden_norm.gain)
    i, f, g, o = (from_input + from_hidden + layer.weight[:, -1]).chunk(4, dim=-1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * normalized(cell, layer.cell_norm.gain).tanh(), cell


def normalized_gru(layer: NormalizedGru, x: Tensor, state: Hidden) -> Hidden:
    """One step: both gates are normalized together, the candidate on its own."""
    (hidden,) = state
    gates, candidate = slice(0, 2 * DIM), slice(2 * DIM, 3 * DIM)
    from_input, from_hidden, bias = x @ layer.weight[:, :-1].T, hidden @ layer.recurrent.T, layer.weight[:, -1]
    inputs, states = layer.input_norm.gain, layer.hidden_norm.gain
    r, z = (
        (normalized(from_input[:, gates], inputs[gates]) + normalized(from_hidden[:, gates], states[gates]) + bias[gates])
        .sigmoid()
        .chunk(2, dim=-1)
    )
    new = normalized(from_input[:, candidate], inputs[candidate]) + bias[candidate]
    new = (new + r * normalized(from_hidden[:, candidate], states[candidate])).tanh()
    return ((1 - z) * new + z * hidden,)


@pytest.mark.parametrize(("cell", "reference_step"), [(NormalizedLstm, normalized_lstm), (NormalizedGru, normalized_gru)])
@pytest.mark.parametrize("fed", [0, 2])
def test_a_normalized_layer_is_its_equations_with_their_gradients(cell: Any, reference_step: Any, fed: int) -> None:
    layer = perturb(cell(INPUTS - fed, DIM, fed=fed))
    x, initial = torch.randn(ROWS, TIME, INPUTS), some_state(layer)
    state, expected_state, hidden, expected = initial, initial, [], []
    step = layer.step_function()
    for time, gates in enumerate(layer.project_inputs(x[..., : INPUTS - fed])):
        state = step(gates, x[:, time, INPUTS - fed :] if fed else None, state)
        expected_state = reference_step(layer, x[:, time], expected_state)
        hidden.append(state[0])
        expected.append(expected_state[0])
    assert len(hidden) == TIME
    assert_close(torch.stack(hidden), torch.stack(expected))
    assert_close(state, expected_state)
    assert_close(layer(x, initial), (torch.stack(expected, dim=1), expected_state))
    gradients = [torch.autograd.grad(torch.stack(out).square().sum(), list(layer.parameters())) for out in (hidden, expected)]
    assert_close(*gradients)


@pytest.mark.parametrize("cell", [NormalizedLstm, NormalizedGru])
def test_normalized_gates_do_not_depend_on_the_scale_of_the_weights(cell: Any) -> None:
    """N(2 W x) = N(W x), but for the eps in the denominator; and a plain layer does depend on it."""
    for kind, is_equal in ((cell, True), (type(LAYERS["gru, norm none"](1, 1)), False)):
        layer = perturb(kind(INPUTS, DIM))
        x, state = 100 * torch.randn(ROWS, TIME, INPUTS), tuple(100 * each for each in some_state(layer))
        before = layer(x, state)[0]
        with torch.no_grad():
            layer.weight[:, :-1] *= 2
            layer.recurrent.mul_(2)
        assert torch.allclose(layer(x, state)[0], before, atol=1e-4) == is_equal


@pytest.mark.parametrize("cell", [NormalizedLstm, NormalizedGru])
def test_gradients_stay_finite_behind_long_padding(cell: Any) -> None:
    """The derivative of N at 0 is 1 / sqrt(eps): through 200 padded steps a gradient would overflow."""
    layer, real = cell(INPUTS, DIM), torch.arange(204).expand(ROWS, -1) >= 200
    hidden, _ = layer(torch.randn(ROWS, 204, INPUTS), None, real)
    hidden.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_a_step_of_an_lstm_is_its_formula() -> None:
    layer, x, (hidden, cell) = perturb(Lstm(2, 1)), [0.3, -1.2], (0.4, -0.7)
    after = layer(torch.tensor([[x]]), (torch.tensor([[hidden]]), torch.tensor([[cell]])))[1]

    def gate(at: int) -> float:
        one, two, bias = map(float, layer.weight[at].detach())
        return one * x[0] + two * x[1] + bias + float(layer.recurrent[at].detach()) * hidden

    def sigmoid(value: float) -> float:
        return 1 / (1 + math.exp(-value))

    new_cell = sigmoid(gate(1)) * cell + sigmoid(gate(0)) * math.tanh(gate(2))
    assert [each.item() for each in after] == pytest.approx([sigmoid(gate(3)) * math.tanh(new_cell), new_cell], abs=1e-6)


def test_a_step_of_a_gru_is_its_formula() -> None:
    layer, x, hidden = perturb(Gru(1, 1)), 0.8, -0.6
    (after,) = layer(torch.tensor([[[x]]]), (torch.tensor([[hidden]]),))[1]
    (r, z, n), u = [w * x + b for w, b in layer.weight.tolist()], layer.recurrent.flatten().tolist()
    r, z = (1 / (1 + math.exp(-(gate + weight * hidden))) for gate, weight in ((r, u[0]), (z, u[1])))
    n = math.tanh(n + r * u[2] * hidden)
    assert after.item() == pytest.approx((1 - z) * n + z * hidden, abs=1e-6)


def test_an_lstm_has_one_bias_and_initially_open_forget_gates() -> None:
    layer = Lstm(DIM, DIM)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * (2 * DIM**2 + DIM)
    assert_close(layer.weight[:, -1].view(4, DIM), torch.tensor([0.0, 1.0, 0.0, 0.0])[:, None].expand(4, DIM))


def test_padding_before_the_first_token_has_no_effect(layer: Layer) -> None:
    real = torch.arange(TIME).expand(ROWS, -1) >= 2
    x = torch.randn(ROWS, TIME, INPUTS)
    hidden, last = layer(x, None, real)
    expected, expected_last = layer(x[:, 2:], None)
    assert not hidden[:, :2].any()
    assert torch.equal(hidden[:, 2:], expected)
    assert all(torch.equal(*states) for states in zip(last, expected_last, strict=True))


def test_padding_does_not_change_a_given_state(layer: Layer) -> None:
    real = torch.tensor([[0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]).bool()
    x, state = torch.randn(ROWS, TIME, INPUTS), some_state(layer)
    hidden, last = layer(x, state, real)
    for row in range(ROWS):
        row_state = tuple(each[row : row + 1] for each in state)
        if real[row].any():
            expected, row_state = layer(x[row : row + 1, real[row]], row_state)
            assert_close(hidden[row, real[row]], expected[0])
        assert_close(tuple(each[row : row + 1] for each in last), row_state)


def sentences(x: Tensor) -> list[Tensor]:
    return [x[row : row + 1, :length] for row, length in enumerate(LENGTHS.tolist())]


@pytest.mark.parametrize("cell", LAYERS)
@pytest.mark.parametrize("reverse", [False, True])
def test_the_last_state_is_that_of_the_last_real_token(cell: str, reverse: bool) -> None:
    """Reversed, the first token is the last, also in a short sentence; outputs keep the order of the source."""
    encoder = perturb(Unidirectional(RecurrentStack([LAYERS[cell](INPUTS, DIM), LAYERS[cell](DIM, DIM)], 0.0), reverse))
    x = torch.randn(ROWS, TIME, INPUTS)
    hidden, last, _ = encoder(x, MASK)
    for row, sentence in enumerate(sentences(x)):
        alone = sentence.flip(1) if reverse else sentence
        for layer, state in zip(encoder.stack, last, strict=True):
            alone, expected = layer(alone, None)
            assert_close(tuple(each[row : row + 1] for each in state), expected)
        assert_close(hidden[row : row + 1, : alone.shape[1]], alone.flip(1) if reverse else alone)


def test_a_bidirectional_encoder_concatenates_both_directions(layer: Layer) -> None:
    encoder = Bidirectional(layer, perturb(type(layer)(INPUTS, DIM)))
    x = torch.randn(ROWS, TIME, INPUTS)
    hidden = encoder(x, MASK).hidden
    for row, sentence in enumerate(sentences(x)):
        ahead, back = encoder.ahead(sentence, None)[0], encoder.back(sentence.flip(1), None)[0].flip(1)
        assert_close(hidden[row : row + 1, : sentence.shape[1]], torch.cat((ahead, back), dim=-1))


@pytest.mark.parametrize("cell", LAYERS)
def test_steps_of_a_stack_equal_the_whole_sequence(cell: str) -> None:
    stack = perturb(RecurrentStack([LAYERS[cell](INPUTS, DIM), LAYERS[cell](DIM, DIM), LAYERS[cell](DIM, DIM)], 0.0))
    x = torch.randn(ROWS, TIME, INPUTS)
    states = [some_state(layer) for layer in stack]
    expected, last = stack(x, states, None)
    step = stack.step_function()
    for time, gates in enumerate(stack.project_inputs(x)):
        states = step(gates, None, states)
        assert_close(states[-1][0], expected[:, time])
    assert_close(states, last)


def test_dropout_is_applied_between_the_layers_of_a_stack() -> None:
    stack = RecurrentStack([Lstm(INPUTS, DIM), Lstm(DIM, DIM)], 0.5)
    x = torch.randn(ROWS, TIME, INPUTS)
    assert not torch.equal(stack(x, None, None)[0], stack(x, None, None)[0])
    single = RecurrentStack(list(stack)[:1], 0.5)
    assert_close(single(x, None, None)[0], next(iter(stack))(x, None)[0])
    stack.eval()
    assert torch.equal(stack(x, None, None)[0], stack(x, None, None)[0])
