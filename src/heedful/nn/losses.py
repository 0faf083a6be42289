"""Label smoothing: give the true word 1 - e and share e among the words (Szegedy et al., 2016).

    loss = -sum_v q(v) log p(v) = logsumexp(z) - sum_v q(v) z(v)        z: logits, q: what we wish, adding up to 1

Three ways to share are in use: among all V words, among the V - 1 others, or among the others but the padding. Each
makes q constant but for two words, so the sum over the vocabulary needs one total of the logits and two of its members.
The loss is summed over real tokens; the count is returned so that whoever prints can average exactly.

The logits of a batch are its largest tensor by far. `projected_cross_entropy` never holds them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.nn.linear import dtype_of, product

CHUNK = 2**21  # logits held at once by projected_cross_entropy: few enough for the cache, enough for fast products


@dataclass(frozen=True)
class Loss:
    """A sum over `count` things; the mean is taken once, at the end."""

    total: Tensor  # ()
    count: Tensor  # ()


class SmoothedTarget(NamedTuple):
    """q: `true` for the target, `padding` for the padding, `other` for all the rest."""

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
    """Per-token loss from logits. The softmax, computed once in the forward pass, becomes the gradient in place."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, wish: SmoothedTarget, padding: int) -> tuple[Tensor, Tensor]:
        """logits (tokens, vocab), target (tokens,) -> the loss to minimize and -log p of the target, both (tokens,)."""
        best, index = logits.max(-1, keepdim=True)
        probability = torch.softmax(logits, -1, dtype=torch.float32)
        log_sum = best.squeeze(-1).float() - probability.gather(-1, index).squeeze(-1).log()  # logsumexp, exactly
        wished = wish.other * logits.sum(-1, dtype=torch.float32)
        wished_for = logits.gather(-1, target[:, None]).squeeze(-1).float()
        wished += (wish.true - wish.other) * wished_for
        wished += (wish.padding - wish.other) * logits[:, padding].float()
        ctx.save_for_backward(probability, target)
        ctx.wish, ctx.padding, ctx.dtype = wish, padding, logits.dtype
        surprise = log_sum - wished_for
        ctx.mark_non_differentiable(surprise)
        return log_sum - wished, surprise

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        probability, target = ctx.saved_tensors
        wish: SmoothedTarget = ctx.wish
        gradient = gradients[0][:, None]  # (tokens, 1)
        result = probability.sub_(wish.other)
        result.scatter_add_(-1, target[:, None], torch.full_like(gradient, wish.other - wish.true))
        result[:, ctx.padding] -= wish.padding - wish.other
        return result.mul_(gradient).to(ctx.dtype), None, None, None


def _plain(logits: Tensor, target: Tensor, wish: SmoothedTarget, padding: int) -> tuple[Tensor, Tensor]:
    """The same in one expression, for a compiler to fuse and differentiate."""
    logits = logits.float()
    log_sum, true = logits.logsumexp(-1), logits.gather(-1, target[:, None]).squeeze(-1)
    wished = wish.other * logits.sum(-1) + (wish.true - wish.other) * true
    wished = wished + (wish.padding - wish.other) * logits[:, padding]
    return log_sum - wished, (log_sum - true).detach()


def cross_entropy(
    logits: Tensor, target: Tensor, *, padding: int, smoothing: float = 0.0, share: str = "all"
) -> tuple[Loss, Loss]:
    """logits (tokens, vocab), target (tokens,) ids -> the smoothed loss, and the plain -log p that people compare.

    Targets equal to `padding` do not count."""
    real = target != padding
    wish = SMOOTHINGS[share](smoothing, logits.shape[-1])
    if torch.compiler.is_compiling():
        smoothed, surprise = _plain(logits, target, wish, padding)
    else:
        smoothed, surprise = _CrossEntropy.apply(logits, target, wish, padding)  # type: ignore[no-untyped-call]
    return Loss((smoothed * real).sum(), real.sum()), Loss((surprise * real).sum(), real.sum())


class _ProjectedCrossEntropy(torch.autograd.Function):
    """The summed loss of z = hidden W^T, some tokens at a time. With e = exp(z - max z) and s its sum over the words, the
    gradient by the logits is e / s - q. It lives for one chunk, just long enough to be multiplied into the gradients,
    which are ready before anybody asks for them:

        d hidden = (e' W) / s - other sum_v W_v            d W = e'^T (hidden / s) - other sum_t hidden_t

    where e' is e less s times what q holds beyond `other` for the target and for the padding."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, wish: SmoothedTarget, padding: int, learns: bool
    ) -> tuple[Tensor, Tensor]:
        """hidden (tokens, dim), weight (vocab, dim), target (tokens,) -> both losses, summed over the tokens."""
        wide = torch.promote_types(hidden.dtype, torch.float32)
        size = max(1, CHUNK // len(weight))
        to_hidden, to_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=wide)
        whole = weight.sum(0, dtype=wide)  # (dim,); its product with a hidden state is the total of the logits
        smoothed, plain = hidden.new_zeros((), dtype=wide), hidden.new_zeros((), dtype=wide)
        parts = (torch.split(tensor, size) for tensor in (hidden, target[:, None], to_hidden))
        for some, true, slopes in zip(*parts, strict=True):
            logits = product(some, weight).to(wide)  # (tokens, vocab)
            wished_for, at_padding = logits.gather(-1, true), logits[:, padding, None].clone()  # (tokens, 1)
            best = logits.amax(-1, keepdim=True)
            exponential = logits.sub_(best).exp_()
            total = exponential.sum(-1, keepdim=True)
            surprise = best + total.log() - wished_for
            wished = wish.other * (some.to(wide) @ whole)[:, None] + (wish.padding - wish.other) * at_padding
            plain += surprise.sum()
            smoothed += (surprise - wished - (wish.true - wish.other - 1) * wished_for).sum()
            if learns:
                exponential.scatter_add_(-1, true, (wish.other - wish.true) * total)
                exponential[:, padding, None] -= (wish.padding - wish.other) * total
                slope = exponential.to(weight.dtype)
                slopes.copy_((product(slope, weight.t()) / total).sub_(wish.other * whole))
                _add_product(to_weight, slope.t(), (some / total).to(some.dtype))
        to_weight -= wish.other * hidden.sum(0, dtype=wide)
        ctx.save_for_backward(to_hidden, to_weight.to(weight.dtype))
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        to_hidden, to_weight = ctx.saved_tensors
        return to_hidden * gradients[0], to_weight * gradients[0], None, None, None, None


def _add_product(out: Tensor, left: Tensor, right: Tensor) -> None:
    """out += left right, added up in the precision of out."""
    if out.dtype is left.dtype:
        out.addmm_(left, right)
    else:
        out.add_(left @ right)


def projected_cross_entropy(
    hidden: Tensor, weight: Tensor, target: Tensor, *, padding: int, smoothing: float = 0.0, share: str = "all"
) -> tuple[Loss, Loss]:
    """cross_entropy(hidden @ weight.T, target, …) and its gradients, without the logits of the whole batch.

    hidden (tokens, dim), weight (vocab, dim), target (tokens,) ids. Padded tokens are left out before anything is
    multiplied. Under autocast the products are taken in its precision, the rest in single."""
    real = (target != padding).nonzero().squeeze(-1)
    wish = SMOOTHINGS[share](smoothing, len(weight))
    dtype = dtype_of(hidden)
    with torch.autocast(hidden.device.type, enabled=False):
        smoothed, plain = _ProjectedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden.index_select(0, real).to(dtype),
            weight.to(dtype),
            target.index_select(0, real),
            wish,
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
