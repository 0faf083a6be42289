"""Receptive field and cost of every sequence layer, and a copy task that requires them."""

from __future__ import annotations

import pytest
import torch
from tiny import config_problems, perturb
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from heedful.nn.positions import frequencies, sinusoid
from heedful.nn.sequence_layers import (
    SEQUENCE_LAYERS,
    Convolution,
    FullAttention,
    LayerSize,
    Lstm,
    SequenceLayer,
)

SMALL = LayerSize(dim=8, heads=2, window=4, kernel=3, dilation=2)
CAUSAL = SMALL.model_copy(update={"causal": True})
BOTH = pytest.mark.parametrize("size", [SMALL, CAUSAL], ids=["full", "causal"])


def make(kind: str | type[SequenceLayer], size: LayerSize) -> SequenceLayer:
    chosen = SEQUENCE_LAYERS[kind] if isinstance(kind, str) else kind
    return perturb(chosen(size)).eval()


def tokens(rows: int, time: int) -> Tensor:
    return torch.randn(rows, time, SMALL.dim)


INFLUENCES = {  # on token 20 of 40: not causal, causal
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
def test_receptive_fields(kind: str, size: LayerSize) -> None:
    layer = make(kind, size).double()
    x = tokens(1, 40).double().requires_grad_()
    layer(x)[0, 20].square().sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad[0].abs().sum(-1).nonzero().flatten().tolist() == [*INFLUENCES[kind][size.causal]]


def products(layer: SequenceLayer, time: int) -> int:
    """FLOP of matrix products without the projections of attention."""
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        layer(tokens(1, time))
    counts = counter.get_flop_counts()["Global"]
    counted = "aten.addmm" if isinstance(layer, Convolution) else "aten.bmm"
    return sum(count for name, count in counts.items() if str(name) == counted)


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
def test_doubling_the_length_costs_as_in_the_table(kind: str, size: LayerSize, times: int) -> None:
    layer = make(kind, size)
    assert products(layer, 256) == times * products(layer, 128) > 0
    assert layer.operations(size, 256) == times * layer.operations(size, 128)


@pytest.mark.parametrize("kind", ["self-attention", "parameter-free", "convolution"])
def test_operations_equal_measured_flop(kind: str) -> None:
    """Attention multiplies twice (scores, sum), a gated convolution has two sums; each product comes with an addition."""
    assert products(make(kind, SMALL), 128) == 2 * 2 * SEQUENCE_LAYERS[kind].operations(SMALL, 128)


def test_attention_costs_as_much_as_recurrence_when_length_equals_dim() -> None:
    size = LayerSize(dim=512)
    assert FullAttention.operations(size, 512) == Lstm.operations(size, 512) == 134_217_728


def test_invalid_sizes_are_errors() -> None:
    assert config_problems(LayerSize, dim=9, heads=2).keys() == {"heads", "dim"}
    assert "expected an even number" in config_problems(LayerSize, dim=9, heads=3)["dim"]
    LayerSize(dim=9, heads=3, causal=True)


class Copier(nn.Module):
    """Embedding, two layers of one kind, and an output layer."""

    def __init__(self, kind: str, size: LayerSize, symbols: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(symbols, size.dim)
        self.layers = nn.ModuleList(SEQUENCE_LAYERS[kind](size) for _ in range(2))
        self.out = nn.Linear(size.dim, symbols)

    def forward(self, tokens: Tensor) -> Tensor:
        waves = sinusoid(torch.arange(tokens.shape[1]), frequencies(self.embed.embedding_dim))  # (time, dim)
        x = self.embed(tokens) + waves.float()
        for layer in self.layers:
            x = functional.layer_norm(x + layer(x), x.shape[-1:])
        out: Tensor = self.out(x)
        return out


def copy_accuracy(kind: str, size: LayerSize, delay: int, steps: int = 120) -> float:
    """Accuracy of a trained model that repeats its input `delay` steps later; chance is 0.25."""
    model = Copier(kind, size, symbols=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    accuracy = 0.0
    for step in range(steps + 1):
        tokens = torch.randint(4, (32, 16))
        logits, expected = model(tokens)[:, delay:], tokens[:, :-delay]
        accuracy = float((logits.argmax(-1) == expected).float().mean())
        if step < steps:
            optimizer.zero_grad()
            functional.cross_entropy(logits.flatten(0, 1), expected.flatten()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return accuracy


@pytest.mark.parametrize(
    ("kind", "changes", "delay", "learns"),
    [
        ("self-attention", {}, 5, True),
        ("restricted", {"window": 6}, 5, True),
        ("lstm", {}, 3, True),
        ("convolution", {"kernel": 3}, 4, True),
        ("convolution", {"kernel": 3}, 5, False),  # two layers cover the last 4 tokens
        ("dilated", {"kernel": 3, "dilation": 2}, 8, True),
        ("dilated", {"kernel": 3, "dilation": 2}, 9, False),
    ],
)
def test_copying_is_learned_within_the_receptive_field(kind: str, changes: dict[str, int], delay: int, learns: bool) -> None:
    size = LayerSize(dim=32, heads=2, causal=True).model_copy(update=changes)
    accuracy = copy_accuracy(kind, size, delay)
    assert accuracy > 0.9 if learns else accuracy < 0.4
