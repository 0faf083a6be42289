"""What every sequence layer promises, and each kind beside the same thing done another way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import refused, unsettle
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.flop_counter import FlopCounterMode

from heedful.nn import masks
from heedful.nn.attention import Sight
from heedful.nn.banded import Band
from heedful.nn.positions import frequencies, sinusoid
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

SMALL = LayerSize(dim=8, heads=2, window=4, kernel=3, dilation=2)
CAUSAL = SMALL.model_copy(update={"causal": True})
BOTH = pytest.mark.parametrize("size", [SMALL, CAUSAL], ids=["seeing all", "causal"])
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
    return unsettle(chosen(size)).eval()


def tokens(rows: int = ROWS, time: int = TIME) -> Tensor:
    return torch.randn(rows, time, SMALL.dim)


@EVERY
@BOTH
@pytest.mark.parametrize("time", [1, 2, 3, 16, 17, 37])
def test_the_shape_stays_at_any_length(kind: str, size: LayerSize, time: int) -> None:
    out = make(kind, size)(tokens(2, time))
    assert out.shape == (2, time, SMALL.dim)
    assert out.isfinite().all()


@EVERY
@pytest.mark.parametrize("where", [None, *REAL])
def test_a_causal_layer_does_not_look_ahead(kind: str, where: str | None) -> None:
    layer, x = make(kind, CAUSAL), tokens()
    mask = None if where is None else REAL[where]
    other = x.clone()
    other[:, 21:] = torch.randn_like(other[:, 21:])
    torch.testing.assert_close(layer(x, mask)[:, :21], layer(other, mask)[:, :21], rtol=0, atol=1e-6)


@EVERY
def test_a_layer_that_is_not_causal_does_look_ahead(kind: str) -> None:
    layer, x = make(kind, SMALL), tokens()
    other = x.clone()
    other[:, 21:] = torch.randn_like(other[:, 21:])
    assert (layer(x)[:, 20] - layer(other)[:, 20]).abs().max() > 1e-4


@EVERY
@BOTH
@WHERE
def test_what_stands_in_padding_changes_nothing(kind: str, size: LayerSize, where: str) -> None:
    layer, x, mask = make(kind, size), tokens(), REAL[where]
    other = torch.where(mask[..., None], x, torch.randn_like(x) * 100)
    assert not torch.equal(x, other)
    torch.testing.assert_close(layer(x, mask), layer(other, mask), rtol=0, atol=1e-6)
    assert torch.equal(layer(x, mask).abs().sum(-1) > 0, mask)  # zeros come out, and only there


@EVERY
@BOTH
@pytest.mark.parametrize("sides", [(0, 1), (0, 50), (3, 0), (2, 7)])
def test_padding_a_sequence_further_changes_nothing(kind: str, size: LayerSize, sides: tuple[int, int]) -> None:
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
def test_dropout_falls_on_what_a_layer_gives(kind: str) -> None:
    layer, x = make(kind, SMALL.model_copy(update={"dropout": 0.5})), tokens()
    whole = layer(x)
    thinned = layer.train()(x)
    kept = thinned != 0
    assert 0.3 < kept.float().mean() < 0.7
    torch.testing.assert_close(thinned[kept], 2 * whole[kept])


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
    whole = layer.attention(*layer.attention.split(x), Sight(mask))[real]
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
        query, key, value = layer.attention.split(x)
        scale = 1 / math.sqrt(4)
    else:
        query = key = value = x[:, None]
        scale = 1.0
    found = torch.zeros(ROWS, TIME, SMALL.dim)
    for row in range(ROWS):
        for i in range(TIME):
            there = [j for j in range(i + 1 if size.causal else TIME) if mask[row, j]]
            heads = []
            for head in range(query.shape[1]):
                scores = torch.stack([query[row, head, i] @ key[row, head, j] * scale for j in there]) if there else None
                weights = [] if scores is None else list(scores.exp() / scores.exp().sum())
                parts = [weight * value[row, head, j] for weight, j in zip(weights, there, strict=True)]
                heads.append(sum(parts, torch.zeros(value.shape[-1])))
            found[row, i] = torch.cat(heads)
    expected = layer.attention.out(found) if isinstance(layer, FullAttention) else found
    torch.testing.assert_close(layer(x, mask)[mask], expected[mask], rtol=1e-4, atol=1e-5)


def test_parameter_free_attention_by_hand() -> None:
    """<s>, die, Katze, tanzte: softmax(x x^T) x without weights, mask or scale."""
    layer = ParameterFreeAttention(LayerSize(dim=2, heads=1))
    assert list(layer.parameters()) == []
    x = torch.tensor([[[1.0, 1.0], [-1.0, -2.5], [4.0, 3.0], [2.0, -3.0]]])
    expected = torch.tensor([[[3.9791, 2.9845], [-0.5558, -2.5740], [4.0, 3.0], [1.9983, -2.9997]]])
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", [FullAttention, ParameterFreeAttention])
def test_attention_does_not_know_the_order(kind: type[SequenceLayer]) -> None:
    layer, x, order = make(kind, SMALL), tokens(), torch.randperm(TIME)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [RestrictedAttention, Lstm, Gru, Convolution, DilatedConvolution])
def test_the_others_do_know_the_order(kind: type[SequenceLayer]) -> None:
    layer, x, order = make(kind, SMALL), tokens(), torch.randperm(TIME)
    assert (layer(x[:, order]) - layer(x)[:, order]).abs().max() > 1e-3


def lstm_step(cell: Mapping[str, Tensor], x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    hidden, memory = state
    sums = cell["weight_ih_l0"] @ x + cell["bias_ih_l0"] + cell["weight_hh_l0"] @ hidden + cell["bias_hh_l0"]
    take, keep, new, give = sums.chunk(4)
    memory = keep.sigmoid() * memory + take.sigmoid() * new.tanh()
    return give.sigmoid() * memory.tanh(), memory


def gru_step(cell: Mapping[str, Tensor], x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    hidden, _ = state
    input_reset, input_keep, input_new = (cell["weight_ih_l0"] @ x + cell["bias_ih_l0"]).chunk(3)
    past_reset, past_keep, past_new = (cell["weight_hh_l0"] @ hidden + cell["bias_hh_l0"]).chunk(3)
    new = (input_new + (input_reset + past_reset).sigmoid() * past_new).tanh()
    keep = (input_keep + past_keep).sigmoid()
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
        ways = [(layer.forwards, places, slice(0, hidden))]
        if layer.backwards is not None:
            ways.append((layer.backwards, places[::-1], slice(hidden, None)))
        for cell, order, part in ways:
            state = torch.zeros(hidden), torch.zeros(hidden)
            for place in order:
                state = step(cell.state_dict(), x[row, place], state)
                torch.testing.assert_close(out[row, place, part], state[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "torchs"), [(Lstm, nn.LSTM), (Gru, nn.GRU)])
def test_a_layer_that_reads_both_ways_is_torchs_own(kind: type[Lstm] | type[Gru], torchs: type[nn.LSTM] | type[nn.GRU]) -> None:
    layer, x, mask = make(kind, SMALL), tokens(), REAL["at the end"]
    own = torchs(SMALL.dim, SMALL.dim // 2, batch_first=True, bidirectional=True)
    state = {name.removeprefix("forwards."): value for name, value in layer.state_dict().items() if "forwards" in name}
    state |= {f"{name.removeprefix('backwards.')}_reverse": v for name, v in layer.state_dict().items() if "backwards" in name}
    own.load_state_dict(state)
    packed = pack_padded_sequence(x, mask.sum(1), batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(own(packed)[0], batch_first=True)
    torch.testing.assert_close(layer(x, mask)[mask], expected[mask], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("kind", "dilation"), [(Convolution, 1), (DilatedConvolution, 2), (DilatedConvolution, 5)])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@BOTH
def test_a_convolution_equals_a_sum_over_its_neighbours(
    kind: type[Convolution], dilation: int, kernel: int, size: LayerSize
) -> None:
    layer, x, mask = make(kind, size.model_copy(update={"kernel": kernel, "dilation": dilation})), tokens(), REAL["inside"]
    assert isinstance(layer, Convolution) and layer.sum.bias is not None
    first = -(kernel - 1) * dilation if size.causal else -((kernel - 1) * dilation // 2)
    out = layer(x, mask)
    for row in range(ROWS):
        for place in range(TIME):
            total = layer.sum.bias
            for tap in range(kernel):
                at = place + first + tap * dilation
                if 0 <= at < TIME and mask[row, at]:
                    total = total + layer.sum.weight[:, :, tap] @ x[row, at]
            value, gate = total.chunk(2)
            expected = value * gate.sigmoid() * mask[row, place]
            torch.testing.assert_close(out[row, place], expected, rtol=1e-4, atol=1e-5)


INFLUENCES = {  # on token 20 of 40: when the layer sees all, and when it is causal
    "self-attention": (range(40), range(21)),
    "restricted": (range(18, 23), range(17, 21)),
    "parameter-free": (range(40), range(21)),
    "lstm": (range(40), range(21)),
    "gru": (range(40), range(21)),
    "convolution": (range(19, 22), range(18, 21)),
    "dilated": (range(18, 23, 2), range(16, 21, 2)),
}


@pytest.mark.parametrize("kind", INFLUENCES)
@BOTH
def test_a_token_is_influenced_by_these_and_no_others(kind: str, size: LayerSize) -> None:
    layer = make(kind, size).double()
    x = tokens(1, 40).double().requires_grad_()
    layer(x)[0, 20].square().sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad[0].abs().sum(-1).nonzero().flatten().tolist() == [*INFLUENCES[kind][size.causal]]


def products(layer: SequenceLayer, time: int) -> int:
    """Operations inside matrix products and convolutions, projections of attention left out: twice the products."""
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        layer(tokens(1, time))
    counts = counter.get_flop_counts()["Global"]
    return sum(count for name, count in counts.items() if str(name) in ("aten.bmm", "aten.convolution"))


@pytest.mark.parametrize(
    ("kind", "size", "times"),
    [
        ("self-attention", SMALL, 4),
        ("parameter-free", SMALL, 4),
        ("restricted", SMALL, 2),
        ("restricted", CAUSAL, 2),
        ("convolution", SMALL, 2),
    ],
)
def test_twice_the_length_costs_as_the_table_says(kind: str, size: LayerSize, times: int) -> None:
    layer = make(kind, size)
    assert products(layer, 256) == times * products(layer, 128) > 0
    assert layer.operations(size, 256) == times * layer.operations(size, 128)


@pytest.mark.parametrize("kind", ["self-attention", "parameter-free", "convolution"])
def test_operations_are_those_that_are_carried_out(kind: str) -> None:
    """Attention multiplies twice (scores, sum), a gated convolution has two sums; each product comes with an addition."""
    assert products(make(kind, SMALL), 128) == 2 * 2 * SEQUENCE_LAYERS[kind].operations(SMALL, 128)


def test_at_the_length_of_its_dim_attention_costs_what_recurrence_does() -> None:
    size = LayerSize(dim=512)
    assert FullAttention.operations(size, 512) == Lstm.operations(size, 512) == 134_217_728


def test_sizes_that_do_not_fit_are_refused() -> None:
    assert refused(LayerSize, dim=9, heads=2).keys() == {"heads", "dim"}
    assert "expected an even number" in refused(LayerSize, dim=9, heads=3)["dim"]
    LayerSize(dim=9, heads=3, causal=True)


class Listener(nn.Module):
    """Symbols in, symbols out, and between them two layers of one kind: the script does not know of which."""

    def __init__(self, kind: str, size: LayerSize, symbols: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, size.dim)
        self.layers = nn.ModuleList(SEQUENCE_LAYERS[kind](size) for _ in range(2))
        self.out = nn.Linear(size.dim, symbols)

    def forward(self, heard: Tensor) -> Tensor:
        waves = sinusoid(torch.arange(heard.shape[1]), frequencies(self.embed.embedding_dim))  # (time, dim)
        x = self.embed(heard) + waves.float()
        for layer in self.layers:
            x = functional.layer_norm(x + layer(x), x.shape[-1:])
        out: Tensor = self.out(x)
        return out


def echo_accuracy(kind: str, size: LayerSize, delay: int, steps: int = 120) -> float:
    """How often a trained listener says what it heard `delay` steps ago; one in four is chance."""
    listener = Listener(kind, size, symbols=4)
    optimiser = torch.optim.Adam(listener.parameters(), lr=5e-3)
    right = 0.0
    for step in range(steps + 1):
        heard = torch.randint(4, (32, 16))
        said, expected = listener(heard)[:, delay:], heard[:, :-delay]
        right = float((said.argmax(-1) == expected).float().mean())
        if step < steps:
            optimiser.zero_grad()
            functional.cross_entropy(said.flatten(0, 1), expected.flatten()).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return right


@pytest.mark.parametrize(
    ("kind", "changes", "delay", "hears"),
    [
        ("self-attention", {}, 5, True),
        ("restricted", {"window": 6}, 5, True),
        ("lstm", {}, 3, True),
        ("convolution", {"kernel": 3}, 4, True),
        ("convolution", {"kernel": 3}, 5, False),  # two layers reach back 4 tokens
        ("dilated", {"kernel": 3, "dilation": 2}, 8, True),
        ("dilated", {"kernel": 3, "dilation": 2}, 9, False),
    ],
)
def test_an_echo_is_heard_as_far_as_a_layer_reaches(kind: str, changes: dict[str, int], delay: int, hears: bool) -> None:
    size = LayerSize(dim=32, heads=2, causal=True).model_copy(update=changes)
    accuracy = echo_accuracy(kind, size, delay)
    assert accuracy > 0.9 if hears else accuracy < 0.4
