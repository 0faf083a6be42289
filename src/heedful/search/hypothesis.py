"""What search finds, how long it may be, and how length is judged.

    score = log_probability / penalty(length)      and, where it is asked for, + coverage cp (inspection/coverage.py)

Both the log-probability and the length count the end token. A penalty that grows with length favours longer sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from heedful.schema import Config, Problem, refuse, unused


class Hypothesis(NamedTuple):
    tokens: list[int]  # without start and end
    score: float
    log_probability: float


Penalty = Callable[[int], float]


def wu(alpha: float) -> Penalty:
    """((5 + n) / 6) ^ alpha (Wu et al., 2016)."""
    return lambda length: float(((5 + length) / 6) ** alpha)


def power(alpha: float) -> Penalty:
    """n ^ alpha; with alpha 1 the score is the mean log-probability of a token."""
    return lambda length: float(length**alpha)


PENALTIES: dict[str, Callable[[float], Penalty]] = {"wu": wu, "power": power}


OPTIONS_OF = {"beam": ("beam", "penalty", "length_penalty", "coverage"), "sample": ("temperature", "top_k", "top_p", "seed")}


class SearchConfig(Config):
    """Beam search as in the paper: beam 4, alpha 0.6, at most 50 tokens more than the source has."""

    method: Literal["beam", "greedy", "sample"] = "beam"
    beam: PositiveInt = 4
    n_best: PositiveInt = 1  # hypotheses (or samples) to return for each source
    penalty: Literal["wu", "power"] = "wu"
    length_penalty: NonNegativeFloat = 0.6  # alpha; 0: the plain log-probability
    coverage: NonNegativeFloat = 0.0  # beta: what finished hypotheses lose for source tokens not looked at; 0: nothing
    min_length: NonNegativeInt = 0  # tokens, the end not counted
    max_length: PositiveInt = 256  # tokens, the end not counted
    max_extra: NonNegativeInt = 50  # at most this many more than the source has
    no_repeat: NonNegativeInt = 0  # no n-gram of this length twice; 0: anything goes
    temperature: NonNegativeFloat = 1.0  # 0: always the likeliest
    top_k: NonNegativeInt = 0  # draw among the k likeliest; 0: among all
    top_p: PositiveFloat = 1.0  # draw among the likeliest that together have this probability
    seed: NonNegativeInt = 0  # of the draws
    replace_unknown: bool = False  # put the source word that was looked at in place of an unknown word
    dictionary: str | None = None  # a file of source TAB translation: what replace_unknown puts for words that it has

    @property
    def rows(self) -> int:
        """How many rows a source has while it is searched."""
        return {"beam": self.beam, "greedy": 1, "sample": self.n_best}[self.method]

    @property
    def judge(self) -> Penalty:
        return PENALTIES[self.penalty](self.length_penalty if self.method == "beam" else 0.0)

    @model_validator(mode="after")
    def _fits_together(self) -> SearchConfig:
        others = [name for method, names in OPTIONS_OF.items() if method != self.method for name in names]
        idle = dict.fromkeys(others, f"search.method is {self.method!r}")
        if not self.replace_unknown:
            idle["dictionary"] = "search.replace_unknown is false"
        problems = unused(self, idle)
        if self.method == "beam" and self.n_best > self.beam:
            problems.append(Problem("n_best", f"given {self.n_best}, expected at most the beam, which is {self.beam}"))
        if self.method == "beam" and self.beam == 1 and self.coverage:
            problems.append(Problem("coverage", f"given {self.coverage}, but a beam of 1 has nothing to choose from"))
        if self.method == "greedy" and self.n_best > 1:
            problems.append(Problem("n_best", f"given {self.n_best}, but greedy search finds one hypothesis"))
        if self.min_length > self.max_length:
            problems.append(Problem("min_length", f"given {self.min_length}, expected at most max_length, {self.max_length}"))
        if self.top_p > 1:
            problems.append(Problem("top_p", f"given {self.top_p}, expected a number in (0, 1]"))
        refuse(problems)
        return self
