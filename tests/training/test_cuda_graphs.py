"""Gradients of CUDA graphs equal eager ones: for every shape, in any order, with changing factors and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.nn.losses import Loss
from heedful.training.cuda_graphs import Replay, graph_accumulation
from heedful.training.update import Objective, eager_accumulation


class Batch(NamedTuple):
    x: Tensor
    nothing: None
    tokens: int

    def to(self, device: torch.device) -> Batch:
        return self


def pretend(function: Callable[[], dict[str, Loss]]) -> tuple[Replay, dict[str, Loss]]:
    """Like a CUDA graph: recording has no effect, and every replay reads and writes the same tensors."""
    kept = [parameter.grad for parameter in MODEL.parameters()]
    before = [None if gradient is None else gradient.clone() for gradient in kept]
    report = function()
    for gradient, old in zip(kept, before, strict=True):
        assert gradient is not None and old is not None
        gradient.copy_(old)

    def replay() -> None:
        now = [parameter.grad for parameter in MODEL.parameters()]
        set_gradients(kept)
        for name, loss in function().items():
            report[name].total.copy_(loss.total)
            report[name].count.copy_(loss.count)
        set_gradients(now)

    return replay, report


MODEL = nn.Linear(3, 2)


def set_gradients(gradients: list[Tensor | None]) -> None:
    for parameter, gradient in zip(MODEL.parameters(), gradients, strict=True):
        parameter.grad = gradient


def loss(batch: Batch) -> Objective:
    total = MODEL(batch.x).square().sum()
    return Objective(Loss(total, torch.tensor(len(batch.x))), {"loss": Loss(total, torch.tensor(len(batch.x)))})


def test_captured_gradients_equal_eager_ones() -> None:
    MODEL.zero_grad(set_to_none=True)
    captured, plain = graph_accumulation(MODEL, loss, torch.device("cpu"), pretend), eager_accumulation(loss)
    expected = [torch.zeros_like(parameter) for parameter in MODEL.parameters()]
    places = None
    for number, rows in enumerate([2, 2, 3, 2, 3, 3, 2]):
        batch = Batch(torch.randn(rows, 3), None, rows)
        report = {name: float(loss.total) for name, loss in captured(batch, 0.5 + number).items()}
        assert report == {"loss": float(loss(batch).minimize.total.detach())}
        gradients = [parameter.grad for parameter in MODEL.parameters()]
        places = places or [id(gradient) for gradient in gradients]
        assert places == [id(gradient) for gradient in gradients]  # the recorded tensors
        copies = [gradient.clone() for gradient in gradients if gradient is not None]
        MODEL.zero_grad(set_to_none=True)
        plain(batch, 0.5 + number)
        for total, parameter in zip(expected, MODEL.parameters(), strict=True):
            assert parameter.grad is not None
            total += parameter.grad
        for parameter, gradient, copy in zip(MODEL.parameters(), gradients, copies, strict=True):
            parameter.grad = gradient
            assert gradient is not None and torch.equal(gradient, copy)
        for total, gradient in zip(expected, copies, strict=True):
            assert_close(gradient, total)


def test_graphs_still_accumulate_into_the_gradients_after_these_were_removed() -> None:
    """As after an update that ran out of memory and is repeated in parts."""
    MODEL.zero_grad(set_to_none=True)
    captured, plain = graph_accumulation(MODEL, loss, torch.device("cpu"), pretend), eager_accumulation(loss)
    batch = Batch(torch.randn(2, 3), None, 2)
    for _ in range(3):  # eagerly, captured, replayed
        captured(batch, 1.0)
    MODEL.zero_grad(set_to_none=True)
    captured(batch, 1.0)
    gradients = [parameter.grad.clone() for parameter in MODEL.parameters() if parameter.grad is not None]
    MODEL.zero_grad(set_to_none=True)
    plain(batch, 1.0)
    assert gradients
    for parameter, gradient in zip(MODEL.parameters(), gradients, strict=True):
        assert_close(gradient, parameter.grad)
