"""Summarizing as going on (Liu et al., 2018): one stack of causal layers reads a source and says its tagged symbols.

T-D       five layers that see everything before them
T-DMCA    L M L M L: blocks of 16 tokens, or everything with every three keys and values convolved into one
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from claims import Found
from claims.layers import learn
from heedful.models.gpt import GPT, GPTConfig
from heedful.search import SearchConfig, SourceBatch, search_batch, step_function

PAD, START, END, TAG, FIRST, VOCAB = 0, 1, 2, 3, 4, 14
SHORTEST, LONGEST, TAGS = 4, 16, 3  # symbols of a source, and how many of them are tagged
LMLML = ("local", "compressed", "local", "compressed", "local")
STEPS = 1500


class Tagged(NamedTuple):
    source: Tensor  # (rows, LONGEST + TAGS + 1): symbols, a tag before some of them, the end, padding
    target: Tensor  # (rows, TAGS + 1): the symbols after tags, the end


def tagged(rows: int, draws: torch.Generator, *, held_out: bool) -> Tagged:
    """The sources whose symbols add up to a multiple of ten are held out: at most so many rows of one sort or the other."""
    drawn = 20 * rows if held_out else 2 * rows
    lengths = torch.randint(SHORTEST, LONGEST + 1, (drawn, 1), generator=draws)
    places = torch.arange(LONGEST + 1)
    symbols = torch.randint(FIRST, VOCAB, (drawn, LONGEST + 1), generator=draws)
    symbols = symbols.where(places < lengths, PAD).where(places != lengths, END)
    lots = torch.rand(drawn, LONGEST + 1, generator=draws).where(places < lengths, 2.0)
    chosen = torch.zeros_like(symbols, dtype=torch.bool).scatter(1, lots.argsort(1)[:, :TAGS], True)
    moved = places + chosen.cumsum(1)  # (drawn, LONGEST + 1): each tag takes a place before its symbol
    source = torch.full((drawn, LONGEST + TAGS + 1), PAD).scatter(1, moved, symbols)
    source[chosen.nonzero()[:, 0], moved[chosen] - 1] = TAG
    target = functional.pad(symbols[chosen].view(drawn, TAGS), (0, 1), value=END)
    wanted = (((symbols - FIRST).where(symbols >= FIRST, 0).sum(1) % 10 == 0) == held_out).nonzero()[:rows, 0]
    return Tagged(source[wanted], target[wanted])


def picks(*, local: bool, steps: int, judged: int = 500) -> float:
    """The share of unseen sources whose summary comes out exact, by greedy search."""
    torch.manual_seed(1)
    draws, sizes = torch.Generator().manual_seed(1), {"dim": 64, "layers": 5, "heads": 4, "position": "rotary", "dropout": 0.0}
    blocks = {"reach": LMLML, "block": 16} if local else {}
    model = GPT(GPTConfig.model_validate(sizes | blocks), VOCAB, VOCAB)

    def loss() -> Tensor:
        source, target = tagged(64, draws, held_out=False)
        given = functional.pad(target[:, :-1], (1, 0), value=START)
        logits = model.project(model.step(given, model.start(source, source != PAD, room=0)).hidden)
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    learn(model.parameters(), loss, steps=steps, rate=3e-3)
    model.eval()
    with torch.inference_mode():
        source, target = tagged(judged, draws, held_out=True)
        room = torch.full((len(source),), TAGS + 2)
        state = model.start(source, source != PAD, room=TAGS + 2)
        group = SourceBatch(state, room, list(range(len(source))), [[]] * len(source))
        found = search_batch(step_function(model), group, SearchConfig(method="greedy"), start=START, end=END)
    right: list[bool] = [best.tokens == row[:-1] for (best, *_), row in zip(found, target.tolist(), strict=True)]
    return sum(right) / len(right)


def summary(folder: Path) -> Found:
    shares = {name: picks(local=local, steps=STEPS) for name, local in (("full", False), ("L M L M L", True))}
    figures = {f"exact, {name}": f"{share:.1%}" for name, share in shares.items()}
    symbols = f"{SHORTEST} to {LONGEST} of {VOCAB - FIRST}, {TAGS} tagged"
    return Found(figures | {"symbols": symbols, "steps": f"{STEPS}"}, min(shares.values()) >= 0.95)
