"""Scores of translations: BLEU, chrF and TER as sacreBLEU computes them, GLEU, exact match, perplexity.

    METRICS["bleu"](hypotheses, references, bootstrap=1000) -> Score(name, value, low, high, signature)

A score carries the signature under which others can repeat it. BLEU, chrF, TER, GLEU and exact match run from
0 to 100; lower is better for TER only. With `bootstrap` resamples of the test set, low and high enclose 95 per cent of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER

from heedful.errors import ConfigError, DataError, lookup
from heedful.evaluation.gleu import ORDER, gleu
from heedful.evaluation.resampling import Statistics, bootstrap_sums, interval

SEED = 12345  # sacreBLEU's own
FEWEST = 40  # resamples from which the outer fortieths can be cut off


@dataclass(frozen=True, slots=True)
class Score:
    name: str
    value: float
    low: float | None
    high: float | None
    signature: str


@dataclass(frozen=True, slots=True)
class Options:
    """How text is read; None leaves a choice to the metric's own standard (13a for BLEU, lower case for TER)."""

    lowercase: bool | None = None
    tokenize: str | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """A corpus metric; calling it gives the Score, `statistics` gives what significance tests resample."""

    name: str
    statistics: Callable[[Sequence[str], Sequence[str], Options], Statistics]
    higher_is_better: bool = True

    def __call__(
        self,
        hypotheses: Sequence[str],
        references: Sequence[str],
        *,
        lowercase: bool | None = None,
        tokenize: str | None = None,
        bootstrap: int = 0,
        seed: int = SEED,
    ) -> Score:
        """Score line i of the hypotheses against line i of the references."""
        check_counts(hypotheses=hypotheses, references=references)
        return score(self.name, self.statistics(hypotheses, references, Options(lowercase, tokenize)), bootstrap, seed)


def score(name: str, statistics: Statistics, bootstrap: int, seed: int) -> Score:
    """The value of the corpus and, where resamples are asked for, its interval."""
    if bootstrap == 0:
        return Score(name, statistics.value(), None, None, statistics.signature)
    if bootstrap < FEWEST:
        raise ConfigError(
            f"bootstrap must be 0 (no interval) or at least {FEWEST} resamples, but is {bootstrap}",
            hint="1000 is usual",
        )
    low, high = interval(statistics.values(bootstrap_sums(statistics.rows, bootstrap, seed)))
    return Score(name, statistics.value(), low, high, resampled_signature(statistics.signature, bootstrap, seed))


def resampled_signature(signature: str, bootstrap: int, seed: int) -> str:
    """The signature with the resamples and the seed where sacreBLEU writes them, after the first field."""
    first, rest = signature.split("|", 1)
    return f"{first}|bs:{bootstrap}|seed:{seed}|{rest}"


def check_counts(**sides: Sequence[object]) -> None:
    """Every side has the same number of lines, and there is at least one."""
    said = ", ".join(f"{len(lines)} {side}" for side, lines in sides.items())
    counts = {len(lines) for lines in sides.values()}
    if len(counts) > 1:
        raise DataError(f"cannot score {said}: line i of each must belong together, so the counts must be equal")
    if counts == {0}:
        raise DataError(f"nothing to score: {said}")


def perplexity(total: float, count: int) -> Score:
    """exp(total / count): from the summed negative log-probability in nats and the number of predicted tokens."""
    if count < 1:
        raise DataError(f"nothing to score: perplexity needs at least one predicted token, but the count is {count}")
    try:
        value = math.exp(total / count)
    except OverflowError:
        value = math.inf
    return Score("perplexity", value, None, None, f"unit:token|count:{count}")


def _bleu(hypotheses: Sequence[str], references: Sequence[str], options: Options) -> Statistics:
    tokenize = BLEU.TOKENIZER_DEFAULT if options.tokenize is None else options.tokenize
    lookup(tokenize, dict.fromkeys(BLEU.TOKENIZERS), "BLEU tokenizer")
    try:
        # force: do not warn on stderr about lines that end in " ."; the score is the same
        metric = BLEU(lowercase=bool(options.lowercase), tokenize=tokenize, force=True)
    except (ImportError, OSError, RuntimeError) as error:  # a missing extra of sacreBLEU, or no network for its model
        raise ConfigError(
            f"BLEU tokenizer {tokenize!r} cannot be used here: {error}",
            hint="13a, intl, char, zh and none need nothing besides",
        ) from error
    return _gather(metric, hypotheses, references)


def _chrf(hypotheses: Sequence[str], references: Sequence[str], options: Options) -> Statistics:
    _refuse_tokenizer("chrf", options)
    return _gather(CHRF(lowercase=bool(options.lowercase)), hypotheses, references)


def _ter(hypotheses: Sequence[str], references: Sequence[str], options: Options) -> Statistics:
    _refuse_tokenizer("ter", options)
    return _gather(TER(case_sensitive=options.lowercase is False), hypotheses, references)


def _exact_match(hypotheses: Sequence[str], references: Sequence[str], options: Options) -> Statistics:
    """The share of lines equal to their reference, white space around them aside."""
    _refuse_tokenizer("exact_match", options)

    def plain(line: str) -> str:
        return line.strip().lower() if options.lowercase else line.strip()

    rows = [(plain(line) == plain(reference), 1) for line, reference in zip(hypotheses, references, strict=True)]
    return Statistics(
        rows=np.array(rows, dtype=np.float64),  # (sentences, 2): equal, counted
        formula=lambda sums: 100 * sums[0] / sums[1],
        signature=f"nrefs:1|case:{'lc' if options.lowercase else 'mixed'}|space:stripped",
    )


def _gleu(hypotheses: Sequence[str], references: Sequence[str], options: Options) -> Statistics:
    """The mean over sentences, whose words stand between white space."""
    _refuse_tokenizer("gleu", options)

    def words(line: str) -> list[str]:
        return (line.lower() if options.lowercase else line).split()

    rows = [(gleu(words(line), words(reference)), 1) for line, reference in zip(hypotheses, references, strict=True)]
    return Statistics(
        rows=np.array(rows, dtype=np.float64),  # (sentences, 2): of the sentence, counted
        formula=lambda sums: 100 * sums[0] / sums[1],
        signature=f"nrefs:1|case:{'lc' if options.lowercase else 'mixed'}|tok:space|order:{ORDER}|mean:sentences",
    )


def _gather(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
    """What a sacreBLEU metric counts in each sentence, and its formula over their sum."""
    return Statistics(
        rows=np.array(metric._extract_corpus_statistics(hypotheses, [references]), dtype=np.float64),
        formula=lambda sums: float(metric._compute_score_from_stats(sums).score),
        signature=str(metric.get_signature()),
    )


def _refuse_tokenizer(name: str, options: Options) -> None:
    if options.tokenize is not None:
        raise ConfigError(
            f"tokenize={options.tokenize!r} has no effect on {name}, which has no choice of tokenizer",
            hint="leave tokenize out, or score with bleu",
        )


bleu = Metric("bleu", _bleu)
chrf = Metric("chrf", _chrf)
ter = Metric("ter", _ter, higher_is_better=False)
exact_match = Metric("exact_match", _exact_match)

METRICS = {
    "bleu": bleu,
    "chrf": chrf,
    "ter": ter,
    "gleu": Metric("gleu", _gleu),
    "exact_match": exact_match,
}
