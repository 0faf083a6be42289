"""Evaluation: the model's log-probability of given translations, and metrics of the model's own translations.

Validation during training and `heed evaluate` call the same function, so their scores agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.input_lines import MAX_CHARACTERS
from heedful.errors import DataError
from heedful.evaluation.metrics import METRICS, Score, perplexity
from heedful.search import SearchConfig
from heedful.tasks.batches import Batch, collate
from heedful.tasks.system import System
from heedful.tasks.translation.data import Examples
from heedful.tasks.translation.translate import translate
from heedful.text.tokenizer import Tokenizer


class Scored(NamedTuple):
    log_probability: float  # of the target and the end token
    tokens: int  # including the end token


class Evaluation(NamedTuple):
    figures: dict[str, float]  # loss, perplexity and the value of each metric
    scores: dict[str, Score]
    translations: list[str]
    left_out: int  # pairs too long to be scored, left out of loss and perplexity; they are still translated


class MetricOptions(NamedTuple):
    """Options of the metrics."""

    lowercase: bool | None = None
    tokenize: str | None = None  # of BLEU
    bootstrap: int = 0  # resamples for the confidence interval; 0: none


@torch.inference_mode()
def token_scores(system: System, batch: Batch) -> Tensor:
    """log p of each target token, (rows, target time); for an ensemble, of the mean probability."""
    batch = batch.to(system.device)
    target = batch.target_out[..., None]
    members = [
        model.forced_logits(batch.source, batch.source_mask, batch.target_in)
        .float()
        .log_softmax(-1)
        .gather(-1, target)
        .squeeze(-1)
        for model in system.models
    ]
    return torch.stack(members).logsumexp(0) - math.log(len(members))


def score_pairs(system: System, sources: Sequence[str], targets: Sequence[str]) -> list[Scored | None]:
    """The log-probability of each target given its source; None if a side is too long for the model."""
    if len(sources) != len(targets):
        raise DataError(f"{len(sources)} sources and {len(targets)} targets were given; expected the same number of each")
    sizes = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    source_ids = encode_bounded(system.source_tokenizer, sources)
    target_ids = encode_bounded(system.target_tokenizer, targets)
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(source_ids, target_ids, strict=True)]
    fits = [
        i
        for i, (size, length) in enumerate(zip(sizes, lengths, strict=True))
        if size <= MAX_CHARACTERS and length <= system.max_length + 1
    ]
    specials = system.source_tokenizer.specials, system.target_tokenizer.specials

    def score(batch_of: list[int]) -> Iterator[Scored]:
        chosen = [fits[at] for at in batch_of]
        batch = collate([source_ids[i] for i in chosen], [target_ids[i] for i in chosen], *specials)
        scores = token_scores(system, batch).cpu().double()
        real = batch.target_out != specials[1].pad
        for i, total, count in zip(chosen, (scores * real).sum(-1).tolist(), real.sum(-1).tolist(), strict=True):
            if not math.isfinite(total):
                raise system.nonfinite_error(f"pair {i + 1}")
            yield Scored(total, count)

    found = dict(zip(fits, system.map_batches(score, [lengths[i] for i in fits], system.scored_tokens), strict=True))
    return [found.get(i) for i in range(len(sources))]


def encode_bounded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Encode texts; one of more than MAX_CHARACTERS, too long for any model, is not tokenized and has no ids."""
    return tokenizer.encode_many([text if len(text) <= MAX_CHARACTERS else "" for text in texts])


def evaluate(
    system: System,
    examples: Examples,
    search: SearchConfig,
    metrics: Sequence[str],
    limit: int = 0,
    options: MetricOptions | None = None,
) -> Evaluation:
    """Loss and perplexity of the references, and metrics of the translations; limit: sources to translate, 0: all."""
    options = options or MetricOptions()
    scored = [pair for pair in score_pairs(system, examples.sources, examples.references) if pair is not None]
    total, count = -sum(pair.log_probability for pair in scored), sum(pair.tokens for pair in scored)
    if count == 0:
        raise DataError(f"none of the {len(examples.sources)} pairs is short enough for the model to score")
    figures = {"loss": total / count, "perplexity": perplexity(total, count).value}
    sources = examples.sources[: limit or None]
    translations = [translation.text for translation in translate(system, sources, search)] if metrics else []
    scores = {
        name: METRICS[name](
            translations,
            examples.references[: limit or None],
            lowercase=options.lowercase,
            tokenize=options.tokenize if name == "bleu" else None,
            bootstrap=options.bootstrap,
        )
        for name in metrics
    }
    figures |= {name: score.value for name, score in scores.items()}
    return Evaluation(figures, scores, translations, len(examples.sources) - len(scored))
