"""Claims about layers: which of them have a long memory, and which can be stacked.

echo      y_t = x_{t - 50}: attention, recurrence and convolution; a convolution needs a receptive field of 51
highway   y = T(x) H(x) + (1 - T(x)) x or y = x + H(x) trains a hundred layers deep, y = H(x) does not
          (Srivastava et al., 2015; He et al., 2016)
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from claims import Evidence
from heedful.data.toys import echo as toy_echo
from heedful.nn.positions import frequencies, sinusoid
from heedful.nn.sequence_layers import SEQUENCE_LAYERS, LayerSize

DELAY, TIME, SYMBOLS = 50, 80, 8
INPUTS, CLASSES = 16, 10


def learn(parameters: Iterable[nn.Parameter], loss: Callable[[], Tensor], *, steps: int, rate: float) -> None:
    """Adam, one cycle."""
    owned = list(parameters)
    optimizer = torch.optim.Adam(owned, lr=rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(owned, 1.0)
        optimizer.step()
        schedule.step()


class Stack(nn.Module):
    """Layers of one kind with residual connections; with sinusoidal positions or without."""

    def __init__(self, kind: str, sizes: list[LayerSize], *, positions: bool = True) -> None:
        super().__init__()
        self.positions = positions
        dim = sizes[0].dim
        self.embedding, self.out = nn.Embedding(SYMBOLS, dim), nn.Linear(dim, SYMBOLS)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in sizes)
        self.layers = nn.ModuleList(SEQUENCE_LAYERS[kind](size) for size in sizes)

    def forward(self, symbols: Tensor) -> Tensor:
        """(rows, time) -> logits (rows, time, SYMBOLS)."""
        x = self.embedding(symbols)
        if self.positions:
            x = x + sinusoid(torch.arange(symbols.shape[1]), frequencies(self.embedding.embedding_dim).float())
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x))
        logits: Tensor = self.out(x)
        return logits


def field(sizes: list[LayerSize], *, dilated: bool) -> int:
    """The receptive field of a stack of convolutions, in symbols."""
    return 1 + sum((size.kernel - 1) * (size.dilation if dilated else 1) for size in sizes)


def echoed(rows: int, delay: int, draws: random.Random, *, time: int = TIME) -> tuple[Tensor, Tensor]:
    """Symbols (rows, time), and the targets from step `delay` on (rows, time - delay)."""
    draw = partial(toy_echo, distance=delay, lengths=[time], symbols=SYMBOLS)
    made = [draw(draws) for _ in range(rows)]
    symbols = torch.tensor([[int(word[1:]) for word in one.words] for one in made])
    return symbols, torch.tensor([[int(label[1:]) for label in one.labels[delay:]] for one in made])


def echoes(kind: str, sizes: list[LayerSize], *, delay: int = DELAY, time: int = TIME, steps: int = 500) -> float:
    """The accuracy on new sequences."""
    torch.manual_seed(1)
    draws, model = random.Random(1), Stack(kind, sizes)

    def loss() -> Tensor:
        symbols, target = echoed(32, delay, draws, time=time)
        return functional.cross_entropy(model(symbols)[:, delay:].flatten(0, 1), target.flatten())

    learn(model.parameters(), loss, steps=steps, rate=3e-3)
    with torch.inference_mode():
        symbols, target = echoed(200, delay, draws, time=time)
        return float((model(symbols)[:, delay:].argmax(-1) == target).float().mean())


def echo(folder: Path) -> Evidence:
    """Solved: 95%. At chance: within 3 points of it."""
    size = LayerSize(dim=64, heads=4, causal=True)
    solved, chance, figures, held = 0.95, 1 / SYMBOLS, {}, []
    fields = {
        "convolution": [[size.model_copy(update={"kernel": kernel})] * 2 for kernel in (25, 26)],
        "dilated": [[size.model_copy(update={"dilation": 2**at}) for at in range(layers)] for layers in (4, 5)],
    }
    for kind, stacks in fields.items():
        for sizes in stacks:
            reach, share = field(sizes, dilated=kind == "dilated"), echoes(kind, sizes)
            figures[f"{kind}, field {reach}"] = f"{share:.1%}"
            held.append(share >= solved if reach > DELAY else abs(share - chance) < 0.03)
    share = echoes("self-attention", [size] * 2)
    held.append(share >= solved)
    recurrent = {kind: f"{echoes(kind, [size]):.1%} ({echoes(kind, [size], delay=5):.1%} at 5)" for kind in ("lstm", "gru")}
    return Evidence({"self-attention": f"{share:.1%}"} | figures | recurrent | {"chance": f"{chance:.1%}"}, all(held))


class Deep(nn.Module):
    """Copies of a net with many layers of one width, H(x) = relu(W x + b), with He initialization (2015), scaled down for
    residual connections. The copies are equal at first; they are computed side by side, which is faster."""

    def __init__(self, join: str, *, copies: int, layers: int, bias: float = -4.0, width: int = 50) -> None:
        super().__init__()
        self.join, self.copies = join, copies
        self.first, self.first_bias = self.uniform(INPUTS, width)
        self.maps, self.map_biases = self.uniform(width, width, layers)
        self.gates, self.gate_biases = self.uniform(width, width, layers if join == "highway" else 0)
        self.last, self.last_bias = self.uniform(width, CLASSES)
        deviation = math.sqrt(2 / width / (layers if join == "residual" else 1))
        self.maps.data.copy_(deviation * torch.randn(layers, 1, width, width))
        self.gate_biases.data.fill_(bias)

    def uniform(self, inputs: int, outputs: int, layers: int | None = None) -> tuple[nn.Parameter, nn.Parameter]:
        """Weights and biases as of nn.Linear: (copies, inputs, outputs) and (copies, 1, outputs), after an axis of layers."""
        axes = () if layers is None else (layers,)
        made = [torch.empty(*axes, 1, size, outputs).uniform_(-1, 1) / math.sqrt(inputs) for size in (inputs, 1)]
        weight, bias = (nn.Parameter(one.repeat(*[1 for _ in axes], self.copies, 1, 1)) for one in made)
        return weight, bias

    def forward(self, x: Tensor) -> Tensor:
        """(rows, INPUTS) -> logits (copies, rows, CLASSES)."""
        x = torch.baddbmm(self.first_bias, x.expand(self.copies, -1, -1), self.first)
        for at, (weight, bias) in enumerate(zip(self.maps, self.map_biases, strict=True)):
            output = torch.baddbmm(bias, x, weight).relu()
            if self.join == "highway":
                output = torch.lerp(x, output, torch.baddbmm(self.gate_biases[at], x, self.gates[at]).sigmoid())
            x = x + output if self.join == "residual" else output
        return torch.baddbmm(self.last_bias, x, self.last)


def fit(join: str, rates: Sequence[float], *, steps: int = 600, **shape: Any) -> list[float]:
    """The training loss with each learning rate on 512 points, labeled by the argmax of random linear maps, after SGD with
    momentum and clipped gradients."""
    torch.manual_seed(1)
    points, model = torch.randn(512, INPUTS), Deep(join, copies=len(rates), **shape)
    labels = (points @ torch.randn(INPUTS, CLASSES)).argmax(-1)
    parameters = [one for one in model.parameters() if one.numel()]  # gates: of a highway network only
    velocities = [torch.zeros_like(one) for one in parameters]
    rate = torch.tensor(rates)[:, None, None]  # (copies, 1, 1)
    for _ in range(steps):
        chosen = torch.randint(512, (64,))
        gradients = torch.autograd.grad(losses_of(model(points[chosen]), labels[chosen]).sum(), parameters)
        norms = sum(one.square().sum((-1, -2)).view(-1, len(rates)).sum(0) for one in gradients).sqrt()  # type: ignore[union-attr]
        scale = (1 / norms).clamp(max=1)[:, None, None]  # of each copy
        with torch.no_grad():
            for one, velocity, gradient in zip(parameters, velocities, gradients, strict=True):
                velocity.mul_(0.9).add_(scale * gradient)
                one.sub_(rate * velocity)
    with torch.inference_mode():
        losses = losses_of(model(points), labels).tolist()
    return [loss if math.isfinite(loss) else math.inf for loss in losses]


def losses_of(logits: Tensor, labels: Tensor) -> Tensor:
    """(copies, rows, CLASSES), (rows,) -> the mean loss of each copy, (copies,)."""
    copies = logits.shape[0]
    losses = functional.cross_entropy(logits.flatten(0, 1), labels.repeat(copies), reduction="none")
    return losses.view(copies, -1).mean(1)


def highway(folder: Path) -> Evidence:
    """Each with the best of four learning rates. Trained: loss below a tenth of a uniform guess's; not: above half of it."""
    shapes: dict[str, dict[str, Any]] = {
        "highway": {"join": "highway", "layers": 100},
        "residual": {"join": "residual", "layers": 100},
        "plain": {"join": "plain", "layers": 100},
        "plain of 2 layers": {"join": "plain", "layers": 2},
        "highway with gate biases of -2, not -4": {"join": "highway", "layers": 100, "bias": -2.0},
    }
    losses = {name: min(fit(rates=(0.1, 0.03, 0.01, 0.003), **one)) for name, one in shapes.items()}
    uniform = math.log(CLASSES)
    trained = all(losses[name] < uniform / 10 for name in ("highway", "residual", "plain of 2 layers"))
    figures = {f"loss of {name}": f"{loss:.4f}" for name, loss in losses.items()}
    return Evidence(figures | {"loss of a uniform guess": f"{uniform:.4f}"}, trained and losses["plain"] > uniform / 2)
