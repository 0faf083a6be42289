"""The exponential moving average of weights: close to them in a short run, slow in a long one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from heedful.training.averaging import RunningAverage


def follow(steps: int, decay: float) -> float:
    """The average of a weight that is 0 at first and n after update n, as a fraction of the weight."""
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
        average = RunningAverage(model, decay)
        for step in range(1, steps + 1):
            model.weight.fill_(step)
            average.update(model, step)
    return float(average.weights["weight"]) / steps


@pytest.mark.parametrize("steps", [5, 50, 500])
def test_after_few_updates_the_average_is_close_to_the_weights(steps: int) -> None:
    assert follow(steps, 0.999) > 0.8


def test_after_many_updates_the_decay_is_the_configured_one() -> None:
    assert follow(2000, 0.9) == pytest.approx(1 - 9 / 2000, abs=1e-3)  # it lags decay / (1 - decay) updates behind


def test_a_restored_average_continues_with_the_decay_of_its_step() -> None:
    model = nn.Linear(2, 2)
    one, other = RunningAverage(model, 0.999), RunningAverage(model, 0.999)
    for step in range(1, 7):
        with torch.no_grad():
            model.weight.add_(step)
        one.update(model, step)
        if step == 3:
            other.weights = {name: weight.clone() for name, weight in one.weights.items()}
        if step > 3:
            other.update(model, step)
    assert all(torch.equal(one.weights[name], other.weights[name]) for name in one.weights)
