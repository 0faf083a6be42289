"""Label smoothing equals torch's in value and gradient, the other conventions equal the explicit sum, and the
chunked loss equals the plain one."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from heedful.nn import losses
from heedful.nn.losses import SMOOTHINGS, Loss, cross_entropy, projected_cross_entropy, symmetric_kl
from heedful.nn.torch_private import TorchDispatchMode

PADDING = 3
TRENDY = [  # "I am trendy": probabilities of alla, sono, io, doccia, moda, <eos>
    [0.01, 0.02, 0.93, 0.01, 0.03, 0.01],
    [0.01, 0.8, 0.1, 0.05, 0.01, 0.03],
    [0.99, 0.001, 0.001, 0.001, 0.002, 0.001],
    [0.001, 0.002, 0.001, 0.02, 0.94, 0.01],
    [0.01, 0.01, 0.001, 0.001, 0.001, 0.98],
]
IO_SONO_ALLA_MODA = [2, 1, 0, 4, 5]


def explicit_target(share: str, smoothing: float, target: int, vocab: int) -> Tensor:
    """The distribution q, token by token."""
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
@given(smoothing=st.floats(0, 0.9), seed=st.integers(0, 1000), scale=st.sampled_from([0.1, 3.0, 40.0]))
def test_value_and_gradient_equal_the_explicit_sum(share: str, smoothing: float, seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(6, 9, generator=generator) * scale).requires_grad_()
    target = torch.tensor([0, 1, PADDING, 2, PADDING, 8])
    loss, plain = cross_entropy(logits, target, padding=PADDING, smoothing=smoothing, share=share)
    scores = logits.log_softmax(-1)
    real = [row for row in range(6) if target[row] != PADDING]
    expected_scores = [(explicit_target(share, smoothing, int(target[row]), 9) * scores[row]).sum() for row in real]
    expected = -torch.stack(expected_scores).sum()
    assert_close(loss.total, expected, atol=1e-4, rtol=1e-5)
    assert_close(plain.total, -torch.stack([scores[row, target[row]] for row in real]).sum(), atol=1e-4, rtol=1e-5)
    assert loss.count == plain.count == len(real) == 4
    (ours,) = torch.autograd.grad(loss.total, logits)
    (theirs,) = torch.autograd.grad(expected, logits)
    assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_sharing_among_all_tokens_equals_torchs_label_smoothing(smoothing: float) -> None:
    logits = torch.randn(50, 20, requires_grad=True)
    target = torch.randint(0, 20, (50,))
    assert (target == PADDING).any()
    loss, _ = cross_entropy(logits, target, padding=PADDING, smoothing=smoothing)
    torchs = functional.cross_entropy(logits, target, ignore_index=PADDING, label_smoothing=smoothing, reduction="sum")
    assert_close(loss.total, torchs, atol=1e-4, rtol=1e-6)
    assert_close(*(torch.autograd.grad(total, logits)[0] for total in (loss.total, torchs)), atol=1e-6, rtol=1e-5)


def test_gradients_of_means_equal_torchs() -> None:
    logits, target = torch.randn(5, 7, requires_grad=True), torch.tensor([1, 2, PADDING, 4, 5])
    loss, _ = cross_entropy(logits, target, padding=PADDING, smoothing=0.1)
    torchs = functional.cross_entropy(logits, target, ignore_index=PADDING, label_smoothing=0.1)
    assert_close(*(torch.autograd.grad(mean, logits)[0] for mean in (loss.total / loss.count, torchs)))


def test_padding_has_no_loss_and_no_gradient() -> None:
    logits = torch.randn(4, 7, requires_grad=True)
    loss, plain = cross_entropy(logits, torch.full((4,), PADDING), padding=PADDING, smoothing=0.1)
    (gradient,) = torch.autograd.grad(loss.total, logits)
    assert (loss.total.item(), plain.total.item(), int(loss.count)) == (0, 0, 0)
    assert not gradient.any()


def test_the_negative_log_likelihood_has_no_gradient() -> None:
    logits = torch.randn(4, 7, requires_grad=True)
    _, plain = cross_entropy(logits, torch.tensor([0, 1, 2, 4]), padding=PADDING, smoothing=0.1)
    assert not plain.total.requires_grad


def trendy(smoothing: float, share: str) -> tuple[float, float]:
    logits = torch.tensor(TRENDY).log()  # the softmax normalizes the rows
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


def test_each_token_of_io_sono_alla_moda() -> None:
    """The printed values of -ln p: 0.0825, 0.2231, 0.0060, 0.0355, 0.0232."""
    logits = torch.tensor(TRENDY).log()
    words = [
        float(cross_entropy(logits[row : row + 1], torch.tensor([word]), padding=PADDING)[1].total)
        for row, word in enumerate(IO_SONO_ALLA_MODA)
    ]
    assert words == pytest.approx([0.0825, 0.2231, 0.0060, 0.0355, 0.0232], abs=5e-5)


@pytest.mark.parametrize("share", SMOOTHINGS)
def test_the_loss_of_half_precision_logits_is_computed_in_single_precision(share: str) -> None:
    logits = (4 * torch.randn(64, 500)).bfloat16()
    target = torch.randint(4, 500, (64,))

    def loss_and_gradient(logits: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits.detach().requires_grad_()
        loss, _ = cross_entropy(logits, target, padding=PADDING, smoothing=0.1, share=share)
        return loss.total.detach(), torch.autograd.grad(loss.total, logits)[0]

    (half, half_gradient), (full, full_gradient) = loss_and_gradient(logits), loss_and_gradient(logits.float())
    assert half.dtype == torch.float32
    assert half_gradient.dtype == torch.bfloat16
    assert_close(half, full, atol=0, rtol=1e-5)
    assert_close(half_gradient, full_gradient.bfloat16())


def test_large_logits_do_not_overflow() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0, 0.0, 0.0]], requires_grad=True)
    loss, plain = cross_entropy(logits, torch.tensor([1]), padding=PADDING, smoothing=0.1)
    assert float(plain.total) == pytest.approx(2e4)
    assert torch.autograd.grad(loss.total, logits)[0].isfinite().all()


def projected(tokens: int, vocab: int = 23, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, output weights, and targets, some of them padding."""
    target = torch.randint(0, vocab, (tokens,))
    target[1::4] = PADDING
    return scale * torch.randn(tokens, 6, requires_grad=True), torch.randn(vocab, 6, requires_grad=True), target


