"""Token embeddings of source and target, and the output layer, with shared weights (Press and Wolf, 2017).

tie = "all"       one table for source, target and output        "inputs"   one for source and target, one for the output
      "output"    one for the source, one for target and output  "none"     a table for each

embed     x = scale E[token]          project     logits = h O^T
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from heedful.nn.linear import Readout

Tie = Literal["all", "output", "inputs", "none"]


class Embeddings(nn.Module):
    def __init__(
        self,
        source_vocab: int,
        target_vocab: int,
        dim: int,
        *,
        tie: Tie,
        scale: float = 1.0,
        std: float | None = None,
        output_dim: int | None = None,
    ) -> None:
        """std: of the initial weights; default: 1 / sqrt(size), 0: torch's. output_dim: size of an output table of its own;
        None: `readout` exists only where it is tied, and the model has another output layer otherwise."""
        super().__init__()
        self.scale = scale
        self.target = make_table(target_vocab, dim, std)
        self.source = None if tie in ("all", "inputs") else make_table(source_vocab, dim, std)
        self.output = make_table(target_vocab, output_dim, std) if tie in ("inputs", "none") and output_dim else None
        tied = self.target if tie in ("all", "output") else self.output
        self.readout = None if tied is None else Readout(tied)

    def table(self, side: Literal["source", "target"]) -> nn.Embedding:
        return self.target if side == "target" or self.source is None else self.source

    def embed(self, side: Literal["source", "target"], tokens: Tensor) -> Tensor:
        """(rows, time) -> (rows, time, dim)."""
        vectors: Tensor = self.table(side)(tokens)
        return vectors if self.scale == 1.0 else vectors * self.scale

    def project(self, hidden: Tensor) -> Tensor:
        """(…, dim) -> logits (…, target vocabulary)."""
        assert self.readout is not None, "the model has an output layer of its own"
        return self.readout(hidden)


def make_table(vocab: int, dim: int, std: float | None) -> nn.Embedding:
    table = nn.Embedding(vocab, dim)
    if std != 0:
        nn.init.normal_(table.weight, std=dim**-0.5 if std is None else std)
    return table
