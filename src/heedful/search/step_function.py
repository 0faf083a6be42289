"""Next-token logits: `predict(tokens, states) -> (logits, states)` is all that search needs of a model.

Logits need not be normalized: search computes their log-sum-exp once for each row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from heedful.nn.decoder_state import States
from heedful.nn.model import SequenceModel

StepFunction = Callable[[Tensor, States], tuple[Tensor, States]]  # (rows, time) ids -> (rows, vocab) of the last position


def step_function(model: SequenceModel) -> StepFunction:
    """The step function of one model."""

    def predict(tokens: Tensor, states: States) -> tuple[Tensor, States]:
        step = model.step(tokens, states)
        return model.project(step.hidden[:, -1]), step.state

    return predict


def ensemble(members: Sequence[StepFunction]) -> StepFunction:
    """The step function of an ensemble: the mean of the members' probabilities; states are a tuple of the members' states."""

    def predict(tokens: Tensor, states: States) -> tuple[Tensor, States]:
        outputs = [member(tokens, state) for member, state in zip(members, states, strict=True)]
        scores = torch.stack([logits.float().log_softmax(-1) for logits, _ in outputs])
        return scores.logsumexp(0) - math.log(len(members)), tuple(state for _, state in outputs)

    return predict
