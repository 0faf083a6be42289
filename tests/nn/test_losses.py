"""Label smoothing equals torch's in value and gradient, the other conventions equal their sum written out, and the loss
that never holds all logits equals the one that does."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.utils._python_dispatch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.nn import losses
from heedful.nn.losses import SMOOTHINGS, Loss, cross_entropy, projected_cross_entropy, symmetric_kl

PADDING = 3
TRENDY = [  # "I am trendy": what a model thinks of alla, sono, io, doccia, moda, <eos>
    [0.01, 0.02, 0.93, 0.01, 0.03, 0.01],
    [0.01, 0.8, 0.1, 0.05, 0.01, 0.03],
    [0.99, 0.001, 0.001, 0.001, 0.002, 0.001],
    [0.001, 0.002, 0.001, 0.02, 0.94, 0.01],
    [0.01, 0.01, 0.001, 0.001, 0.001, 0.98],
]
IO_SONO_ALLA_MODA = [2, 1, 0, 4, 5]


def wish_written_out(share: str, smoothing: float, target: int, vocab: int) -> Tensor:
    """q, word by word."""
    if share == "all":
        q = torch.full((vocab,), smoothing / vocab)
        q[target] += 1 - smoothing
        return q
    others = [word for word in range(vocab) if word != target and not (share == "words" and word == PADDING)]
    q = torch.zeros(vocab)
    q[others] = smoothing / len(others)
    q[target] = 1 - smoothing
    return q


@pytest.mark.parametrize("share", SMOOTHINGS)
@given(smoothing=st.floats(0, 0.9), seed=st.integers(0, 1000), spread=st.sampled_from([0.1, 3.0, 40.0]))
def test_value_and_gradient_equal_the_sum_written_out(share: str, smoothing: float, seed: int, spread: float) -> None:
    draws = torch.Generator().manual_seed(seed)
    logits = (torch.randn(6, 9, generator=draws) * spread).requires_grad_()
    target = torch.tensor([0, 1, PADDING, 2, PADDING, 8])
    loss, plain = cross_entropy(logits, target, padding=PADDING, smoothing=smoothing, share=share)
    scores = logits.log_softmax(-1)
    real = [row for row in range(6) if target[row] != PADDING]
    wished = [(wish_written_out(share, smoothing, int(target[row]), 9) * scores[row]).sum() for row in real]
    expected = -torch.stack(wished).sum()
    assert_close(loss.total, expected, atol=1e-4, rtol=1e-5)
    assert_close(plain.total, -torch.stack([scores[row, target[row]] for row in real]).sum(), atol=1e-4, rtol=1e-5)
    assert loss.count == plain.count == len(real) == 4
    (ours,) = torch.autograd.grad(loss.total, logits)
    (theirs,) = torch.autograd.grad(expected, logits)
    assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_sharing_among_all_words_equals_torchs_label_smoothing(smoothing: float) -> None:
    logits = torch.randn(50, 20, requires_grad=True)
    target = torch.randint(0, 20, (50,))
    assert (target == PADDING).any()
    loss, _ = cross_entropy(logits, target, padding=PADDING, smoothing=smoothing)
    torchs = functional.cross_entropy(logits, target, ignore_index=PADDING, label_smoothing=smoothing, reduction="sum")
    assert_close(loss.total, torchs, atol=1e-4, rtol=1e-6)
    assert_close(*(torch.autograd.grad(total, logits)[0] for total in (loss.total, torchs)), atol=1e-6, rtol=1e-5)


def test_a_gradient_is_scaled_by_what_the_total_is_divided_by() -> None:
    logits, target = torch.randn(5, 7, requires_grad=True), torch.tensor([1, 2, PADDING, 4, 5])
    loss, _ = cross_entropy(logits, target, padding=PADDING, smoothing=0.1)
    torchs = functional.cross_entropy(logits, target, ignore_index=PADDING, label_smoothing=0.1)
    assert_close(*(torch.autograd.grad(mean, logits)[0] for mean in (loss.total / loss.count, torchs)))


def test_padding_costs_nothing_and_teaches_nothing() -> None:
    logits = torch.randn(4, 7, requires_grad=True)
    loss, plain = cross_entropy(logits, torch.full((4,), PADDING), padding=PADDING, smoothing=0.1)
    (slope,) = torch.autograd.grad(loss.total, logits)
    assert (loss.total.item(), plain.total.item(), int(loss.count)) == (0, 0, 0)
    assert not slope.any()


def test_the_plain_loss_is_only_for_reading() -> None:
    logits = torch.randn(4, 7, requires_grad=True)
    _, plain = cross_entropy(logits, torch.tensor([0, 1, 2, 4]), padding=PADDING, smoothing=0.1)
    assert not plain.total.requires_grad


def trendy(smoothing: float, share: str) -> tuple[float, float]:
    logits = torch.tensor(TRENDY).log()  # the softmax makes the rows add up to 1
    loss, plain = cross_entropy(logits, torch.tensor(IO_SONO_ALLA_MODA), padding=PADDING, smoothing=smoothing, share=share)
    return float(loss.total), float(plain.total)


def test_io_sono_alla_moda() -> None:
    total, plain = trendy(0.0, "all")
    assert total == pytest.approx(plain, abs=1e-6)
    assert plain == pytest.approx(0.3704, abs=5e-5)
    assert plain / 5 == pytest.approx(0.0741, abs=5e-5)
    assert math.exp(plain / 5) == pytest.approx(1.0769, abs=5e-5)
    assert torch.tensor(TRENDY).argmax(-1).tolist() == IO_SONO_ALLA_MODA


@pytest.mark.parametrize(("share", "expected"), [("all", 2.5310), ("others", 2.9632)])
def test_io_sono_alla_moda_smoothed(share: str, expected: float) -> None:
    total, plain = trendy(0.1, share)
    assert total == pytest.approx(expected, abs=1e-4)
    assert plain == pytest.approx(0.3704, abs=5e-5)


def test_one_pass_over_all_words_of_io_sono_alla_moda() -> None:
    """-ln p of the words as printed: 0.0825, 0.2231, 0.0060, 0.0355, 0.0232."""
    logits = torch.tensor(TRENDY).log()
    words = [
        float(cross_entropy(logits[row : row + 1], torch.tensor([word]), padding=PADDING)[1].total)
        for row, word in enumerate(IO_SONO_ALLA_MODA)
    ]
    assert words == pytest.approx([0.0825, 0.2231, 0.0060, 0.0355, 0.0232], abs=5e-5)


@pytest.mark.parametrize("share", SMOOTHINGS)
def test_half_precision_logits_are_judged_in_full_precision(share: str) -> None:
    logits = (4 * torch.randn(64, 500)).bfloat16()
    target = torch.randint(4, 500, (64,))

    def loss_and_slope(given: Tensor) -> tuple[Tensor, Tensor]:
        given = given.detach().requires_grad_()
        loss, _ = cross_entropy(given, target, padding=PADDING, smoothing=0.1, share=share)
        return loss.total.detach(), torch.autograd.grad(loss.total, given)[0]

    (half, half_slope), (full, full_slope) = loss_and_slope(logits), loss_and_slope(logits.float())
    assert half.dtype == torch.float32
    assert half_slope.dtype == torch.bfloat16
    assert_close(half, full, atol=0, rtol=1e-5)
    assert_close(half_slope, full_slope.bfloat16())


def test_large_logits_do_not_overflow() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0, 0.0, 0.0]], requires_grad=True)
    loss, plain = cross_entropy(logits, torch.tensor([1]), padding=PADDING, smoothing=0.1)
    assert float(plain.total) == pytest.approx(2e4)
    assert torch.autograd.grad(loss.total, logits)[0].isfinite().all()


def projected(tokens: int, vocab: int = 23, spread: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, a readout's weight, and targets of which some are padding."""
    target = torch.randint(0, vocab, (tokens,))
    target[1::4] = PADDING
    return spread * torch.randn(tokens, 6, requires_grad=True), torch.randn(vocab, 6, requires_grad=True), target


