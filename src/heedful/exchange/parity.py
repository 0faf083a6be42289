"""Compare an exported model with the original: logits with teacher forcing, and translations of the same sentences."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from heedful.errors import HeedfulError
from heedful.nn.model import SequenceModel
from heedful.search import SearchConfig
from heedful.tasks.batches import collate
from heedful.tasks.system import System
from heedful.tasks.translation.translate import translate

MAX_DIFFERENCE = 1e-3  # of a logit
BATCH = 8  # sentences at a time


class Parity(NamedTuple):
    logits: float  # the largest difference
    tokens: int  # number of positions whose logits were compared
    sentences: int  # number of sentences translated by both
    same: int  # number of identical translations
    seconds: float  # translation time of the exported model
    seconds_before: float  # of the original


def compare(
    system: System, exported: SequenceModel, sources: Sequence[str], targets: Sequence[str], search: SearchConfig, threads: int
) -> Parity:
    """Compare a model in torch with its export on sentences and their references, both with `threads` threads."""
    other = replace(system, models=[exported], engines={})
    logits, tokens = 0.0, 0
    for begin in range(0, len(sources), BATCH):
        chosen = slice(begin, begin + BATCH)
        difference, count = compare_logits(system, other, sources[chosen], targets[chosen])
        logits, tokens = max(logits, difference), tokens + count
    if not logits <= MAX_DIFFERENCE:
        raise HeedfulError(
            f"the exported model differs from the original by {logits:.2g} in a logit; expected at most {MAX_DIFFERENCE:g}",
            hint="please report this as a bug, with the config of the run",
        )
    texts, seconds = translate_timed(other, sources, search)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        expected, seconds_before = translate_timed(system, sources, search)
    finally:
        torch.set_num_threads(before)
    same = sum(text == original for text, original in zip(texts, expected, strict=True))
    return Parity(logits, tokens, len(sources), same, seconds, seconds_before)


@torch.inference_mode()
def compare_logits(system: System, other: System, sources: Sequence[str], targets: Sequence[str]) -> tuple[float, int]:
    """Return the largest difference of a logit over the real tokens of these pairs, and the number of these tokens."""
    source_ids = [system.source_tokenizer.encode(text)[: system.max_length] for text in sources]
    target_ids = [system.target_tokenizer.encode(text)[: system.max_length] for text in targets]
    batch = collate(source_ids, target_ids, system.source_tokenizer.specials, system.target_tokenizer.specials)
    logits = []
    for model in (system.models[0], other.models[0]):
        logits.append(model.forced_logits(batch.source, batch.source_mask, batch.target_in))
    real = torch.arange(batch.target_in.shape[1])[None] <= torch.tensor([len(row) for row in target_ids])[:, None]
    return float((logits[0] - logits[1]).abs().amax(-1)[real].max()), int(real.sum())


def translate_timed(system: System, sources: Sequence[str], search: SearchConfig) -> tuple[list[str], float]:
    start = time.perf_counter()
    texts = [translation.text for translation in translate(system, sources, search)]
    return texts, time.perf_counter() - start
