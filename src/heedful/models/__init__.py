"""Families of models, one a file. A model that says something is two functions: `start` reads, `step` says what comes next.

Training's forward pass is `step(target, start(source))`; search feeds `step` one token at a time. A contract test proves
for every family that the two agree.
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from pydantic import Field
from torch import Tensor

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
from heedful.schema import Untagged


class SequenceModel(Protocol):
    @property
    def longest(self) -> int | None:
        """How many tokens it can say at most; None: any number."""

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
