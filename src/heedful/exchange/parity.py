"""Whether an exported model says what the model said: the same tokens forced, and the same sentences translated by both."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from heedful.errors import HeedfulError
from heedful.search import SearchConfig
from heedful.tasks.batches import collate
from heedful.tasks.translate import System, translate

ALLOWED = 1e-3  # of a logit; what differs by more is another model
FORCED = 8  # sentences at a time


class Parity(NamedTuple):
    logits: float  # the largest difference of any
    tokens: int  # for which all logits were compared
    sentences: int  # that both translated
    same: int  # and how many came out alike
    seconds: float  # of the exported model, for those sentences
    seconds_before: float


def compare(
    system: System, exported: Any, sources: Sequence[str], targets: Sequence[str], search: SearchConfig, threads: int
) -> Parity:
    """One model in torch and the same elsewhere, on sentences with their translations; both take so many threads."""
    other = replace(system, models=[exported], engines={})
    logits, tokens = 0.0, 0
    for begin in range(0, len(sources), FORCED):
        chosen = slice(begin, begin + FORCED)
        difference, count = forced(system, other, sources[chosen], targets[chosen])
        logits, tokens = max(logits, difference), tokens + count
    if not logits <= ALLOWED:
        raise HeedfulError(
            f"what was exported says something else: a logit differs by {logits:.2g}, expected at most {ALLOWED:g}",
            hint="please report this, with the config of the run",
        )
    said, seconds = timed(other, sources, search)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        known, seconds_before = timed(system, sources, search)
    finally:
        torch.set_num_threads(before)
    same = sum(one == two for one, two in zip(said, known, strict=True))
    return Parity(logits, tokens, len(sources), same, seconds, seconds_before)


@torch.inference_mode()
def forced(system: System, other: System, sources: Sequence[str], targets: Sequence[str]) -> tuple[float, int]:
    """The largest difference of a logit over the real tokens of these pairs, and how many those are."""
    read = [system.source_tokenizer.encode(text)[: system.max_length] for text in sources]
    said = [system.target_tokenizer.encode(text)[: system.max_length] for text in targets]
    batch = collate(read, said, system.source_tokenizer.specials, system.target_tokenizer.specials)
    answers = []
    for model in (system.models[0], other.models[0]):
        step = model.step(batch.target_in, model.start(batch.source, batch.source_mask, room=0))
        answers.append(model.project(step.hidden))
    real = torch.arange(batch.target_in.shape[1])[None] <= torch.tensor([len(row) for row in said])[:, None]
    return float((answers[0] - answers[1]).abs().amax(-1)[real].max()), int(real.sum())


def timed(system: System, sources: Sequence[str], search: SearchConfig) -> tuple[list[str], float]:
    began = time.perf_counter()
    said = [one.text for one in translate(system, sources, search)]
    return said, time.perf_counter() - began
