from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from heedful.evaluation.spans import follows
from heedful.nn.crf import Allowed, Crf

LABELS, LENGTHS = 3, (4, 1, 2)
BIO = ["O", "B-x", "I-x"]


def make_crf(*, bio: bool) -> Crf:
    torch.manual_seed(3)
    pairs = [[follows(before, label) for label in BIO] for before in BIO]
    crf = Crf(LABELS, Allowed([follows(None, label) for label in BIO], pairs) if bio else None).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def emissions_and_mask() -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    real = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return torch.randn(len(LENGTHS), max(LENGTHS), LABELS), real


def sequence_scores(crf: Crf, emissions: Tensor) -> dict[tuple[int, ...], float]:
    """The score of every label sequence of one sentence (words, labels), term by term."""
    scores = {}
    for path in itertools.product(range(LABELS), repeat=len(emissions)):
        total = float(crf.start[path[0]] + crf.end[path[-1]])
        total += sum(float(emissions[t, label]) for t, label in enumerate(path))
        total += sum(float(crf.transitions[a, b]) for a, b in itertools.pairwise(path))
        allowed = bool(crf.starts[path[0]]) and all(bool(crf.pairs[a, b]) for a, b in itertools.pairwise(path))
        scores[path] = total if allowed else -math.inf
    return scores


@pytest.mark.parametrize("bio", [False, True])
@torch.no_grad()
def test_loss_decoding_and_marginals_equal_those_over_all_label_sequences(bio: bool) -> None:
    crf, (emissions, real) = make_crf(bio=bio), emissions_and_mask()
    labels = torch.tensor([[1, 2, 2, 0], [0, 0, 0, 0], [1, 0, 0, 0]])  # valid in BIO
    losses, best, marginals = crf.losses(emissions, labels, real), crf.decode(emissions, real), crf.marginals(emissions, real)
    for row, length in enumerate(LENGTHS):
        scores = sequence_scores(crf, emissions[row, :length])
        partition = math.log(sum(map(math.exp, scores.values())))
        assert float(losses[row]) == pytest.approx(partition - scores[tuple(labels[row, :length].tolist())], abs=1e-5)
        top = max(scores.values())
        assert best[row, :length].tolist() == next(list(path) for path, score in scores.items() if score == top)
        for t, label in itertools.product(range(length), range(LABELS)):
            expected = sum(math.exp(score - partition) for path, score in scores.items() if path[t] == label)
            assert float(marginals[row, t, label].exp()) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("bio", [False, True])
def test_gradients_equal_finite_differences(bio: bool) -> None:
    crf = make_crf(bio=bio)
    _, real = emissions_and_mask()
    labels = torch.tensor([[1, 2, 2, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    emissions = torch.randn(*real.shape, LABELS, requires_grad=True)
    total = crf.losses(emissions, labels, real).sum()
    total.backward()  # type: ignore[no-untyped-call]
    assert emissions.grad is not None and crf.transitions.grad is not None
    assert bool(crf.transitions.grad.isfinite().all()) and bool(emissions.grad[~real].eq(0).all())
    step = 1e-2
    for parameter, gradient in ((emissions, emissions.grad), (crf.transitions, crf.transitions.grad), (crf.end, crf.end.grad)):
        assert gradient is not None
        for at in itertools.product(*map(range, parameter.shape)):
            with torch.no_grad():
                parameter[at] += step
                above = float(crf.losses(emissions, labels, real).sum())
                parameter[at] -= 2 * step
                below = float(crf.losses(emissions, labels, real).sum())
                parameter[at] += step
            assert float(gradient[at]) == pytest.approx((above - below) / (2 * step), abs=2e-3)


def test_a_row_without_words_has_no_loss_and_no_gradient() -> None:
    crf, (emissions, real) = make_crf(bio=True), emissions_and_mask()
    real[1] = False
    losses = crf.losses(emissions.requires_grad_(), torch.zeros(real.shape, dtype=torch.int64), real)
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert losses[1].item() == 0 and emissions.grad is not None
    assert bool(emissions.grad[1].eq(0).all()) and bool(emissions.grad[0].ne(0).any())


def test_decoded_labels_in_bio_are_always_valid() -> None:
    crf = make_crf(bio=True)
    emissions = 10 * torch.randn(50, 6, LABELS)
    paths = crf.decode(emissions, torch.ones(50, 6, dtype=torch.bool)).tolist()
    free = emissions.argmax(-1).tolist()

    def valid(path: list[int]) -> bool:
        return all(follows(a, b) for a, b in itertools.pairwise([None, *(BIO[label] for label in path)]) if b is not None)

    assert all(map(valid, paths)) and not all(map(valid, free))
