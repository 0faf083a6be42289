"""Families of models, one a file. A model that says something is two functions: `start` reads, `step` says what comes next.

Training's forward pass is `step(target, start(source))`; search feeds `step` one token at a time. A contract test proves
for every family that the two agree.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.rows import State, Step


class SequenceModel(Protocol):
    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State: ...

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step: ...

    def project(self, hidden: Tensor) -> Tensor: ...


MODELS: dict[str, Any] = {"transformer": Transformer}
ModelConfig = TransformerConfig

__all__ = ["MODELS", "ModelConfig", "SequenceModel"]
