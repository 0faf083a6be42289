"""Word vectors as the first rows of a model's embedding, left to learn on or held fast.

Tokens and vectors meet by name; ▁dog, a piece that begins a word, also takes the vector of dog. A token without a vector
(a special token, a rare one) keeps the row that the model began with. One factor brings all placed rows to the root mean
square of the rows they replace: their directions and relative lengths are the vectors', their scale is the model's.

Where a model shares its embedding with its output, the placed rows are the first output weights too, and frozen ones stay so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError, DataError
from heedful.text.pipelines import BAR
from heedful.text.tokenizer import Tokenizer
from heedful.vectors.table import Vectors
from heedful.vectors.tokens import token_names

Side = Literal["source", "target"]
Sides = Literal["both", "source", "target"]


class Placed(NamedTuple):
    """Rows of an embedding that were set from vectors."""

    table: nn.Embedding
    rows: Tensor  # (placed,)


def matching_rows(tokens: Sequence[str], vectors: Vectors) -> tuple[Tensor, Tensor]:
    """Which rows of the embedding have a vector (placed,), and the row of that vector (placed,)."""
    found = [vectors.index.get(token, vectors.index.get(token.removeprefix(BAR))) for token in tokens]
    pairs = [(row, own) for row, own in enumerate(found) if own is not None]
    if not pairs:
        raise DataError(
            f"none of the {len(tokens):,} tokens has a vector; expected the vectors to be of these tokens",
            hint="heed vectors TEXT --tokenizer RUN makes vectors of a run's tokens",
        )
    rows, own = torch.tensor(pairs).T
    return rows, own


@torch.no_grad()
def place_vectors(table: nn.Embedding, tokens: Sequence[str], vectors: Vectors) -> int:
    """Set the row of every token that has a vector; returns how many were set."""
    if table.embedding_dim != vectors.dim:
        raise ConfigError(
            f"the vectors have {vectors.dim} dimensions, the embedding {table.embedding_dim}; expected the same",
            hint=f"heed vectors --dim {table.embedding_dim}, or a model of that dim",
        )
    rows, own = matching_rows(tokens, vectors)
    rows = rows.to(table.weight.device)
    values = vectors.values[own].to(table.weight)  # (placed, dim)
    table.weight[rows] = values * (root_mean_square(table.weight[rows]) / root_mean_square(values))
    return len(rows)


def root_mean_square(values: Tensor) -> Tensor:
    return values.float().square().mean().sqrt()


def embedding_of(model: Any, side: Side) -> nn.Embedding:
    """The table that a model looks up the side's tokens in; a table for both sides goes by the target's name."""
    for name in (f"{side}_embedding", "target_embedding", "embedding"):
        table = getattr(model, name, None)
        if isinstance(table, nn.Embedding):
            return table
    raise ConfigError(f"{type(model).__name__} has no embedding of {side} tokens; expected a model that reads or writes text")


def place_in_model(model: nn.Module, tokenizers: tuple[Tokenizer, Tokenizer], vectors: Vectors, sides: Sides) -> list[Placed]:
    """Begin with these vectors on one side or both; a table that both share is set once."""
    placed: dict[int, Placed] = {}
    ends: tuple[Side, Side] = ("source", "target")
    for side, tokenizer in zip(ends, tokenizers, strict=True):
        if sides in ("both", side):
            table = embedding_of(model, side)
            tokens = token_names(tokenizer)
            place_vectors(table, tokens, vectors)
            placed[id(table)] = Placed(table, matching_rows(tokens, vectors)[0])
    return list(placed.values())


def freeze_rows(placed: Placed, optimizer: torch.optim.Optimizer) -> None:
    """Hold placed rows fast while the other rows learn: they have no gradient, so they count in no norm, and what the
    optimizer does without a gradient (weight decay) is undone. Call it when the model is on its device."""
    weight = placed.table.weight
    rows = placed.rows.to(weight.device)
    values = weight.detach()[rows].clone()

    def restore(*_: object) -> None:
        with torch.no_grad():
            weight.index_copy_(0, rows, values)

    weight.register_hook(lambda gradient: gradient.index_fill(0, rows, 0.0))  # type: ignore[no-untyped-call]
    optimizer.register_step_post_hook(restore)
