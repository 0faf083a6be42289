"""Attention patterns equal sums computed token by token."""

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
NO_POSITION = POSITIONS["none"](PositionSize(8, HEADS, SIZE, 32, 4, False))


def random_qkv() -> QueryKeyValue:
    generator = torch.Generator().manual_seed(3)
    return QueryKeyValue(*torch.randn(3, ROWS, HEADS, TIME, SIZE, generator=generator))


def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query (size,), keys and values (some, size)."""
    return (keys @ query / math.sqrt(SIZE)).softmax(0) @ values


@pytest.mark.parametrize("name", PATTERNS)
def test_outputs_are_sums_over_the_allowed_slots(name: str) -> None:
    torch.manual_seed(0)
    qkv = random_qkv()
    reach = PATTERNS[name](HEADS * SIZE, 3)
    with torch.inference_mode():
        out, _ = reach(AttentionCore(0.0).eval(), qkv, NO_POSITION, None)
    for row in range(ROWS):
        keys, values = slots(reach, qkv, row)  # (slots, heads, size)
        for head in range(HEADS):
            for time in range(TIME):
                allowed = [at for at, end in enumerate(ends_of(reach)) if end <= time and not (
                    name == "local" and end // 3 != time // 3)]  # fmt: skip
                assert allowed
                expected = attend(qkv.query[row, head, time], keys[allowed, head], values[allowed, head])
                assert_close(out[row, head, time], expected, atol=1e-5, rtol=0)


def ends_of(reach: FullPattern) -> range:
    return range(0, TIME, 3) if isinstance(reach, CompressedPattern) else range(TIME)


@torch.inference_mode()
def slots(reach: FullPattern, qkv: QueryKeyValue, row: int) -> tuple[Tensor, Tensor]:
    if not isinstance(reach, CompressedPattern):
        return qkv.key[row].transpose(0, 1), qkv.value[row].transpose(0, 1)
    convolved = []
    for convolution, x in ((reach.key, qkv.key[row]), (reach.value, qkv.value[row])):
        tokens = x.transpose(0, 1).flatten(1)  # (time, heads x size)
        each = []
        for end in ends_of(reach):
            window = [tokens[at] if at >= 0 else torch.zeros(HEADS * SIZE) for at in range(end - 2, end + 1)]
            assert convolution.bias is not None
            each.append(convolution.bias + sum(convolution.weight[:, :, k] @ window[k] for k in range(3)))
        convolved.append(torch.stack(each).view(-1, HEADS, SIZE))
    return convolved[0], convolved[1]


@pytest.mark.parametrize(("name", "scores"), [("full", TIME * TIME), ("local", 4 * 3 * 3), ("compressed", TIME * 4)])
def test_the_number_of_scores(name: str, scores: int) -> None:
    """n^2, blocks x block^2, and n x ceil(n / 3)."""
    core = AttentionCore(0.0).eval()
    with torch.inference_mode(), record(core, "weights") as recorded:
        PATTERNS[name](HEADS * SIZE, 3)(core, random_qkv(), NO_POSITION, None)
    assert recorded["weights"].numel() == ROWS * HEADS * scores


@pytest.mark.parametrize("name", PATTERNS)
def test_padding_at_the_end_changes_nothing_before_it(name: str) -> None:
    torch.manual_seed(0)
    reach, core, qkv = PATTERNS[name](HEADS * SIZE, 3), AttentionCore(0.0).eval(), random_qkv()
    real = torch.arange(TIME) < torch.tensor([TIME, 5])[:, None]
    with torch.inference_mode():
        padded, cache = reach(core, qkv, NO_POSITION, real)
        alone, short = reach(core, QueryKeyValue(*(x[1:, :, :5] for x in qkv)), NO_POSITION, None)
        whole, _ = reach(core, qkv, NO_POSITION, None)
    assert_close(padded[1:, :, :5], alone)
    assert_close(padded[:1], whole[:1])
    assert padded.isfinite().all()
    assert_close(cache.key[1:, :5], short.key)
    if cache.history is not None and short.history is not None:
        assert_close(cache.history[1][1:], short.history[1])


def test_gradients_of_a_block_of_padding_are_finite() -> None:
    qkv = QueryKeyValue(*(x.clone().requires_grad_() for x in random_qkv()))
    real = torch.arange(TIME) < torch.tensor([TIME, 2])[:, None]
    out, _ = LocalPattern(HEADS * SIZE, 3)(AttentionCore(0.0), qkv, NO_POSITION, real)
    gradients = torch.autograd.grad((out * real[:, None, :, None]).sum(), list(qkv))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_the_jacobian_of_local_attention_is_block_diagonal() -> None:
    qkv, reach = random_qkv(), LocalPattern(HEADS * SIZE, 3)

    def outputs(value: Tensor) -> Tensor:
        return reach(AttentionCore(0.0).eval(), qkv._replace(value=value), NO_POSITION, None)[0].sum((0, 1, 3))  # (time,)

    gradient = torch.autograd.functional.jacobian(outputs, qkv.value).abs().sum((1, 2, 4))  # type: ignore[no-untyped-call]
    query, key = torch.arange(TIME)[:, None], torch.arange(TIME)
    assert torch.equal(gradient > 0, (query // 3 == key // 3) & (key <= query))