def slopes(loss: Loss, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss.total / loss.count, inputs)


@pytest.mark.parametrize("share", SMOOTHINGS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 23 * 4, 23 * 7, 2**21])
@pytest.mark.parametrize("spread", [0.1, 30.0])
def test_chunks_of_any_size_give_the_loss_of_the_whole(
    share: str, smoothing: float, chunk: int, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "CHUNK", chunk)
    hidden, weight, target = projected(19, spread=spread)
    ours = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=smoothing, share=share)
    whole = cross_entropy(hidden @ weight.T, target, padding=PADDING, smoothing=smoothing, share=share)
    for owned_slots, expected in zip(ours, whole, strict=True):
        assert_close(owned_slots.total, expected.total, atol=1e-3, rtol=1e-5)
        assert owned_slots.count == expected.count
    assert_close(slopes(ours[0], hidden, weight), slopes(whole[0], hidden, weight), atol=1e-5, rtol=1e-4)


def test_in_double_precision_the_projected_loss_is_torchs() -> None:
    hidden, weight, target = (x.double() if x.is_floating_point() else x for x in projected(40))
    loss, plain = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=0.1)
    torchs = functional.cross_entropy(hidden @ weight.T, target, ignore_index=PADDING, label_smoothing=0.1)
    assert_close(loss.total / loss.count, torchs, atol=1e-13, rtol=1e-13)
    assert_close(slopes(loss, hidden, weight), torch.autograd.grad(torchs, (hidden, weight)), atol=1e-13, rtol=1e-12)
    assert not plain.total.requires_grad


