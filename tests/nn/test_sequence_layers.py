"""Properties of every sequence layer, and each kind compared with a reference."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import perturb
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.nn import masks
from heedful.nn.attention import AttentionBias
from heedful.nn.banded import Band
from heedful.nn.decoder_state import State
from heedful.nn.recurrent import Layer
from heedful.nn.sequence_layers import (
    SEQUENCE_LAYERS,
    Convolution,
    DilatedConvolution,
    FullAttention,
    Gru,
    LayerSize,
    Lstm,
    ParameterFreeAttention,
    RestrictedAttention,
    SequenceLayer,
)
from heedful.nn.sequence_layers.base import LayerState
from heedful.nn.step_context import next_tokens, whole_sequence

SMALL = LayerSize(dim=8, heads=2, window=4, kernel=3, dilation=2)
CAUSAL = SMALL.model_copy(update={"causal": True})
BOTH = pytest.mark.parametrize("size", [SMALL, CAUSAL], ids=["full", "causal"])
EVERY = pytest.mark.parametrize("kind", SEQUENCE_LAYERS)
ROWS, TIME = 3, 37  # three blocks of restricted attention, the last one not full
REAL = {
    "at the end": masks.padding(torch.tensor([TIME, 20, 5]), TIME),
    "at the front": masks.padding(torch.tensor([TIME, 20, 5]), TIME).flip(1),
    "inside": torch.arange(TIME) % torch.tensor([3, 5, 40])[:, None] != 1,
}
WHERE = pytest.mark.parametrize("where", REAL)


def make(kind: str | type[SequenceLayer], size: LayerSize) -> SequenceLayer:
    chosen = SEQUENCE_LAYERS[kind] if isinstance(kind, str) else kind
    return perturb(chosen(size)).eval()


def tokens(rows: int = ROWS, time: int = TIME) -> Tensor:
    return torch.randn(rows, time, SMALL.dim)


@EVERY
@BOTH
@pytest.mark.parametrize("time", [1, 2, 3, 16, 17, 37])
def test_the_shape_is_kept_at_any_length(kind: str, size: LayerSize, time: int) -> None:
    out = make(kind, size)(tokens(2, time))
    assert out.shape == (2, time, SMALL.dim)
    assert out.isfinite().all()


@EVERY
@pytest.mark.parametrize("where", [None, *REAL])
def test_a_causal_layer_does_not_depend_on_later_tokens(kind: str, where: str | None) -> None:
    layer, x = make(kind, CAUSAL), tokens()
    mask = None if where is None else REAL[where]
    other = x.clone()
    other[:, 21:] = torch.randn_like(other[:, 21:])
    torch.testing.assert_close(layer(x, mask)[:, :21], layer(other, mask)[:, :21], rtol=0, atol=1e-6)


@EVERY
def test_a_layer_that_is_not_causal_depends_on_later_tokens(kind: str) -> None:
    layer, x = make(kind, SMALL), tokens()
    other = x.clone()
    other[:, 21:] = torch.randn_like(other[:, 21:])
    assert (layer(x)[:, 20] - layer(other)[:, 20]).abs().max() > 1e-4


@EVERY
@BOTH
@WHERE
def test_the_content_of_padding_has_no_effect(kind: str, size: LayerSize, where: str) -> None:
    layer, x, mask = make(kind, size), tokens(), REAL[where]
    other = torch.where(mask[..., None], x, torch.randn_like(x) * 100)
    assert not torch.equal(x, other)
    torch.testing.assert_close(layer(x, mask), layer(other, mask), rtol=0, atol=1e-6)
    assert torch.equal(layer(x, mask).abs().sum(-1) > 0, mask)  # outputs are zero for padding only


@EVERY
@BOTH
@pytest.mark.parametrize("sides", [(0, 1), (0, 50), (3, 0), (2, 7)])
def test_more_padding_changes_nothing(kind: str, size: LayerSize, sides: tuple[int, int]) -> None:
    layer, x = make(kind, size), tokens()
    front, end = sides
    padded = functional.pad(x, (0, 0, front, end), value=9.0)
    mask = functional.pad(torch.ones(ROWS, TIME, dtype=torch.bool), (front, end))
    torch.testing.assert_close(layer(padded, mask)[:, front : front + TIME], layer(x), rtol=1e-5, atol=1e-5)


@EVERY
@BOTH
@WHERE
def test_every_parameter_and_every_real_token_receives_a_gradient(kind: str, size: LayerSize, where: str) -> None:
    layer, mask = make(kind, size), REAL[where]
    x = tokens().requires_grad_()
    layer(x, mask)[mask].square().sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert torch.equal(x.grad.abs().sum(-1) > 0, mask)
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all() and parameter.grad.abs().sum() > 0, name


@EVERY
@pytest.mark.parametrize("chunk", [1, 5, TIME])
def test_chunks_equal_the_whole_sequence(kind: str, chunk: int) -> None:
    layer, x = make(kind, CAUSAL), tokens()
    cache = {"positions": torch.zeros(ROWS, TIME, dtype=torch.long), "layer": layer.slots(ROWS, TIME, x)}
    state = State(None, layer.initial_state(ROWS, x), cache, owned_slots=torch.zeros(ROWS, TIME, dtype=torch.bool))
    outputs = []
    with torch.no_grad():
        for chunk_of_x in x.split(chunk, dim=1):  # type: ignore[no-untyped-call]
            step = next_tokens(state, chunk_of_x[..., 0], None, sources=ROWS)
            out, row_state = layer.step(chunk_of_x, LayerState(state.row_state, state.kv_cache["layer"]), step)
            state = state._replace(
                row_state=row_state, owned_slots=step.owned_slots, filled=int(state.filled) + chunk_of_x.shape[1]
            )
            outputs.append(out)
    torch.testing.assert_close(torch.cat(outputs, dim=1), layer(x), rtol=0, atol=1e-5)


@EVERY
def test_a_layer_that_is_not_causal_cannot_run_token_by_token(kind: str) -> None:
    with pytest.raises(AssertionError, match="only a causal layer"):
        make(kind, SMALL).step(tokens(1, 1), LayerState(), whole_sequence(torch.zeros(1, 1)))


@EVERY
def test_dropout_applies_to_the_output(kind: str) -> None:
    layer, x = make(kind, SMALL.model_copy(update={"dropout": 0.5})), tokens()
    whole = layer(x)
    dropped = layer.train()(x)
    kept = dropped != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])


@BOTH
@pytest.mark.parametrize(("time", "window"), [(1, 4), (9, 4), (37, 4), (64, 4), (37, 5), (50, 20), (45, 200), (37, 1)])
@pytest.mark.parametrize("where", [None, *REAL])
def test_restricted_attention_equals_full_attention_under_a_mask(
    size: LayerSize, time: int, window: int, where: str | None
) -> None:
    layer = make(RestrictedAttention, size.model_copy(update={"window": window}))
    assert isinstance(layer, RestrictedAttention)
    x = tokens(ROWS, time).requires_grad_()
    real = torch.ones(ROWS, time, dtype=torch.bool) if where is None else REAL[where].repeat(1, 2)[:, :time]
    places = torch.arange(time)[None]
    window_mask = masks.causal_window if size.causal else masks.window
    mask = (window_mask(places, places, window) & real[:, None, :])[:, None]  # (rows, 1, query, key)

    blocked = layer(x, None if where is None else real)[real]
    whole = layer.self_attention(*layer.self_attention.split(x), AttentionBias(mask))[real]
    torch.testing.assert_close(blocked, whole, rtol=1e-5, atol=1e-6)
    weight = torch.randn_like(whole)
    for blocked_gradient, whole_gradient in zip(
        *(torch.autograd.grad(out, [x, *layer.parameters()], weight) for out in (blocked, whole)), strict=True
    ):
        torch.testing.assert_close(blocked_gradient, whole_gradient, rtol=1e-4, atol=1e-5)


@given(time=st.integers(1, 300), window=st.integers(1, 80), causal=st.booleans())
def test_blocks_cover_the_band_and_little_more(time: int, window: int, causal: bool) -> None:
    band = Band(time, window, causal)
    assert (time + band.missing) % band.block == 0 and 0 <= band.missing < band.block
    if time > band.block:
        assert band.before >= (window - 1 if causal else window // 2)
        assert band.after >= (0 if causal else window // 2)
    assert (time + band.missing) * band.span <= (time + band.block) * (2 * max(window, 16) + 1)


@pytest.mark.parametrize("kind", [FullAttention, ParameterFreeAttention])
@BOTH
def test_attention_equals_a_loop_over_queries(kind: type[SequenceLayer], size: LayerSize) -> None:
    layer, x, mask = make(kind, size), tokens(), REAL["inside"]
    if isinstance(layer, FullAttention):
        query, key, value = layer.self_attention.split(x)
        scale = 1 / math.sqrt(4)
    else:
        query = key = value = x[:, None]
        scale = 1.0
    context = torch.zeros(ROWS, TIME, SMALL.dim)
    for row in range(ROWS):
        for i in range(TIME):
            allowed = [j for j in range(i + 1 if size.causal else TIME) if mask[row, j]]
            heads = []
            for head in range(query.shape[1]):
                scores = torch.stack([query[row, head, i] @ key[row, head, j] * scale for j in allowed]) if allowed else None
                weights = [] if scores is None else list(scores.exp() / scores.exp().sum())
                parts = [weight * value[row, head, j] for weight, j in zip(weights, allowed, strict=True)]
                heads.append(sum(parts, torch.zeros(value.shape[-1])))
            context[row, i] = torch.cat(heads)
    expected = layer.self_attention.out(context) if isinstance(layer, FullAttention) else context
    torch.testing.assert_close(layer(x, mask)[mask], expected[mask], rtol=1e-4, atol=1e-5)


def test_parameter_free_attention_by_hand() -> None:
    """<s>, die, Katze, tanzte: softmax(x x^T) x without weights, mask or scale."""
    layer = ParameterFreeAttention(LayerSize(dim=2, heads=1))
    assert list(layer.parameters()) == []
    x = torch.tensor([[[1.0, 1.0], [-1.0, -2.5], [4.0, 3.0], [2.0, -3.0]]])
    expected = torch.tensor([[[3.9791, 2.9845], [-0.5558, -2.5740], [4.0, 3.0], [1.9983, -2.9997]]])
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", [FullAttention, ParameterFreeAttention])
def test_attention_is_permutation_equivariant(kind: type[SequenceLayer]) -> None:
    layer, x, order = make(kind, SMALL), tokens(), torch.randperm(TIME)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [RestrictedAttention, Lstm, Gru, Convolution, DilatedConvolution])
def test_other_layers_are_not_permutation_equivariant(kind: type[SequenceLayer]) -> None:
    layer, x, order = make(kind, SMALL), tokens(), torch.randperm(TIME)
    assert (layer(x[:, order]) - layer(x)[:, order]).abs().max() > 1e-3


def lstm_step(cell: Layer, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    hidden, memory = state
    sums = cell.weight[:, :-1] @ x + cell.weight[:, -1] + cell.recurrent @ hidden
    input_gate, forget_gate, new, output_gate = sums.chunk(4)
    memory = forget_gate.sigmoid() * memory + input_gate.sigmoid() * new.tanh()
    return output_gate.sigmoid() * memory.tanh(), memory


def gru_step(cell: Layer, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    hidden, _ = state
    input_reset, input_keep, input_new = (cell.weight[:, :-1] @ x + cell.weight[:, -1]).chunk(3)
    hidden_reset, hidden_keep, hidden_new = (cell.recurrent @ hidden).chunk(3)
    new = (input_new + (input_reset + hidden_reset).sigmoid() * hidden_new).tanh()
    keep = (input_keep + hidden_keep).sigmoid()
    return keep * hidden + (1 - keep) * new, hidden


@pytest.mark.parametrize(("kind", "step"), [(Lstm, lstm_step), (Gru, gru_step)])
@BOTH
@WHERE
def test_a_recurrent_layer_equals_its_equations_over_the_real_tokens(
    kind: type[Lstm] | type[Gru], step: Callable[..., tuple[Tensor, Tensor]], size: LayerSize, where: str
) -> None:
    layer, x, mask = make(kind, size), tokens(), REAL[where]
    assert isinstance(layer, Lstm | Gru)
    out = layer(x, mask)
    hidden = SMALL.dim if size.causal else SMALL.dim // 2
    for row in range(ROWS):
        places = mask[row].nonzero().flatten().tolist()
        directions: list[tuple[Layer, list[int], slice]] = [(layer.forwards, places, slice(0, hidden))]
        if layer.backwards is not None:
            directions.append((layer.backwards, places[::-1], slice(hidden, None)))
        for cell, order, part in directions:
            state = torch.zeros(hidden), torch.zeros(hidden)
            for place in order:
                state = step(cell, x[row, place], state)
                torch.testing.assert_close(out[row, place, part], state[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "torchs"), [(Lstm, nn.LSTM), (Gru, nn.GRU)])
def test_a_bidirectional_layer_equals_torchs(kind: type[Lstm] | type[Gru], torchs: type[nn.LSTM] | type[nn.GRU]) -> None:
    layer, x, mask = make(kind, SMALL), tokens(), REAL["at the end"]
    reference = torchs(SMALL.dim, SMALL.dim // 2, batch_first=True, bidirectional=True)
    assert isinstance(layer, Lstm | Gru) and layer.backwards is not None
    state = {name: torch.zeros_like(value) for name, value in reference.state_dict().items()}  # torch has a second bias
    for cell, back in ((layer.forwards, ""), (layer.backwards, "_reverse")):
        state |= {f"weight_ih_l0{back}": cell.weight[:, :-1], f"weight_hh_l0{back}": cell.recurrent}
        state[f"bias_ih_l0{back}"] = cell.weight[:, -1]
    reference.load_state_dict(state)
    packed = pack_padded_sequence(x, mask.sum(1), batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(reference(packed)[0], batch_first=True)
    torch.testing.assert_close(layer(x, mask)[mask], expected[mask], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "dilation"), [(Convolution, 1), (DilatedConvolution, 2), (DilatedConvolution, 5)])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@BOTH
def test_a_convolution_equals_an_explicit_sum(kind: type[Convolution], dilation: int, kernel: int, size: LayerSize) -> None:
    layer, x, mask = make(kind, size.model_copy(update={"kernel": kernel, "dilation": dilation})), tokens(), REAL["inside"]
    assert isinstance(layer, Convolution)
    weights = layer.sum.map.weight.view(-1, kernel, SMALL.dim)  # (2 dim, kernel, dim)
    first = -(kernel - 1) * dilation if size.causal else -((kernel - 1) * dilation // 2)
    out = layer(x, mask)
    for row in range(ROWS):
        for place in range(TIME):
            total: Tensor = layer.sum.map.bias
            for offset in range(kernel):
                at = place + first + offset * dilation
                if 0 <= at < TIME and mask[row, at]:
                    total = total + weights[:, offset] @ x[row, at]
            value, gate = total.chunk(2)
            expected = value * gate.sigmoid() * mask[row, place]
            torch.testing.assert_close(out[row, place], expected, rtol=1e-4, atol=1e-5)
