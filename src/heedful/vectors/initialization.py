"""Initialize rows of a model's embedding from word vectors, trainable or frozen.

Tokens are matched to vectors by name; ▁dog, a piece at the start of a word, also matches the vector of dog. A token without
a vector (a special token, a rare one) keeps its random initialization. One factor scales all initialized rows to the root
mean square of the rows they replace: directions and relative lengths come from the vectors, the scale from the model.

Where a model ties its embedding to its output projection, the rows initialize the output weights too, frozen or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError, DataError
from heedful.nn.model import Model
from heedful.text.pipelines import BAR
from heedful.text.tokenizer import Tokenizer
from heedful.vectors.table import Vectors
from heedful.vectors.tokens import token_names

Side = Literal["source", "target"]
Sides = Literal["both", "source", "target"]


class InitializedRows(NamedTuple):
    """Rows of an embedding that were initialized from vectors."""

    table: nn.Embedding
    rows: Tensor  # (rows,)


def matching_rows(tokens: Sequence[str], vectors: Vectors) -> tuple[Tensor, Tensor]:
    """Return the rows of the embedding that have a vector (rows,), and the rows of these vectors (rows,)."""
    indices = [vectors.index.get(token, vectors.index.get(token.removeprefix(BAR))) for token in tokens]
    pairs = [(row, index) for row, index in enumerate(indices) if index is not None]
    if not pairs:
        raise DataError(
            f"none of the {len(tokens):,} tokens has a vector; expected vectors of these tokens",
            hint="train vectors of a run's tokens with: heed vectors TEXT --tokenizer RUN",
        )
    rows, vector_rows = torch.tensor(pairs).T
    return rows, vector_rows


@torch.no_grad()
def initialize_rows(table: nn.Embedding, tokens: Sequence[str], vectors: Vectors) -> int:
    """Set the row of every token that has a vector; return the number of these rows."""
    if table.embedding_dim != vectors.dim:
        raise ConfigError(
            f"the vectors have {vectors.dim} dimensions, the embedding {table.embedding_dim}; expected the same",
            hint=f"train vectors with --dim {table.embedding_dim}, or set model.dim={vectors.dim}",
        )
    rows, vector_rows = matching_rows(tokens, vectors)
    rows = rows.to(table.weight.device)
    values = vectors.values[vector_rows].to(table.weight)  # (rows, dim)
    table.weight[rows] = values * (root_mean_square(table.weight[rows]) / root_mean_square(values))
    return len(rows)


def root_mean_square(values: Tensor) -> Tensor:
    return values.float().square().mean().sqrt()


def initialize_embeddings(
    model: Model, tokenizers: tuple[Tokenizer, Tokenizer], vectors: Vectors, sides: Sides
) -> list[InitializedRows]:
    """Initialize the embeddings of one side or both from vectors; a shared one is returned once."""
    initialized: dict[int, InitializedRows] = {}
    both: tuple[Side, Side] = ("source", "target")
    for side, tokenizer in zip(both, tokenizers, strict=True):
        if sides in ("both", side):
            table = model.embeddings().get(side)
            if table is None:
                raise ConfigError(f"{type(model).__name__} has no embedding of {side} tokens; expected a text model")
            tokens = token_names(tokenizer)
            initialize_rows(table, tokens, vectors)
            initialized[id(table)] = InitializedRows(table, matching_rows(tokens, vectors)[0])
    return list(initialized.values())


def freeze_rows(initialized: InitializedRows, optimizer: torch.optim.Optimizer) -> None:
    """Freeze the initialized rows while the other rows are trained: their gradient is zero, so they do not count in the
    gradient norm, and updates without a gradient (weight decay) are undone. Call it when the model is on its device."""
    weight = initialized.table.weight
    rows = initialized.rows.to(weight.device)
    values = weight.detach()[rows].clone()

    def restore(*_: object) -> None:
        with torch.no_grad():
            weight.index_copy_(0, rows, values)

    weight.register_hook(lambda gradient: gradient.index_fill(0, rows, 0.0))  # type: ignore[no-untyped-call]
    optimizer.register_step_post_hook(restore)
