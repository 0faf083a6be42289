"""Cross-entropy with label smoothing: the target token gets 1 - e, the vocabulary shares e (Szegedy et al., 2016).

    loss = -sum_v q(v) log p(v) = logsumexp(z) - sum_v q(v) z(v)        z: logits, q: smoothed target distribution

Three ways to share e are in use: among all V tokens, among the V - 1 others, or among the others except padding. In each, q
is constant except for two tokens, so the sum over the vocabulary needs the sum of the logits and two of them.
The loss is summed over real tokens and returned with their count, so that averages are exact.

The logits of a batch are by far its largest tensor. `projected_cross_entropy` never stores all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.nn.linear import dtype_of, product

CHUNK = 2**21  # logits per chunk of projected_cross_entropy: few enough for the cache, enough for fast products


@dataclass(frozen=True)
class Loss:
    """A sum over `count` items; the mean is computed once, at the end."""

    total: Tensor  # ()
    count: Tensor  # ()


class SmoothedTarget(NamedTuple):
    """The distribution q: probability of the target, of padding, and of every other token."""

    true: float
    other: float
    padding: float


def smooth_over_all(smoothing: float, vocab: int) -> SmoothedTarget:
    share = smoothing / vocab
    return SmoothedTarget(1 - smoothing + share, share, share)


def smooth_over_others(smoothing: float, vocab: int) -> SmoothedTarget:
    share = smoothing / (vocab - 1)
    return SmoothedTarget(1 - smoothing, share, share)


def smooth_over_words(smoothing: float, vocab: int) -> SmoothedTarget:
    return SmoothedTarget(1 - smoothing, smoothing / (vocab - 2), 0.0)


SMOOTHINGS = {"all": smooth_over_all, "others": smooth_over_others, "words": smooth_over_words}


class _CrossEntropy(torch.autograd.Function):
    """Per-token loss from logits. The softmax of the forward pass becomes the gradient in place."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, q: SmoothedTarget, padding: int) -> tuple[Tensor, Tensor]:
        """logits (tokens, vocab), target (tokens,) -> the smoothed loss and -log p(target), both (tokens,)."""
        largest, index = logits.max(-1, keepdim=True)
        probability = torch.softmax(logits, -1, dtype=torch.float32)
        log_sum = largest.squeeze(-1).float() - probability.gather(-1, index).squeeze(-1).log()  # logsumexp, exactly
        expected_logit = q.other * logits.sum(-1, dtype=torch.float32)
        target_logit = logits.gather(-1, target[:, None]).squeeze(-1).float()
        expected_logit += (q.true - q.other) * target_logit
        expected_logit += (q.padding - q.other) * logits[:, padding].float()
        ctx.save_for_backward(probability, target)
        ctx.q, ctx.padding, ctx.dtype = q, padding, logits.dtype
        nll = log_sum - target_logit
        ctx.mark_non_differentiable(nll)
        return log_sum - expected_logit, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        probability, target = ctx.saved_tensors
        q: SmoothedTarget = ctx.q
        gradient = gradients[0][:, None]  # (tokens, 1)
        result = probability.sub_(q.other)
        result.scatter_add_(-1, target[:, None], torch.full_like(gradient, q.other - q.true))
        result[:, ctx.padding] -= q.padding - q.other
        return result.mul_(gradient).to(ctx.dtype), None, None, None


def _plain(logits: Tensor, target: Tensor, q: SmoothedTarget, padding: int) -> tuple[Tensor, Tensor]:
    """The same in plain operations, for torch.compile to fuse and differentiate."""
    logits = logits.float()
    log_sum, true = logits.logsumexp(-1), logits.gather(-1, target[:, None]).squeeze(-1)
    expected_logit = q.other * logits.sum(-1) + (q.true - q.other) * true
    expected_logit = expected_logit + (q.padding - q.other) * logits[:, padding]
    return log_sum - expected_logit, (log_sum - true).detach()


def cross_entropy(
    logits: Tensor, target: Tensor, *, padding: int, smoothing: float = 0.0, share: str = "all"
) -> tuple[Loss, Loss]:
    """logits (tokens, vocab), target (tokens,) ids -> the smoothed loss, and the negative log-likelihood.

    Targets equal to `padding` are ignored."""
    real = target != padding
    q = SMOOTHINGS[share](smoothing, logits.shape[-1])
    if torch.compiler.is_compiling():
        smoothed, nll = _plain(logits, target, q, padding)
    else:
        smoothed, nll = _CrossEntropy.apply(logits, target, q, padding)  # type: ignore[no-untyped-call]
    return Loss((smoothed * real).sum(), real.sum()), Loss((nll * real).sum(), real.sum())


