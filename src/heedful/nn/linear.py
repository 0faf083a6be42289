"""Linear maps as Transformers begin with them: Xavier's uniform weights (Glorot and Bengio, 2010), biases of zero."""

from __future__ import annotations

from torch import nn


def linear(inputs: int, outputs: int, blocks: int = 1) -> nn.Linear:
    """A map whose weight may be several maps fused into one; each is initialised as if it stood alone."""
    made = nn.Linear(inputs, outputs)
    for block in made.weight.data.chunk(blocks):
        nn.init.xavier_uniform_(block)
    nn.init.zeros_(made.bias)
    return made
