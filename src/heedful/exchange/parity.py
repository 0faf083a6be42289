"""Compare an exported model with the original: logits with teacher forcing, and translations of the same sentences."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import torch

from heedful.errors import HeedfulError
from heedful.nn.model import SequenceModel
from heedful.tasks.batches import Batch
from heedful.tasks.system import System

MAX_DIFFERENCE = 1e-3  # of a logit


class Parity(NamedTuple):
    logits: float  # the largest difference
    tokens: int  # number of positions whose logits were compared
    sentences: int  # number of sentences translated by both
    same: int  # number of identical translations
    seconds: float  # translation time of the exported model
    seconds_before: float  # of the original


def compare(
    system: System, exported: SequenceModel, batches: Iterable[Batch], generate: Callable[[System], list[str]], threads: int
) -> Parity:
    """Compare a model in torch with its export, both with `threads` threads, on batches of sources and references; generate:
    the translations, or captions, of the same sources."""
    other = replace(system, models=[exported], engines={})
    logits, tokens = 0.0, 0
    for batch in batches:
        difference, count = compare_logits(system, other, batch)
        logits, tokens = max(logits, difference), tokens + count
    if not logits <= MAX_DIFFERENCE:
        raise HeedfulError(
            f"the exported model differs from the original by {logits:.2g} in a logit; expected at most {MAX_DIFFERENCE:g}",
            hint="please report this as a bug, with the config of the run",
        )
    texts, seconds = timed(generate, other)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        expected, seconds_before = timed(generate, system)
    finally:
        torch.set_num_threads(before)
    same = sum(text == original for text, original in zip(texts, expected, strict=True))
    return Parity(logits, tokens, len(texts), same, seconds, seconds_before)


@torch.inference_mode()
def compare_logits(system: System, other: System, batch: Batch) -> tuple[float, int]:
    """Return the largest difference of a logit over the real tokens of a batch, and the number of these tokens."""
    logits = []
    for model in (system.models[0], other.models[0]):
        logits.append(model.forced_logits(batch.source, batch.source_mask, batch.target_in))
    real = batch.target_out != system.target_tokenizer.specials.pad
    return float((logits[0] - logits[1]).abs().amax(-1)[real].max()), int(real.sum())


def timed(generate: Callable[[System], list[str]], system: System) -> tuple[list[str], float]:
    start = time.perf_counter()
    return generate(system), time.perf_counter() - start
