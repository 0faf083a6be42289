"""Evaluation: the model's log-probability of given captions, and metrics of the captions that it generates.

Validation during training and `heed evaluate` call the same function, so their scores agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from heedful.errors import DataError
from heedful.evaluation.metrics import METRICS, perplexity
from heedful.search import SearchConfig
from heedful.tasks.captioning.caption import caption_images, count_patches
from heedful.tasks.captioning.data import CaptionSet, make_batch
from heedful.tasks.system import System
from heedful.tasks.translation.evaluate import Evaluation, Scored, token_scores

CHUNK = 1024  # images that are described together


def score_captions(system: System, images: CaptionSet) -> list[Scored | None]:
    """The log-probability of the caption of each image; None if it is too long for the model."""
    tokens = system.target_tokenizer.encode_many(images.captions)
    fits = [at for at, ids in enumerate(tokens) if len(ids) <= system.max_length]
    specials, patches = system.target_tokenizer.specials, count_patches(system)

    def score(batch_of: list[int]) -> Iterator[Scored]:
        chosen = [fits[at] for at in batch_of]
        batch = make_batch(images.pixels[images.rows[chosen]], [tokens[at] for at in chosen], specials)
        scores = token_scores(system, batch).cpu().double()
        real = batch.target_out != specials.pad
        for at, total, count in zip(chosen, (scores * real).sum(-1).tolist(), real.sum(-1).tolist(), strict=True):
            if not math.isfinite(total):
                raise system.nonfinite_error(f"image {at + 1}")
            yield Scored(total, count)

    lengths = [max(len(tokens[at]) + 1, patches) for at in fits]
    found = dict(zip(fits, system.map_batches(score, lengths, system.scored_tokens), strict=True))
    return [found.get(at) for at in range(len(tokens))]


def generate_captions(system: System, images: CaptionSet, search: SearchConfig) -> list[str]:
    """The best caption of each image."""
    found = []
    for at in range(0, len(images.rows), CHUNK):
        pixels = images.pixels[images.rows[at : at + CHUNK]]
        found += [best.text for best, *_ in caption_images(system, list(np.asarray(pixels)), search, first=at)]
    return found


def evaluate(
    system: System, images: CaptionSet, search: SearchConfig, metrics: Sequence[str], limit: int = 0, bootstrap: int = 0
) -> Evaluation:
    """Loss and perplexity of the captions, and metrics of generated ones; limit: images to describe, 0: all; bootstrap:
    resamples for confidence intervals, 0: none."""
    scored = [one for one in score_captions(system, images) if one is not None]
    total, count = -sum(one.log_probability for one in scored), sum(one.tokens for one in scored)
    if count == 0:
        raise DataError(f"none of the {len(images.captions)} captions is short enough for the model to score")
    figures = {"loss": total / count, "perplexity": perplexity(total, count).value}
    shown = images.select(range(min(limit or len(images.captions), len(images.captions))))
    captions = generate_captions(system, shown, search) if metrics else []
    scores = {name: METRICS[name](captions, shown.captions, bootstrap=bootstrap) for name in metrics}
    figures |= {name: score.value for name, score in scores.items()}
    return Evaluation(figures, scores, captions, len(images.captions) - len(scored))
