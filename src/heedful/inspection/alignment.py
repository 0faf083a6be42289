"""Soft alignment: how much a decoder looked at each source word when it said, or was fed, each target word.

    weights[layer] (rows, heads, target time, source time)         one forced pass over many pairs
    merged  = target^T weights source / pieces of the target word   pieces become words

A row of the weights belongs to the moment at which its target token is *said*; what stands one row further down is the look
that the same token takes when it has been *fed*, which in some layers aligns better (Chen et al., 2020).
What becomes a link is decided in `linking.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.inspection.attention_maps import Says, attentions, forced, layer_of
from heedful.nn.hooks import record

ATTENDING = "families that do: transformer, bahdanau, luong, gnmt, deep_att, convs2s, mixed with bridge 'attention', gpt"


def attends_to_source(model: nn.Module) -> bool:
    return any(kind.name in ("cross", "within") for kind in attentions(model).values())


def looks_at_source(model: nn.Module) -> dict[int, str]:
    """The taps that hear how a model looks at its source, by layer; where the source stands before the target in one
    sequence, those of the whole sequence."""
    kinds = attentions(model)
    names = [name for name, kind in kinds.items() if kind.name == "cross"]
    names = names or [name for name, kind in kinds.items() if kind.name == "within"]
    if not names:
        raise ConfigError(
            "this model does not attend to its source, so its words cannot be aligned",
            hint=ATTENDING,
        )
    return {layer_of(name): name for name in names}


def cross_weights(
    model: Says, source: Tensor, source_mask: Tensor | None, target_in: Tensor, layers: Iterable[int] | None = None
) -> dict[int, Tensor]:
    """source and source_mask (rows, source time), target_in (rows, target time) -> for each of these layers, or of all,
    (rows, heads, target time, source time)."""
    assert isinstance(model, nn.Module), "models are modules"
    names = looks_at_source(model)
    wanted = {layer: names[layer] for layer in (names if layers is None else layers)}
    with forced(model), record(model, *wanted.values()) as seen:
        model.step(target_in, model.start(source, source_mask, room=0))
    return {layer: seen[name][..., : source.shape[1]] for layer, name in wanted.items()}


def cross_maps(model: Says, source: Tensor, target_in: Tensor) -> list[Tensor]:
    """source (1, source time), target_in (1, target time) -> for each layer (heads, target time, source time).

    Where the source stands before the target in one sequence, its part of each map."""
    return [weights[0] for weights in cross_weights(model, source, None, target_in).values()]


def attention_between(model: Says, pair: tuple[Tensor, Tensor], layer: int | None = None) -> Tensor:
    """The mean over heads of one layer's cross-attention, or of all layers': (target time, source time).

    Row t is what was looked at when token t of the target was said; the last row belongs to the end."""
    maps = cross_maps(model, *pair)
    chosen = maps if layer is None else [maps[layer]]
    return torch.stack([weights.mean(0) for weights in chosen]).mean(0)


def between_words(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """Merge pieces into words: a word is looked at with the sum of its pieces' weights, and looks with their mean.

    weights (target pieces, source pieces); the word that each piece belongs to -> (target words, source words)."""
    return merge_pieces(weights[None, None], torch.tensor([source_words]), torch.tensor([target_words]))[0, 0]


def merge_pieces(weights: Tensor, source_words: Tensor, target_words: Tensor) -> Tensor:
    """As `between_words` for many rows: weights (rows, heads, target pieces, source pieces), source_words (rows, source
    pieces), target_words (rows, target pieces), -1 where a piece is none -> (rows, heads, target words, source words)."""
    source = owners(source_words).to(weights)[:, None]  # (rows, 1, source pieces, source words)
    target = owners(target_words).to(weights)[:, None]  # (rows, 1, target pieces, target words)
    pieces = target.sum(-2)[..., None].clamp(min=1)  # (rows, 1, target words, 1)
    return target.transpose(-2, -1) @ weights @ source / pieces


def owners(words: Tensor) -> Tensor:
    """(rows, pieces) -> (rows, pieces, words): 1 where the piece belongs to the word."""
    return nn.functional.one_hot(words + 1)[..., 1:]