def test_a_projected_loss_of_nothing_but_padding_is_nothing() -> None:
    hidden, weight, _ = projected(4)
    loss, _ = projected_cross_entropy(hidden, weight, torch.full((4,), PADDING), padding=PADDING, smoothing=0.1)
    assert (loss.total.item(), int(loss.count)) == (0, 0)
    assert not any(slope.any() for slope in torch.autograd.grad(loss.total, (hidden, weight)))


def test_a_projected_loss_may_be_asked_twice_and_teach_only_one_side() -> None:
    hidden, weight, target = projected(9)
    loss, _ = projected_cross_entropy(hidden, weight, target, padding=PADDING)
    (first,) = torch.autograd.grad(2 * loss.total, weight, retain_graph=True)
    (second,) = torch.autograd.grad(loss.total, weight)
    assert torch.equal(first, 2 * second)
    frozen, _ = projected_cross_entropy(hidden, weight.detach(), target, padding=PADDING)
    whole, _ = cross_entropy(hidden @ weight.detach().T, target, padding=PADDING)
    assert_close(slopes(frozen, hidden), slopes(whole, hidden))


def test_a_projected_loss_without_gradients_is_the_same() -> None:
    hidden, weight, target = projected(9)
    loss, plain = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=0.1)
    with torch.inference_mode():
        read, read_plain = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=0.1)
    assert torch.equal(read.total, loss.total)
    assert torch.equal(read_plain.total, plain.total)
    assert not read.total.requires_grad


def test_under_autocast_the_products_are_halved_and_the_sums_are_not() -> None:
    hidden, weight, target = projected(200, vocab=50)
    with torch.autocast("cpu", torch.bfloat16):
        half, _ = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=0.1)
        logits = functional.linear(hidden, weight)
        whole, _ = cross_entropy(logits, target, padding=PADDING, smoothing=0.1)
    assert logits.dtype == torch.bfloat16
    assert half.total.dtype == torch.float32
    assert_close(half.total, whole.total, atol=0, rtol=1e-4)
    full, _ = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=0.1)
    assert not torch.equal(half.total, full.total)
    for owned_slots, expected in zip(slopes(half, hidden, weight), slopes(full, hidden, weight), strict=True):
        assert owned_slots.dtype == torch.float32
        assert float((owned_slots - expected).norm() / expected.norm()) < 0.01


def test_the_logits_of_the_whole_batch_are_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK", 1000)
    hidden, weight, target = projected(400, vocab=100)
    held: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            held.extend(tensor.numel() for tensor in (out if isinstance(out, tuple) else (out,)) if isinstance(tensor, Tensor))
            return out

    with Watch():  # type: ignore[no-untyped-call]
        loss, _ = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=0.1)
        slopes(loss, hidden, weight)
    assert max(held) == max(hidden.numel(), 1000)


def test_disagreement_is_the_mean_of_both_divergences() -> None:
    first, second = torch.randn(2, 6, 9)
    real = torch.tensor([True, True, False, True, False, True])
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    both = [functional.kl_div(a, b, log_target=True, reduction="none").sum(-1)[real].sum() for a, b in ((p, q), (q, p))]
    loss = symmetric_kl(first, second, real)
    assert_close(loss.total, (both[0] + both[1]) / 2)
    assert loss.count == 4
    assert float(symmetric_kl(first, first, real).total) == 0