def gradients(loss: Loss, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss.total / loss.count, inputs)


@pytest.mark.parametrize("share", SMOOTHINGS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 23 * 4, 23 * 7, 2**21])
@pytest.mark.parametrize("scale", [0.1, 30.0])
def test_chunks_of_any_size_give_the_same_loss(
    share: str, smoothing: float, chunk: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "CHUNK", chunk)
    hidden, weight, target = projected(19, scale=scale)
    ours = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=smoothing, share=share)
    whole = cross_entropy(hidden @ weight.T, target, padding=PADDING, smoothing=smoothing, share=share)
    for result, expected in zip(ours, whole, strict=True):
        assert_close(result.total, expected.total, atol=1e-3, rtol=1e-5)
        assert result.count == expected.count
    assert_close(gradients(ours[0], hidden, weight), gradients(whole[0], hidden, weight), atol=1e-5, rtol=1e-4)


def test_the_projected_loss_equals_torchs_in_double_precision() -> None:
    hidden, weight, target = (x.double() if x.is_floating_point() else x for x in projected(40))
    loss, plain = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=0.1)
    torchs = functional.cross_entropy(hidden @ weight.T, target, ignore_index=PADDING, label_smoothing=0.1)
    assert_close(loss.total / loss.count, torchs, atol=1e-13, rtol=1e-13)
    assert_close(gradients(loss, hidden, weight), torch.autograd.grad(torchs, (hidden, weight)), atol=1e-13, rtol=1e-12)
    assert not plain.total.requires_grad


def test_the_projected_loss_of_padding_alone_is_zero() -> None:
    hidden, weight, _ = projected(4)
    loss, _ = projected_cross_entropy(hidden, weight, torch.full((4,), PADDING), padding=PADDING, smoothing=0.1)
    assert (loss.total.item(), int(loss.count)) == (0, 0)
    assert not any(gradient.any() for gradient in torch.autograd.grad(loss.total, (hidden, weight)))


def test_a_projected_loss_supports_two_backward_passes_and_frozen_weights() -> None:
    hidden, weight, target = projected(9)
    loss, _ = projected_cross_entropy(hidden, weight, target, padding=PADDING)
    (first,) = torch.autograd.grad(2 * loss.total, weight, retain_graph=True)
    (second,) = torch.autograd.grad(loss.total, weight)
    assert torch.equal(first, 2 * second)
    frozen, _ = projected_cross_entropy(hidden, weight.detach(), target, padding=PADDING)
    whole, _ = cross_entropy(hidden @ weight.detach().T, target, padding=PADDING)
    assert_close(gradients(frozen, hidden), gradients(whole, hidden))


def test_a_projected_loss_is_the_same_in_inference_mode() -> None:
    hidden, weight, target = projected(9)
    loss, plain = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=0.1)
    with torch.inference_mode():
        inference, inference_plain = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=0.1)
    assert torch.equal(inference.total, loss.total)
    assert torch.equal(inference_plain.total, plain.total)
    assert not inference.total.requires_grad


def test_under_autocast_products_are_half_precision_and_sums_are_not() -> None:
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
    for result, expected in zip(gradients(half, hidden, weight), gradients(full, hidden, weight), strict=True):
        assert result.dtype == torch.float32
        assert float((result - expected).norm() / expected.norm()) < 0.01


def test_the_logits_of_the_whole_batch_are_never_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK", 1000)
    hidden, weight, target = projected(400, vocab=100)
    sizes: list[int] = []

    class RecordSizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            sizes.extend(tensor.numel() for tensor in (out if isinstance(out, tuple) else (out,)) if isinstance(tensor, Tensor))
            return out

    with RecordSizes():  # type: ignore[no-untyped-call]
        loss, _ = projected_cross_entropy(hidden, weight, target, padding=PADDING, smoothing=0.1)
        gradients(loss, hidden, weight)
    assert max(sizes) == max(hidden.numel(), 1000)


def test_symmetric_kl_is_the_mean_of_both_divergences() -> None:
    first, second = torch.randn(2, 6, 9)
    real = torch.tensor([True, True, False, True, False, True])
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    both = [functional.kl_div(a, b, log_target=True, reduction="none").sum(-1)[real].sum() for a, b in ((p, q), (q, p))]
    loss = symmetric_kl(first, second, real)
    assert_close(loss.total, (both[0] + both[1]) / 2)
    assert loss.count == 4
    assert float(symmetric_kl(first, first, real).total) == 0
