"""Sequence layers: (rows, time, dim) -> (rows, time, dim), one interface for attention, recurrence and convolution.

    kind                     operations    in sequence    longest path      ("Attention Is All You Need", table 1)
    self-attention           n^2 d         1              1
    restricted attention     r n d         1              n / r             a window of r tokens
    parameter-free           n^2 d         1              1                 y_i = sum_j softmax_j(x_i . x_j) x_j
    recurrent                n d^2         n              n                 LSTM, GRU; bidirectional when not causal
    convolution              k n d^2       1              n / k             gated; log_k(n) with growing dilations

A causal layer does not depend on later tokens and can run token by token. Padding, at any position, has no influence, and its
outputs are zeros. Residual connections, norms and positional encodings are left to the caller.
"""

from __future__ import annotations

from typing import Literal

from heedful.nn.sequence_layers.base import LayerSize, SequenceLayer
from heedful.nn.sequence_layers.convolution import Convolution, DilatedConvolution
from heedful.nn.sequence_layers.recurrent import Gru, Lstm
from heedful.nn.sequence_layers.self_attention import FullAttention, ParameterFreeAttention, RestrictedAttention

KindName = Literal["self-attention", "restricted", "parameter-free", "lstm", "gru", "convolution", "dilated"]
SEQUENCE_LAYERS: dict[str, type[SequenceLayer]] = {
    "self-attention": FullAttention,
    "restricted": RestrictedAttention,
    "parameter-free": ParameterFreeAttention,
    "lstm": Lstm,
    "gru": Gru,
    "convolution": Convolution,
    "dilated": DilatedConvolution,
}

__all__ = [
    "SEQUENCE_LAYERS",
    "Convolution",
    "DilatedConvolution",
    "FullAttention",
    "Gru",
    "KindName",
    "LayerSize",
    "Lstm",
    "ParameterFreeAttention",
    "RestrictedAttention",
    "SequenceLayer",
]
