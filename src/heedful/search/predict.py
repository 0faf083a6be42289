"""What may come next: `predict(tokens, states) -> (log-probabilities, states)`, and functions from one such to another.

Search knows nothing else of a model. Ensembles, forced prefixes, shortest lengths and forbidden repetitions are wrappers;
what a wrapper must remember travels in a State beside the model's, so that search re-orders and drops it with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from heedful.nn.rows import State, States, Step

Predict = Callable[[Tensor, States], tuple[Tensor, States]]  # (rows, time) ids -> (rows, vocab), of the last position


class Steps(Protocol):
    """All that search asks of a model."""

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step: ...

    def project(self, hidden: Tensor) -> Tensor: ...


def predictor(model: Steps) -> Predict:
    def predict(tokens: Tensor, states: States) -> tuple[Tensor, States]:
        step = model.step(tokens, states)
        logits = model.project(step.hidden[:, -1])  # (rows, vocab)
        return logits.float().log_softmax(-1), step.state

    return predict


def ensemble(members: Sequence[Predict]) -> Predict:
    """The mean of the members' probabilities; their states stand side by side."""

    def predict(tokens: Tensor, states: States) -> tuple[Tensor, States]:
        answers = [member(tokens, state) for member, state in zip(members, states, strict=True)]
        together = torch.stack([scores for scores, _ in answers]).logsumexp(0) - math.log(len(members))
        return together, tuple(state for _, state in answers)

    return predict


def unless_nothing_is_left(scores: Tensor, banned: Tensor) -> Tensor:
    """Ban what is banned, (rows, vocab), but in a row where nothing else is possible let everything pass."""
    left = scores.masked_fill(banned, -math.inf)
    return torch.where((left > -math.inf).any(-1, keepdim=True), left, scores)


def at_least(predict: Predict, length: int, end: int) -> Predict:
    """Forbid the end before `length` tokens were said."""

    def wrapped(tokens: Tensor, states: States) -> tuple[Tensor, States]:
        inner, said = states
        scores, inner = predict(tokens, inner)
        if said.filled < length:
            too_early = torch.zeros_like(scores, dtype=torch.bool)
            too_early[:, end] = True
            scores = unless_nothing_is_left(scores, too_early)
        return scores, (inner, said._replace(filled=said.filled + 1))

    return wrapped


def counting(states: States) -> States:
    """States for `at_least`: how much was said so far."""
    return states, State(memory=None, past=None, filled=0)


def forced(predict: Predict) -> Predict:
    """Begin with the given tokens, at the probability that the model gives them."""

    def wrapped(tokens: Tensor, states: States) -> tuple[Tensor, States]:
        inner, prefix = states
        scores, inner = predict(tokens, inner)
        given, lengths = prefix.memory  # (sources, longest), (sources,)
        if prefix.filled < given.shape[1]:
            beam = len(scores) // len(given)
            wanted = given[:, prefix.filled].repeat_interleave(beam)[:, None]  # (rows, 1)
            free = (lengths <= prefix.filled).repeat_interleave(beam)[:, None]  # (rows, 1)
            only = torch.full_like(scores, -math.inf).scatter(-1, wanted, scores.gather(-1, wanted))
            scores = torch.where(free, scores, only)
        return scores, (inner, prefix._replace(filled=prefix.filled + 1))

    return wrapped


def prefixed(states: States, prefixes: Sequence[Sequence[int]], device: torch.device) -> States:
    """States for `forced`: one prefix, perhaps empty, for each source."""
    longest = max(map(len, prefixes))
    given = torch.zeros(len(prefixes), longest, dtype=torch.long, device=device)
    for row, prefix in enumerate(prefixes):
        given[row, : len(prefix)] = torch.tensor(prefix, dtype=torch.long)
    lengths = torch.tensor([len(prefix) for prefix in prefixes], device=device)
    return states, State(memory=(given, lengths), past=None, filled=0)


def without_repeats(predict: Predict, length: int) -> Predict:
    """Forbid any n-gram of this length to come twice."""

    def wrapped(tokens: Tensor, states: States) -> tuple[Tensor, States]:
        inner, said = states
        scores, inner = predict(tokens, inner)
        history = tokens if said.past is None else torch.cat((said.past, tokens), dim=1)  # (rows, time)
        if history.shape[1] > length:  # the start token is no part of any n-gram
            grams = history[:, 1:].unfold(1, length, 1)  # (rows, grams, length)
            last = history[:, history.shape[1] - length + 1 :][:, None]  # (rows, 1, length - 1)
            seen = (grams[..., :-1] == last).all(-1)  # (rows, grams): began like the last tokens
            banned = torch.where(seen, 0.0, 1.0).to(scores)
            lowest = torch.ones_like(scores).scatter_reduce(-1, grams[..., -1], banned, "amin")
            scores = unless_nothing_is_left(scores, lowest == 0)
        return scores, (inner, State(None, history, said.filled + 1))

    return wrapped


def remembering(states: States) -> States:
    """States for `without_repeats`: nothing was said yet."""
    return states, State(memory=None, past=None, filled=0)
