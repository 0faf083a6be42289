"""An encoder-decoder Transformer of a given size by Hugging Face (Marian) and by torch itself (nn.Transformer).

Each is a function `objective(source, source_mask, target_in, target_out) -> mean loss` with its parameters.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from torch import Tensor, nn
from torch.nn import functional

SMOOTHING = 0.1


class Size(NamedTuple):
    dim: int
    layers: int
    heads: int
    hidden: int
    vocab: int
    dropout: float = 0.1


SIZES = {
    "base": Size(512, 6, 8, 2048, 37000),
    "big": Size(1024, 6, 16, 4096, 37000, 0.3),
    "small": Size(256, 3, 4, 1024, 10000),
    "toy": Size(32, 1, 2, 64, 1000),
}


class Peer(NamedTuple):
    model: nn.Module
    objective: Callable[[Tensor, Tensor | None, Tensor, Tensor], Tensor]


def loss_of(logits: Tensor, target_out: Tensor, pad: int) -> Tensor:
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), target_out.flatten(), ignore_index=pad, label_smoothing=SMOOTHING
    )


def marian_model(size: Size, pad: int = 0, start: int = 1, end: int = 2) -> nn.Module:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=size.vocab, d_model=size.dim, encoder_layers=size.layers, decoder_layers=size.layers,
        encoder_attention_heads=size.heads, decoder_attention_heads=size.heads, encoder_ffn_dim=size.hidden,
        decoder_ffn_dim=size.hidden, dropout=size.dropout, attention_dropout=0.0, activation_dropout=0.0,
        activation_function="relu", pad_token_id=pad, decoder_start_token_id=start, eos_token_id=end, forced_eos_token_id=end,
        scale_embedding=True, max_position_embeddings=512,
    )  # fmt: skip
    model: nn.Module = MarianMTModel(config)
    return model


def marian(size: Size, pad: int = 0) -> Peer:
    model = marian_model(size, pad)

    def objective(source: Tensor, source_mask: Tensor | None, target_in: Tensor, target_out: Tensor) -> Tensor:
        out: Any = model(input_ids=source, attention_mask=source_mask, decoder_input_ids=target_in, use_cache=False)
        return loss_of(out.logits, target_out, pad)

    return Peer(model, objective)


class TorchTransformer(nn.Module):
    """nn.Transformer with tied embeddings and sinusoidal positions, as in the paper."""

    waves: Tensor

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocab, size.dim)
        nn.init.normal_(self.embedding.weight, std=size.dim**-0.5)
        self.body = nn.Transformer(size.dim, size.heads, size.layers, size.layers, size.hidden, size.dropout, batch_first=True)
        self.dropout = nn.Dropout(size.dropout)
        self.scale = math.sqrt(size.dim)
        angles = torch.arange(512)[:, None] * torch.exp(torch.arange(0, size.dim, 2) * (-math.log(1e4) / size.dim))
        self.register_buffer("waves", torch.stack((angles.sin(), angles.cos()), -1).flatten(1), persistent=False)

    def embed(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.embedding(tokens) * self.scale + self.waves[: tokens.shape[1]])
        return embedded

    def forward(self, source: Tensor, source_mask: Tensor | None, target_in: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target_in.shape[1], device=source.device)
        ignored = None if source_mask is None else ~source_mask
        hidden = self.body(
            self.embed(source), self.embed(target_in), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=ignored, memory_key_padding_mask=ignored,
        )  # fmt: skip
        return functional.linear(hidden, self.embedding.weight)


def torch_transformer(size: Size, pad: int = 0) -> Peer:
    model = TorchTransformer(size)
    return Peer(model, lambda s, m, i, o: loss_of(model(s, m, i), o, pad))


PEERS = {"hf": marian, "torch": torch_transformer}
