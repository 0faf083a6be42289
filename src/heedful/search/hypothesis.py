"""Hypotheses, length penalties and the options of search.

    score = log_probability / penalty(length)      with search.coverage: + coverage cp (inspection/coverage.py)

Both the log-probability and the length include the end token. A penalty that grows with length favors longer sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from heedful.config.base import (
    Config,
    NonNegativeNumber,
    PathName,
    Problem,
    Seed,
    Size,
    ZeroOrSize,
    ZeroOrSmallCount,
    refuse,
    unused,
)
from heedful.config.bounds import MAX_BEAM


class Hypothesis(NamedTuple):
    tokens: list[int]  # without start and end tokens
    score: float
    log_probability: float


class Sampling(NamedTuple):
    """How the samples of one source are drawn. Its random numbers are a function of (seed, stream)."""

    temperature: float  # 0: always the most probable token
    top_k: int  # 0: all tokens
    top_p: float
    seed: int
    stream: int


Penalty = Callable[[int], float]


def wu(alpha: float) -> Penalty:
    """((5 + n) / 6) ^ alpha (Wu et al., 2016)."""
    return lambda length: float(((5 + length) / 6) ** alpha)


def power(alpha: float) -> Penalty:
    """n ^ alpha; with alpha 1 the score is the mean log-probability per token."""
    return lambda length: float(length**alpha)


PENALTIES: dict[str, Callable[[float], Penalty]] = {"wu": wu, "power": power}


# Options that only one method has.
OPTIONS_OF = {"beam": ("beam", "penalty", "length_penalty", "coverage"), "sample": ("temperature", "top_k", "top_p", "seed")}

# With an exponent of 10 the penalty of the longest hypothesis is still far from overflowing.
Exponent = Annotated[float, Field(ge=0.0, le=10.0)]
BeamSize = Annotated[int, Field(ge=1, le=MAX_BEAM)]
Temperature = Annotated[float, Field(ge=0.0, le=1000.0)]
TopP = Annotated[float, Field(ge=1e-6, le=1.0)]  # less would be 0 in float32 and leave no token
LOWEST_TEMPERATURE = 1e-6  # dividing by less could overflow


class SearchConfig(Config):
    """Beam search as in the paper: beam 4, alpha 0.6, at most 50 tokens more than the source.

    >>> heedful.SearchConfig(beam=8, length_penalty=1.0).rows
    8
    """

    method: Literal["beam", "greedy", "sample"] = "beam"
    """Beam search, greedy search or sampling."""
    beam: BeamSize = 4
    """Beam size: hypotheses kept at every step."""
    n_best: BeamSize = 1
    """Number of hypotheses (or samples) to return for each source."""
    penalty: Literal["wu", "power"] = "wu"
    """Length penalty: ((5 + n) / 6)^alpha or n^alpha."""
    length_penalty: Exponent = 0.6
    """Exponent alpha of the length penalty; 0: none."""
    coverage: NonNegativeNumber = 0.0
    """Weight of the coverage penalty for source tokens without attention; 0: none."""
    min_length: ZeroOrSize = 0
    """Minimum tokens of a hypothesis, without the end token."""
    max_length: Size = 256
    """Maximum tokens of a hypothesis, without the end token."""
    max_extra: ZeroOrSize = 50
    """Maximum tokens of a hypothesis beyond the length of its source."""
    no_repeat: ZeroOrSmallCount = 0
    """Forbid repeated n-grams of this length; 0: none."""
    temperature: Temperature = 1.0
    """Sampling temperature; 0: always the most probable token."""
    top_k: ZeroOrSize = 0
    """Sample from the k most probable tokens; 0: from all."""
    top_p: TopP = 1.0
    """Sample from the most probable tokens with this total probability."""
    seed: Seed = 0
    """Seed of sampling."""
    replace_unknown: bool = False
    """Replace unknown words by the source word with most attention."""
    dictionary: PathName | None = None
    """File of tab-separated source words and translations for replace_unknown."""

    @property
    def rows(self) -> int:
        """Rows of the batch for each source."""
        return {"beam": self.beam, "greedy": 1, "sample": self.n_best}[self.method]

    @property
    def truncates(self) -> bool:
        """Whether samples are drawn from the most probable tokens only, which must be sorted for that."""
        return self.top_k > 0 or self.top_p < 1

    def sampling(self, stream: int) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p, self.seed, stream)

    @property
    def length_penalty_fn(self) -> Penalty:
        """The length penalty as a function of the length; constant 1 without beam search."""
        return PENALTIES[self.penalty](self.length_penalty if self.method == "beam" else 0.0)

    @model_validator(mode="after")
    def _fits_together(self) -> SearchConfig:
        others = [name for method, names in OPTIONS_OF.items() if method != self.method for name in names]
        no_effect = dict.fromkeys(others, f"search.method is {self.method!r}")
        if not self.replace_unknown:
            no_effect["dictionary"] = "search.replace_unknown is false"
        problems = unused(self, no_effect)
        if self.method == "beam" and self.n_best > self.beam:
            problems.append(Problem("n_best", f"given {self.n_best}, expected at most the beam, which is {self.beam}"))
        if self.method == "beam" and self.beam == 1 and self.coverage:
            problems.append(Problem("coverage", f"given {self.coverage}, but a beam of 1 has one hypothesis"))
        if self.method == "greedy" and self.n_best > 1:
            problems.append(Problem("n_best", f"given {self.n_best}, but greedy search returns one hypothesis"))
        if self.min_length > self.max_length:
            problems.append(Problem("min_length", f"given {self.min_length}, expected at most max_length, {self.max_length}"))
        if 0 < self.temperature < LOWEST_TEMPERATURE:
            sentence = f"given {self.temperature}, expected 0 or a number from {LOWEST_TEMPERATURE} to 1,000"
            problems.append(Problem("temperature", sentence))
        refuse(problems)
        return self