class _ProjectedCrossEntropy(torch.autograd.Function):
    """The summed loss of z = hidden W^T, in chunks of tokens. With e = exp(z - max z) and s its sum over the vocabulary, the
    gradient with respect to the logits is e / s - q. It exists for one chunk only: the gradients of hidden states and
    weights are computed in the forward pass:

        d hidden = (e' W) / s - other sum_v W_v            d W = e'^T (hidden / s) - other sum_t hidden_t

    where e' is e minus s (q - other) at the target and at padding."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, q: SmoothedTarget, padding: int, needs_grad: bool
    ) -> tuple[Tensor, Tensor]:
        """hidden (tokens, dim), weight (vocab, dim), target (tokens,) -> both losses, summed over the tokens."""
        wide = torch.promote_types(hidden.dtype, torch.float32)
        size = max(1, CHUNK // len(weight))
        to_hidden, to_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=wide)
        whole = weight.sum(0, dtype=wide)  # (dim,); its product with a hidden state is the sum of the logits
        smoothed, plain = hidden.new_zeros((), dtype=wide), hidden.new_zeros((), dtype=wide)
        parts = (torch.split(tensor, size) for tensor in (hidden, target[:, None], to_hidden))
        for some, true, grads in zip(*parts, strict=True):
            logits = product(some, weight).to(wide)  # (tokens, vocab)
            target_logit, at_padding = logits.gather(-1, true), logits[:, padding, None].clone()  # (tokens, 1)
            largest = logits.amax(-1, keepdim=True)
            exponential = logits.sub_(largest).exp_()
            total = exponential.sum(-1, keepdim=True)
            nll = largest + total.log() - target_logit
            expected_logit = q.other * (some.to(wide) @ whole)[:, None] + (q.padding - q.other) * at_padding
            plain += nll.sum()
            smoothed += (nll - expected_logit - (q.true - q.other - 1) * target_logit).sum()
            if needs_grad:
                exponential.scatter_add_(-1, true, (q.other - q.true) * total)
                exponential[:, padding, None] -= (q.padding - q.other) * total
                grad_logits = exponential.to(weight.dtype)
                grads.copy_((product(grad_logits, weight.t()) / total).sub_(q.other * whole))
                _add_product(to_weight, grad_logits.t(), (some / total).to(some.dtype))
        to_weight -= q.other * hidden.sum(0, dtype=wide)
        ctx.save_for_backward(to_hidden, to_weight.to(weight.dtype))
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        to_hidden, to_weight = ctx.saved_tensors
        return to_hidden * gradients[0], to_weight * gradients[0], None, None, None, None


def _add_product(out: Tensor, left: Tensor, right: Tensor) -> None:
    """out += left right, accumulated in the precision of out."""
    if out.dtype is left.dtype:
        out.addmm_(left, right)
    else:
        out.add_(left @ right)


def projected_cross_entropy(
    hidden: Tensor, weight: Tensor, target: Tensor, *, padding: int, smoothing: float = 0.0, share: str = "all"
) -> tuple[Loss, Loss]:
    """cross_entropy(hidden @ weight.T, target, …) and its gradients, without the logits of the whole batch.

    hidden (tokens, dim), weight (vocab, dim), target (tokens,) ids. Padding is removed before any product. Under autocast,
    products are computed in its precision and everything else in single precision."""
    real = (target != padding).nonzero().squeeze(-1)
    q = SMOOTHINGS[share](smoothing, len(weight))
    dtype = dtype_of(hidden)
    with torch.autocast(hidden.device.type, enabled=False):
        smoothed, plain = _ProjectedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden.index_select(0, real).to(dtype),
            weight.to(dtype),
            target.index_select(0, real),
            q,
            padding,
            torch.is_grad_enabled(),
        )
    count = torch.tensor(len(real), device=hidden.device)
    return Loss(smoothed, count), Loss(plain, count)


def symmetric_kl(first: Tensor, second: Tensor, real: Tensor) -> Loss:
    """R-Drop (Liang et al., 2021): the mean of KL(p || q) and KL(q || p) of two passes under different dropout.

    first and second: logits (tokens, vocab); real (tokens,)."""
    p, q = first.float().log_softmax(-1), second.float().log_softmax(-1)
    both = ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2  # KL(p || q) + KL(q || p) = sum (p - q)(log p - log q)
    return Loss((both * real).sum(), real.sum())
