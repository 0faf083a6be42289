"""How far a layer sees, against sums written out token by token."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.attention import AttentionCore
from heedful.nn.attention_pattern import PATTERNS, CompressedPattern, FullPattern, LocalPattern, QueryKeyValue
from heedful.nn.hooks import record
from heedful.nn.positions import POSITIONS, PositionSize

ROWS, HEADS, TIME, SIZE = 2, 2, 11, 4
PLACES = POSITIONS["none"](PositionSize(8, HEADS, SIZE, 32, 4, False))


def some() -> QueryKeyValue:
    draws = torch.Generator().manual_seed(3)
    return QueryKeyValue(*torch.randn(3, ROWS, HEADS, TIME, SIZE, generator=draws))


def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query (size,), keys and values (some, size)."""
    return (keys @ query / math.sqrt(SIZE)).softmax(0) @ values


@pytest.mark.parametrize("name", PATTERNS)
def test_what_is_found_is_the_sum_over_what_may_be_seen(name: str) -> None:
    torch.manual_seed(0)
    made = some()
    reach = PATTERNS[name](HEADS * SIZE, 3)
    with torch.inference_mode():
        found, _ = reach(AttentionCore(0.0).eval(), made, PLACES, None)
    for row in range(ROWS):
        keys, values = slots(reach, made, row)  # (slots, heads, size), and where each ends
        for head in range(HEADS):
            for time in range(TIME):
                seen = [at for at, end in enumerate(ends_of(reach)) if end <= time and not (
                    name == "local" and end // 3 != time // 3)]  # fmt: skip
                assert seen
                expected = attend(made.query[row, head, time], keys[seen, head], values[seen, head])
                assert_close(found[row, head, time], expected, atol=1e-5, rtol=0)


def ends_of(reach: FullPattern) -> range:
    return range(0, TIME, 3) if isinstance(reach, CompressedPattern) else range(TIME)


@torch.inference_mode()
def slots(reach: FullPattern, made: QueryKeyValue, row: int) -> tuple[Tensor, Tensor]:
    if not isinstance(reach, CompressedPattern):
        return made.key[row].transpose(0, 1), made.value[row].transpose(0, 1)
    squeezed = []
    for convolution, x in ((reach.key, made.key[row]), (reach.value, made.value[row])):
        tokens = x.transpose(0, 1).flatten(1)  # (time, heads x size)
        each = []
        for end in ends_of(reach):
            window = [tokens[at] if at >= 0 else torch.zeros(HEADS * SIZE) for at in range(end - 2, end + 1)]
            assert convolution.bias is not None
            each.append(convolution.bias + sum(convolution.weight[:, :, k] @ window[k] for k in range(3)))
        squeezed.append(torch.stack(each).view(-1, HEADS, SIZE))
    return squeezed[0], squeezed[1]


@pytest.mark.parametrize(("name", "scores"), [("full", TIME * TIME), ("local", 4 * 3 * 3), ("compressed", TIME * 4)])
def test_how_many_scores_a_sequence_has(name: str, scores: int) -> None:
    """n^2, blocks x block^2, and n x ceil(n / 3)."""
    look = AttentionCore(0.0).eval()
    with torch.inference_mode(), record(look, "weights") as seen:
        PATTERNS[name](HEADS * SIZE, 3)(look, some(), PLACES, None)
    assert seen["weights"].numel() == ROWS * HEADS * scores


@pytest.mark.parametrize("name", PATTERNS)
def test_padding_at_the_end_changes_nothing_before_it(name: str) -> None:
    torch.manual_seed(0)
    reach, look, made = PATTERNS[name](HEADS * SIZE, 3), AttentionCore(0.0).eval(), some()
    real = torch.arange(TIME) < torch.tensor([TIME, 5])[:, None]
    with torch.inference_mode():
        padded, kept = reach(look, made, PLACES, real)
        alone, short = reach(look, QueryKeyValue(*(x[1:, :, :5] for x in made)), PLACES, None)
        whole, _ = reach(look, made, PLACES, None)
    assert_close(padded[1:, :, :5], alone)
    assert_close(padded[:1], whole[:1])
    assert padded.isfinite().all()
    assert_close(kept.key[1:, :5], short.key)
    if kept.history is not None and short.history is not None:
        assert_close(kept.history[1][1:], short.history[1])


def test_gradients_of_a_block_of_padding_are_finite() -> None:
    made = QueryKeyValue(*(x.clone().requires_grad_() for x in some()))
    real = torch.arange(TIME) < torch.tensor([TIME, 2])[:, None]
    found, _ = LocalPattern(HEADS * SIZE, 3)(AttentionCore(0.0), made, PLACES, real)
    slopes = torch.autograd.grad((found * real[:, None, :, None]).sum(), list(made))
    assert all(slope.isfinite().all() for slope in slopes)


def test_the_jacobian_of_a_local_layer_is_made_of_blocks() -> None:
    made, reach = some(), LocalPattern(HEADS * SIZE, 3)

    def found(value: Tensor) -> Tensor:
        return reach(AttentionCore(0.0).eval(), made._replace(value=value), PLACES, None)[0].sum((0, 1, 3))  # (time,)

    slope = torch.autograd.functional.jacobian(found, made.value).abs().sum((1, 2, 4))  # type: ignore[no-untyped-call]
    query, key = torch.arange(TIME)[:, None], torch.arange(TIME)
    assert torch.equal(slope > 0, (query // 3 == key // 3) & (key <= query))
