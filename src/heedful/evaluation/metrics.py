"""Translation metrics: BLEU, chrF and TER by sacreBLEU, GLEU, exact match, perplexity.

    METRICS["bleu"](hypotheses, references, bootstrap=1000) -> Score(name, value, low, high, signature)

A score includes its signature, for reproducibility. BLEU, chrF, TER, GLEU and exact match range from 0 to 100;
lower is better for TER only. With `bootstrap` resamples of the test set, (low, high) is the 95% interval."""

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
MIN_RESAMPLES = 40  # the fewest from which 1/40 can be cut off at each end


@dataclass(frozen=True, slots=True)
class Score:
    name: str
    value: float
    low: float | None
    high: float | None
    signature: str


@dataclass(frozen=True, slots=True)
class Options:
    """Text preprocessing; None: the metric's default (13a for BLEU, lowercase for TER)."""

    lowercase: bool | None = None
    tokenize: str | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """A corpus metric; calling it returns the Score, `statistics` returns what significance tests resample.

    >>> score = heedful.bleu(["a cat sat on the mat"], ["the cat sat on the mat"])
    >>> round(score.value, 2), score.signature.split("|")[0]
    (75.98, 'nrefs:1')
    """

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
    """Return the corpus score and, if bootstrap > 0, its confidence interval."""
    if bootstrap == 0:
        return Score(name, statistics.value(), None, None, statistics.signature)
    if bootstrap < MIN_RESAMPLES:
        raise ConfigError(
            f"bootstrap must be 0 (no interval) or at least {MIN_RESAMPLES} resamples, but is {bootstrap}",
            hint="use 1000, the usual number",
        )
    low, high = interval(statistics.bootstrap_values(bootstrap_sums(statistics.rows, bootstrap, seed)))
    return Score(name, statistics.value(), low, high, add_resamples(statistics.signature, bootstrap, seed))


def add_resamples(signature: str, bootstrap: int, seed: int) -> str:
    """Insert the number of resamples and the seed into a signature after its first field, as sacreBLEU does."""
    first, rest = signature.split("|", 1)
    return f"{first}|bs:{bootstrap}|seed:{seed}|{rest}"


def check_counts(**sides: Sequence[object]) -> None:
    """Raise unless all sides have the same number of lines, at least one."""
    given = ", ".join(f"{len(lines)} {side}" for side, lines in sides.items())
    counts = {len(lines) for lines in sides.values()}
    if len(counts) > 1:
        raise DataError(
            f"cannot score {given}: expected the same number of lines of each, with line i of each for the same sentence",
            hint="look for a missing, extra or split line",
        )
    if counts == {0}:
        raise DataError(f"nothing to score: {given}; expected at least one line of each")


def perplexity(total: float, count: int) -> Score:
    """Return exp(total / count), with the summed negative log-probability in nats and the number of predicted tokens."""
    if count < 1:
        raise DataError(f"nothing to score: {count} predicted tokens; perplexity requires at least one")
    try:
        value = math.exp(total / count)
    except OverflowError:
        value = math.inf
    return Score("perplexity", value, None, None, f"unit:token|count:{count}")


def _bleu(hypotheses: Sequence[str], references: Sequence[str], options: Options) -> Statistics:
    tokenize = BLEU.TOKENIZER_DEFAULT if options.tokenize is None else options.tokenize
    lookup(tokenize, dict.fromkeys(BLEU.TOKENIZERS), "BLEU tokenizer")
    try:
        # force: no warning on stderr about lines that end in " ."; the score is the same
        metric = BLEU(lowercase=bool(options.lowercase), tokenize=tokenize, force=True)
    except (ImportError, OSError, RuntimeError) as error:  # a missing extra of sacreBLEU, or no network for its model
        raise ConfigError(
            f"BLEU tokenizer {tokenize!r} is not available: {error}",
            hint="use 13a, intl, char, zh or none, which need no other package",
        ) from error
    return _sacrebleu_statistics(metric, hypotheses, references)


def _chrf(hypotheses: Sequence[str], references: Sequence[str], options: Options) -> Statistics:
    _refuse_tokenizer("chrf", options)
    return _sacrebleu_statistics(CHRF(lowercase=bool(options.lowercase)), hypotheses, references)


def _ter(hypotheses: Sequence[str], references: Sequence[str], options: Options) -> Statistics:
    _refuse_tokenizer("ter", options)
    return _sacrebleu_statistics(TER(case_sensitive=options.lowercase is False), hypotheses, references)


def _exact_match(hypotheses: Sequence[str], references: Sequence[str], options: Options) -> Statistics:
    """Exact match: the fraction of lines equal to their reference, ignoring leading and trailing white space."""
    _refuse_tokenizer("exact_match", options)

    def plain(line: str) -> str:
        return line.strip().lower() if options.lowercase else line.strip()

    rows = [(plain(line) == plain(reference), 1) for line, reference in zip(hypotheses, references, strict=True)]
    return Statistics(
        rows=np.array(rows, dtype=np.float64),  # (sentences, 2): equal, 1
        formula=lambda sums: 100 * sums[0] / sums[1],
        signature=f"nrefs:1|case:{'lc' if options.lowercase else 'mixed'}|space:stripped",
    )


def _gleu(hypotheses: Sequence[str], references: Sequence[str], options: Options) -> Statistics:
    """The mean GLEU of sentences, with words separated by white space."""
    _refuse_tokenizer("gleu", options)

    def words(line: str) -> list[str]:
        return (line.lower() if options.lowercase else line).split()

    rows = [(gleu(words(line), words(reference)), 1) for line, reference in zip(hypotheses, references, strict=True)]
    return Statistics(
        rows=np.array(rows, dtype=np.float64),  # (sentences, 2): GLEU, 1
        formula=lambda sums: 100 * sums[0] / sums[1],
        signature=f"nrefs:1|case:{'lc' if options.lowercase else 'mixed'}|tok:space|order:{ORDER}|mean:sentences",
    )


def _sacrebleu_statistics(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
    """Return the per-sentence statistics of a sacreBLEU metric, and its formula over their sum."""
    return Statistics(
        rows=np.array(metric._extract_corpus_statistics(hypotheses, [references]), dtype=np.float64),
        formula=lambda sums: float(metric._compute_score_from_stats(sums).score),
        signature=str(metric.get_signature()),
    )


def _refuse_tokenizer(name: str, options: Options) -> None:
    if options.tokenize is not None:
        raise ConfigError(
            f"tokenize={options.tokenize!r} has no effect on {name}; only bleu has this option",
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
