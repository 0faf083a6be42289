"""Summarization as language modeling (Liu et al., 2018): a causal model reads a source and generates its tagged symbols.

T-D       five layers of full causal attention
T-DMCA    L M L M L: L attends within blocks of 16 tokens, M to all tokens with every three keys and values convolved into one
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from claims import Evidence
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
    """At most `rows` training or held-out rows; sources whose symbols sum to a multiple of ten are held out."""
    samples = 20 * rows if held_out else 2 * rows
    lengths = torch.randint(SHORTEST, LONGEST + 1, (samples, 1), generator=draws)
    places = torch.arange(LONGEST + 1)
    symbols = torch.randint(FIRST, VOCAB, (samples, LONGEST + 1), generator=draws)
    symbols = symbols.where(places < lengths, PAD).where(places != lengths, END)
    order = torch.rand(samples, LONGEST + 1, generator=draws).where(places < lengths, 2.0)
    chosen = torch.zeros_like(symbols, dtype=torch.bool).scatter(1, order.argsort(1)[:, :TAGS], True)
    moved = places + chosen.cumsum(1)  # (drawn, LONGEST + 1): each tag is inserted before its symbol
    source = torch.full((samples, LONGEST + TAGS + 1), PAD).scatter(1, moved, symbols)
    source[chosen.nonzero()[:, 0], moved[chosen] - 1] = TAG
    target = functional.pad(symbols[chosen].view(samples, TAGS), (0, 1), value=END)
    selected = (((symbols - FIRST).where(symbols >= FIRST, 0).sum(1) % 10 == 0) == held_out).nonzero()[:rows, 0]
    return Tagged(source[selected], target[selected])


def picks(*, local: bool, steps: int, test_rows: int = 500) -> float:
    """The fraction of held-out sources with an exact summary by greedy search."""
    torch.manual_seed(1)
    draws, sizes = torch.Generator().manual_seed(1), {"dim": 64, "layers": 5, "heads": 4, "position": "rotary", "dropout": 0.0}
    blocks = {"reach": LMLML, "block": 16} if local else {}
    model = GPT(GPTConfig.model_validate(sizes | blocks), VOCAB, VOCAB)

    def loss() -> Tensor:
        source, target = tagged(64, draws, held_out=False)
        target_in = functional.pad(target[:, :-1], (1, 0), value=START)
        logits = model.project(model.step(target_in, model.start(source, source != PAD, room=0)).hidden)
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    learn(model.parameters(), loss, steps=steps, rate=3e-3)
    model.eval()
    with torch.inference_mode():
        source, target = tagged(test_rows, draws, held_out=True)
        room = torch.full((len(source),), TAGS + 2)
        state = model.start(source, source != PAD, room=TAGS + 2)
        group = SourceBatch(state, room, list(range(len(source))), [[]] * len(source))
        found = search_batch(step_function(model), group, SearchConfig(method="greedy"), start=START, end=END)
    right: list[bool] = [best.tokens == row[:-1] for (best, *_), row in zip(found, target.tolist(), strict=True)]
    return sum(right) / len(right)


def summary(folder: Path) -> Evidence:
    shares = {name: picks(local=local, steps=STEPS) for name, local in (("full", False), ("L M L M L", True))}
    figures = {f"exact, {name}": f"{share:.1%}" for name, share in shares.items()}
    symbols = f"{SHORTEST} to {LONGEST} of {VOCAB - FIRST}, {TAGS} tagged"
    return Evidence(figures | {"symbols": symbols, "steps": f"{STEPS}"}, min(shares.values()) >= 0.95)
