"""Model families, one per file. A model is two functions: `start` encodes the source, `step` predicts the next token.

The forward pass in training is `step(target, start(source))`; search calls `step` with one token at a time. A contract test
verifies for every family that both give the same result.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from pydantic import Field
from torch import Tensor

from heedful.config.base import Untagged
from heedful.models.bahdanau import Bahdanau, BahdanauConfig
from heedful.models.bytenet import ByteNet, ByteNetConfig
from heedful.models.convs2s import ConvS2S, ConvS2SConfig
from heedful.models.deep_att import DeepAtt, DeepAttConfig
from heedful.models.gnmt import GNMT, GNMTConfig
from heedful.models.gpt import GPT, GPTConfig
from heedful.models.luong import Luong, LuongConfig
from heedful.models.mixed import Mixed, MixedConfig
from heedful.models.sutskever import Sutskever, SutskeverConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.decoder_state import State, Step


class SequenceModel(Protocol):
    @property
    def max_length(self) -> int | None:
        """Maximum number of target tokens; None: unlimited."""

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State: ...

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step: ...

    def project(self, hidden: Tensor) -> Tensor: ...


MODELS: dict[str, Any] = {
    "transformer": Transformer,
    "sutskever": Sutskever,
    "bahdanau": Bahdanau,
    "luong": Luong,
    "gnmt": GNMT,
    "deep_att": DeepAtt,
    "convs2s": ConvS2S,
    "bytenet": ByteNet,
    "mixed": Mixed,
    "gpt": GPT,
}
ModelConfig = Annotated[
    TransformerConfig
    | SutskeverConfig
    | BahdanauConfig
    | LuongConfig
    | GNMTConfig
    | DeepAttConfig
    | ConvS2SConfig
    | ByteNetConfig
    | MixedConfig
    | GPTConfig,
    Field(discriminator="family"),
    Untagged("family", "transformer"),
]

__all__ = ["MODELS", "ModelConfig", "SequenceModel"]
