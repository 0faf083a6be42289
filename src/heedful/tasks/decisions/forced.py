"""Episodes for analyses: one history with its actions as outputs, and batches of many.

target_in    R1 s1 a1 R2 s2          the vectors of the tokens, (1, tokens, dim), up to the last state
outputs      a1 a2                   the action of each step, from the hidden state of its state
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from heedful.data.trajectories import State
from heedful.tasks.decisions.data import TrajectoryBatch
from heedful.tasks.decisions.model import PADDING, DecisionModel
from heedful.tasks.encoded_example import EncodedExample, Outputs, Tokens
from heedful.tasks.forced import BATCH, EncodedSample, ForcedBatch, Pieces
from heedful.tasks.system import batches_of

ROUNDING = 1e-9  # of the largest return: what remains after rewards such as 0.1 were subtracted is not exactly 0


class Steps(Protocol):
    @property
    def states(self) -> list[State]: ...
    @property
    def actions(self) -> list[str]: ...
    @property
    def returns(self) -> list[float]: ...


def token_names(history: Steps, *, with_returns: bool) -> list[str]:
    """R1=9.5 s1=b3 a1=up …, up to the last state; a state of several values has only its number."""
    names = []
    least = ROUNDING * max(map(abs, history.returns))
    returns = [one if abs(one) > least else 0.0 for one in history.returns]
    for at, state in enumerate(history.states):
        shown = f"={next(iter(state.values()))}" if len(state) == 1 else ""
        names += [f"R{at + 1}={returns[at]:.4g}"] if with_returns else []
        names += [f"s{at + 1}{shown}", *([f"a{at + 1}={history.actions[at]}"] if at < len(history.actions) else [])]
    return names


def encode_history(
    model: DecisionModel, row: TrajectoryBatch, text: str, known: Sequence[str], history: Steps, action: str
) -> EncodedExample:
    """The example of a history and the action after it; row: its tensors; known: all actions."""
    device = next(model.parameters()).device
    with torch.no_grad():
        vectors = model.embed(*row.to(device))[:, :-1]  # without the action that is predicted
    names = token_names(history, with_returns=model.returns is not None)
    tokens = Tokens(text, list(range(len(names))), names, list(range(len(names))))
    chosen = [*history.actions, action]
    steps = torch.arange(model.tokens_per_step - 2, len(names), model.tokens_per_step, device=device)
    outputs = Outputs(
        torch.tensor([known.index(one) for one in chosen], device=device),
        chosen,
        steps,
        partial(step_logits, steps),
        lambda ids: [known[i] for i in ids],
    )
    source = torch.zeros(1, 0, dtype=torch.int64, device=device)
    return EncodedExample(None, tokens, None, None, source, vectors, outputs, reads_end=True, label=" ".join(chosen))


def step_logits(steps: Tensor, model: DecisionModel, hidden: Tensor) -> Tensor:
    """hidden (rows, time, dim) -> (rows, steps, actions)."""
    return model.decide(hidden[:, steps.clone()])


def batches(model: DecisionModel, examples: Sequence[EncodedExample]) -> Iterator[ForcedBatch]:
    """Batches of examples, the longest first."""
    order = sorted(range(len(examples)), key=lambda i: examples[i].target_in.shape[1], reverse=True)
    for chosen in batches_of(order, lambda i: examples[i].target_in.shape[1], BATCH):
        rows = [examples[i] for i in chosen]
        longest, actions = rows[0].target_in.shape[1], len(rows[0].outputs.pieces)
        vectors = rows[0].target_in.new_zeros(len(rows), longest, rows[0].target_in.shape[2])
        targets = rows[0].outputs.ids.new_full((len(rows), actions), PADDING)
        for at, example in enumerate(rows):
            vectors[at, : example.target_in.shape[1]] = example.target_in[0]
            targets[at, : len(example.outputs.ids)] = example.outputs.ids
        samples = [EncodedSample(None, Pieces(one.target.ids, one.target.words), before=0) for one in rows]
        steps = rows[0].outputs.steps
        yield ForcedBatch(samples, partial(batch_logits, model, vectors, steps), targets, 0, longest)


def batch_logits(model: DecisionModel, vectors: Tensor, steps: Tensor) -> Tensor:
    """(rows, steps, actions)."""
    return step_logits(steps, model, model.body.forced(None, None, vectors).hidden)
