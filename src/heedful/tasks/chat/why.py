"""What a reply depends on: attention over the turns of the history and their words.

    weight of a word = mean over the tokens of the reply of the attention to its tokens, over all layers and heads
    weight of a turn = sum over its words

both as shares of the attention to the words of the history. Words are shown with their share of the turn times the square
root of the share of the turn, so that words of unimportant turns fade (as in the pictures of Yang et al., 2016).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from heedful.nn.source_attention import mean_source_weights
from heedful.tasks.system import System, collate_one

BAR = 20  # characters of a weight of 1
SHOWN = 8  # words of a turn that are listed


class WordWeight(NamedTuple):
    word: str
    weight: float  # share of the whole history


class TurnWeight(NamedTuple):
    text: str
    weight: float  # share of the whole history
    words: list[WordWeight]

    def shown(self, word: WordWeight) -> float:
        """The share of the turn, times the square root of the turn's."""
        return word.weight / max(self.weight, 1e-9) * math.sqrt(self.weight)


class AttentionByTurn(NamedTuple):
    """The attention of a reply to the turns before it, oldest first."""

    reply: str
    turns: list[TurnWeight]

    def text(self) -> str:
        lines = []
        for turn in self.turns:
            bar = "█" * round(BAR * turn.weight)
            best = sorted(turn.words, key=lambda word: -word.weight)[:SHOWN]
            words = ", ".join(f"{word.word} {turn.shown(word):.2f}" for word in best)
            lines.append(f"{turn.weight:6.1%} {bar:<{BAR}}  {turn.text}\n{'':{BAR + 9}}{words}")
        return "\n".join([*lines, f"reply: {self.reply}"])

    def to_dict(self) -> dict[str, Any]:
        turns = [
            {
                "text": turn.text,
                "weight": turn.weight,
                "words": [word._asdict() | {"shade": turn.shown(word)} for word in turn.words],
            }
            for turn in self.turns
        ]
        return {"reply": self.reply, "turns": turns}


def attention_by_turn(system: System, history: Sequence[str], source: str, separator: str, reply: str) -> AttentionByTurn:
    """history: the turns, as they are shown; source: the same as one text, with the separator between turns."""
    tokenizer = system.source_tokenizer
    ids = tokenizer.encode(source)
    (mark,) = tokenizer.encode(separator)
    tensors = collate_one(system, ids, system.target_tokenizer.encode(reply))
    weights = mean_source_weights(system.models[0], *tensors)[:, : len(ids)].float().mean(0)  # (source tokens,)
    is_word = torch.tensor([token != mark for token in ids])
    weights = torch.where(is_word, weights.cpu(), 0.0)
    weights = weights / weights.sum().clamp(min=1e-9)
    ends = [at for at, token in enumerate(ids) if token == mark]
    parts = list(zip([0, *(end + 1 for end in ends)], [*ends, len(ids)], strict=True))[: len(history)]
    kept = list(history)[-len(parts) :]  # older turns were cut off
    turns = []
    for text, (start, end) in zip(kept, parts, strict=True):
        words = word_weights(system, ids[start:end], weights[start:end].tolist())
        turns.append(TurnWeight(text, float(weights[start:end].sum()), words))
    return AttentionByTurn(reply, turns)


def word_weights(system: System, ids: list[int], weights: list[float]) -> list[WordWeight]:
    """The sum of the weights of each word's tokens."""
    tokenizer = system.source_tokenizer
    words = tokenizer.decode(ids).split()
    totals = [0.0] * len(words)
    for at, weight in zip(tokenizer.word_of(ids), weights, strict=True):
        if 0 <= at < len(totals):
            totals[at] += weight
    return [WordWeight(word, total) for word, total in zip(words, totals, strict=True)]
