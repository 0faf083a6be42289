"""The benchmark of echoes: every delay has as many targets, and a convolution reads as many symbols as is marked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from claims.layers import Stack, echoed
from echo import DELAYS, STACKS, TARGETS, draw, reach, solved_to, title

pytestmark = pytest.mark.benchmark


def test_the_target_is_the_symbol_of_the_delay_before() -> None:
    for delay in DELAYS[:2]:
        symbols, target = echoed(3, delay, random.Random(1), time=delay + TARGETS)
        assert target.shape == (3, TARGETS)
        assert torch.equal(target, symbols[:, :TARGETS])


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
