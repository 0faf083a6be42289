"""The Decision Transformer: a causal model of returns, states and actions (Chen et al., 2021).

    tokens       R_1 s_1 a_1  R_2 s_2 a_2  …         R_t = r_t + r_{t+1} + …, the return-to-go; in use, the one that is desired
    vectors      W_R R_t + e_t,  W_s s_t + e_t,  E[a_t] + e_t         e_t: embedding of the step t, the same for its tokens
    p(a_t | …)   softmax(W h), h: the hidden state of s_t

Without returns, condition = "none", the tokens are s_1 a_1 s_2 a_2 …, and the model clones the behavior of the data. Returns
and numbers of a state are standardized by their mean and standard deviation in the training data, stored with the weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.nn.model import ModelWithHead, SequenceModel

PADDING = -100  # the action of a step that does not exist
INITIAL_STD = 0.02


class Sizes(Protocol):
    """The options of the model."""

    @property
    def known_actions(self) -> tuple[str, ...]: ...
    @property
    def known_features(self) -> tuple[str, ...]: ...
    @property
    def tokens_per_step(self) -> int: ...

    condition: Literal["return", "none"]
    max_steps: int


class DecisionModel(ModelWithHead):
    """A decoder-only model of vectors, with embeddings of returns, states, actions and steps, and a linear layer to actions."""

    body: SequenceModel
    return_scale: Tensor
    state_scale: Tensor

    def __init__(self, body: SequenceModel, dim: int, options: Sizes) -> None:
        super().__init__()
        actions, features = len(options.known_actions), len(options.known_features)
        self.body, self.tokens_per_step = body, options.tokens_per_step
        self.returns = nn.Linear(1, dim) if options.condition == "return" else None
        self.states = nn.Linear(features, dim)
        self.actions = nn.Embedding(actions, dim)
        self.steps = nn.Embedding(options.max_steps, dim)
        self.head = nn.Linear(dim, actions)
        for module in (self.returns, self.states, self.actions, self.steps, self.head):
            if module is not None:
                nn.init.normal_(module.weight, std=INITIAL_STD)
        nn.init.zeros_(self.head.bias)
        self.register_buffer("return_scale", torch.tensor([0.0, 1.0]))  # mean, standard deviation
        self.register_buffer("state_scale", torch.stack((torch.zeros(features), torch.ones(features))))

    def fit(self, returns: Tensor, states: Tensor, numbers: Tensor) -> None:
        """Standardize by the mean and the standard deviation of returns (steps,) and of states (steps, features), where these
        are numbers (features,), not names; a constant is only centered."""
        self.return_scale.copy_(scale_of(returns[:, None])[:, 0])
        if bool(numbers.any()):
            self.state_scale[:, numbers] = scale_of(states[:, numbers]).to(self.state_scale)

    def embed(self, returns: Tensor, states: Tensor, actions: Tensor, steps: Tensor) -> Tensor:
        """returns, actions and numbers of steps (rows, time), states (rows, time, features) -> vectors of the tokens
        (rows, time x tokens per step, dim). The action of padding is any."""
        dtype, step = self.states.weight.dtype, self.steps(steps.clamp(max=self.steps.num_embeddings - 1))
        (mean, deviation), (state_mean, state_deviation) = self.return_scale, self.state_scale
        parts = [
            self.states(((states - state_mean) / state_deviation).to(dtype)),
            self.actions(actions.clamp(min=0)),
        ]
        if self.returns is not None:
            parts.insert(0, self.returns(((returns - mean) / deviation)[..., None].to(dtype)))
        return torch.stack([part + step for part in parts], dim=2).flatten(1, 2)  # (rows, tokens, dim)

    def forward(self, returns: Tensor, states: Tensor, actions: Tensor, steps: Tensor) -> Tensor:
        """Arguments as in `embed` -> logits of the action of each step (rows, time, actions). Those of a step depend on no
        action from that step on."""
        hidden = self.body.forced(None, None, self.embed(returns, states, actions, steps)).hidden
        return self.decide(hidden[:, self.tokens_per_step - 2 :: self.tokens_per_step])

    def decide(self, hidden: Tensor) -> Tensor:
        """Hidden states of states (…, dim) -> logits (…, actions)."""
        logits: Tensor = self.head(hidden)
        return logits

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits of empty states, one for each token of a row: (rows, time, actions)."""
        states = torch.zeros(*target.shape, self.states.in_features, device=target.device)
        empty = torch.zeros_like(target)
        return self(empty.float(), states, empty, empty)

    if TYPE_CHECKING:
        __call__ = forward


def scale_of(values: Tensor) -> Tensor:
    """Mean and standard deviation of each column, 1 for a constant: (rows, columns) -> (2, columns)."""
    values = values.double()
    deviation = values.std(0, correction=0)
    return torch.stack((values.mean(0), torch.where(deviation > 0, deviation, 1.0))).float()


def action_losses(logits: Tensor, actions: Tensor) -> Tensor:
    """-log p of each action, 0 for padding: logits (rows, time, actions), actions (rows, time) -> (rows, time)."""
    return functional.cross_entropy(logits.float().transpose(1, 2), actions, ignore_index=PADDING, reduction="none")
