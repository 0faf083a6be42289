"""Alignment: which source words a decoder looked at when it said each target word."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.evaluation.word_alignment import Alignment, alignment_error_rate
from heedful.inspection.maps import Says, attention_maps


def cross_maps(model: Says, source: Tensor, target_in: Tensor) -> list[Tensor]:
    """source (1, source time), target_in (1, target time) -> for each layer (heads, target time, source time).

    Where the source stands before the target in one sequence, its part of each map."""
    maps = attention_maps(model, source, target_in, "cross") or attention_maps(model, source, target_in, "within")
    if not maps:
        raise ConfigError("this model does not attend to its source, so its words cannot be aligned")
    return [one.weights[..., : source.shape[1]] for one in maps]


def attention_between(model: Says, pair: tuple[Tensor, Tensor], layer: int | None = None) -> Tensor:
    """The mean over heads of one layer's cross-attention, or of all layers': (target time, source time).

    Row t is what was looked at when token t of the target was said; the last row belongs to the end."""
    maps = cross_maps(model, *pair)
    chosen = maps if layer is None else [maps[layer]]
    return torch.stack([weights.mean(0) for weights in chosen]).mean(0)


def between_words(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> Tensor:
    """Merge pieces into words: a word is looked at with the sum of its pieces' weights, and looks with their mean.

    weights (target pieces, source pieces); the word that each piece belongs to -> (target words, source words)."""
    source = nn.functional.one_hot(torch.tensor(source_words)).to(weights)  # (source pieces, source words)
    target = nn.functional.one_hot(torch.tensor(target_words)).to(weights)  # (target pieces, target words)
    return target.T @ weights @ source / target.sum(0)[:, None]


def choose_heads(maps: Sequence[Tensor], gold: Sequence[Alignment]) -> tuple[list[int], float]:
    """The set of heads whose mean aligns best, grown one by one as long as the error rate falls, and that rate.

    maps: for each sentence (heads, target words, source words)."""

    def rate(heads: list[int]) -> float:
        return alignment_error_rate([links(one[heads].mean(0)) for one in maps], gold).value

    chosen: list[int] = []
    lowest = math.inf
    while rest := [head for head in range(len(maps[0])) if head not in chosen]:
        error, head = min((rate([*chosen, head]), head) for head in rest)
        if error >= lowest:
            break
        lowest, chosen = error, [*chosen, head]
    return chosen, lowest


def links(weights: Tensor) -> set[tuple[int, int]]:
    """(target words, source words) -> {(source, target)}: every target word takes the source word it looked at most."""
    return {(int(source), target) for target, source in enumerate(weights.argmax(-1))}
