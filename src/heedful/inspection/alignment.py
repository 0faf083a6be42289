"""Alignment: which source words a decoder looked at when it said each target word.

The maps come from one forced pass over the finished translation, not from inside the search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Protocol

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.evaluation.word_alignment import Alignment, alignment_error_rate
from heedful.nn.rows import State, Step
from heedful.nn.taps import record, taps

CROSS = "cross.look.weights"  # how the name of a tap on cross-attention ends
WITHIN = "layers.*.attention.look.weights"  # taps of models in which the source stands before the target in one sequence


class Says(Protocol):
    """What is asked of a model: to read, and to be led through a target."""

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State: ...

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step: ...


def cross_maps(model: Says, source: Tensor, target_in: Tensor) -> list[Tensor]:
    """source (1, source time), target_in (1, target time) -> for each layer (heads, target time, source time)."""
    assert isinstance(model, nn.Module), "models are modules"
    names = [name for name in taps(model) if name.endswith(CROSS)]
    names = names or [name for name in taps(model) if fnmatchcase(name, WITHIN)]
    if not names:
        raise ConfigError("this model does not attend to its source, so its words cannot be aligned")
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), record(model, *names) as seen:
            model.step(target_in, model.start(source, None, room=0))
    finally:
        model.train(was_training)
    return [seen[name][0, ..., : source.shape[1]] for name in names]


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
