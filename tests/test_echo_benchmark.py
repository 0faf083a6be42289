"""The benchmark of echoes: every delay has as many targets, and a convolution reads as many symbols as is marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from claims.layers import Stack
from echo import (
    DELAYS,
    EVERY,
    MOST,
    PATIENCE,
    SOLVED,
    STACKS,
    TARGETS,
    Trained,
    choose,
    draw,
    is_finished,
    reach,
    sequences,
    solved_to,
    title,
    train,
)

pytestmark = pytest.mark.benchmark


def test_the_target_is_the_symbol_of_the_delay_before() -> None:
    for delay in DELAYS[:2]:
        symbols, target = sequences(3, delay, torch.Generator().manual_seed(1))
        assert target.shape == (3, TARGETS) and set(symbols.flatten().tolist()) == set(range(8))
        steps = torch.arange(delay, symbols.shape[1])
        assert torch.equal(target, symbols[:, steps - delay])


def test_training_ends_when_solved_without_progress_or_after_the_last_update() -> None:
    patient = PATIENCE // EVERY
    slow = [0.2 + 0.011 * at / patient for at in range(MOST // EVERY)]  # a gain of 1.1 points in PATIENCE updates
    assert not is_finished([]) and is_finished([0.3, SOLVED])
    assert not is_finished([0.3] * patient) and is_finished([0.3] * (patient + 1))
    assert not is_finished([0.9, *[0.3] * (patient - 1)])
    assert not any(is_finished(slow[:at]) for at in range(MOST // EVERY)) and is_finished(slow)


def test_the_learning_rate_is_chosen_on_validation_sequences_and_then_by_the_number_of_updates() -> None:
    better = {0.1: [Trained(0.5, 1.0, 100)] * 2, 0.2: [Trained(0.6, 0.0, 900)] * 2}
    assert choose(better) == 0.2
    assert choose({0.1: [Trained(1.0, 0.0, 300)], 0.2: [Trained(SOLVED, 0.0, 200)]}) == 0.2


def test_dilated_convolutions_learn_the_shortest_delay() -> None:
    trained = train("dilated", DELAYS[0], 0.003)
    assert trained.test >= 0.95 and trained.updates <= 300


@pytest.mark.parametrize("kind", ["convolution", "dilated"])
def test_a_convolution_reads_exactly_its_receptive_field(kind: str) -> None:
    torch.manual_seed(1)
    model, field = Stack(kind, STACKS[kind]).eval(), reach(kind)
    assert field is not None
    symbols = torch.randint(8, (1, field + 5))

    def changes(back: int) -> bool:
        other = symbols.clone()
        other[0, -1 - back] = (other[0, -1 - back] + 1) % 8
        return not torch.equal(model(symbols)[0, -1], model(other)[0, -1])

    assert changes(field - 1) and not changes(field)


def test_a_kind_is_solved_up_to_the_first_delay_that_it_fails_at(tmp_path: Path) -> None:
    def result(*accuracy: float) -> dict[str, Any]:
        shares = {str(delay): share for delay, share in zip(DELAYS, accuracy, strict=True)}
        about = {"layers": 2, "receptive_field": None, "machine": "", "torch": "", "date": ""}
        return {"accuracy": shares, **about}

    results = {"self-attention": result(1, 1, 1, 1, 1), "gru": result(1, 0.9, 1, 0.5, 0.1), "lstm": result(0.2, 0, 0, 0, 0)}
    assert [solved_to(one) for one in results.values()] == [200, 5, 0]
    assert "Attention echoes 200 steps back" in title(results)
    assert draw(results, tmp_path / "echo.png").stat().st_size > 10_000
