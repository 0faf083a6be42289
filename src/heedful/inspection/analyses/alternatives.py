"""Alternative tokens at a target position, and the translation with one of them forced.

position 2  probability
dorme       0.9812       <- target
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from heedful.errors import ConfigError
from heedful.evaluation.tables import table
from heedful.inspection.analyses.example_text import ExampleText, example_names, example_text
from heedful.inspection.measures.interventions import Alternative, find_token
from heedful.inspection.measures.interventions import alternatives as alternatives_of
from heedful.inspection.page.blocks import Block, Heading, Table, Words, sentence
from heedful.inspection.result import Result
from heedful.search import SearchConfig
from heedful.tasks.predictor import Predictor


class Forced(NamedTuple):
    """The output with a forced token."""

    token: str
    translation: str
    log_probability: float
    score: float


@dataclass(frozen=True)
class AlternativesResult(Result):
    """The most probable tokens at one position of the target.

    >>> result = heedful.inspection.alternatives(translator, "w1 w2", 1, target="w2 w1")
    >>> result.alternatives[0].probability >= result.alternatives[1].probability
    True
    """

    analysis: ClassVar[str] = "alternatives"

    example: ExampleText
    position: int  # of the target, from 0
    alternatives: list[Alternative]  # most probable first
    entropy: float  # of the distribution over all tokens at this position, in bits
    instead: Forced | None = None  # the output with another token at this position

    @property
    def title(self) -> str:
        return f"Alternatives at target position {self.position}"

    @property
    def subject(self) -> Sequence[str]:
        return self.example.subject

    def options(self) -> dict[str, Any]:
        return {"position": self.position} | ({} if self.instead is None else {"instead": self.instead.token})

    def to_dict(self) -> dict[str, Any]:
        listed = {
            "at": self.position,
            "entropy": self.entropy,
            "alternatives": [one._asdict() for one in self.alternatives],
        }
        forced = {} if self.instead is None else {"instead": self.instead._asdict()}
        return self.example.to_dict() | listed | forced

    def text(self) -> str:
        forced = [] if self.instead is None else [self.describe_forced(self.instead)]
        return "\n\n".join([self.example.numbered(), f"{table(self.rows('<- target'))}\n{self.describe_entropy()}", *forced])

    def blocks(self) -> list[Block]:
        shares = [one.probability for one in self.alternatives]
        head, *rows = self.rows("← target")
        blocks: list[Block] = [
            Words(f"Target tokens by position: {self.example.numbered()}", "hint"),
            Heading(f"Alternative tokens at target position {self.position}"),
            Table([("token", *head[1:]), *rows], "alternatives", {1: shares}),
            Words(f"{sentence(self.describe_entropy())}.", "hint"),
        ]
        return blocks if self.instead is None else [*blocks, Words(sentence(self.describe_forced(self.instead)))]

    def rows(self, mark: str) -> list[tuple[str, ...]]:
        rows = [(one.piece, f"{one.probability:.4f}", mark * one.chosen) for one in self.alternatives]
        return [(f"position {self.position}", "probability", ""), *rows]

    def describe_entropy(self) -> str:
        return f"entropy of the distribution: {self.entropy:.3f} bits"

    @staticmethod
    def describe_forced(forced: Forced) -> str:
        return f"with {forced.token!r} forced: {forced.translation}  (log p {forced.log_probability:.3f})"


def alternatives(
    predictor: Predictor,
    text: str,
    position: int = 0,
    *,
    instead: str | None = None,
    target: str | None = None,
    config: SearchConfig | None = None,
) -> AlternativesResult:
    """The most probable tokens at a target position, given the tokens before it. instead: force this token there and decode
    the rest again.

    >>> result = heedful.inspection.alternatives(translator, "w1 w2", 0, target="w2 w1", instead="w3")
    >>> result.instead.translation.split()[0]
    'w3'
    """
    example = predictor.encode_example(text, target, config if target is None else None)
    listed, entropy = alternatives_of(predictor, example, position)
    if instead is None:
        if target is not None and config is not None:
            raise ConfigError("search options have no effect with a given target", hint="remove one of them")
        return AlternativesResult(example_text(example, example_names(predictor)), position, listed, entropy)
    token = find_token(predictor, instead, listed)
    decoded = predictor.decode_example(example, [*example.target.ids[:position], token], config)
    if decoded is None:
        raise ConfigError(
            f"instead: given {instead!r}, which has no effect in a run of task {predictor.run.task.name!r}: its text is given, "
            "not decoded"
        )
    spelled = example.outputs.spell([token])[0]
    forced = Forced(spelled, decoded.text, decoded.log_probability, decoded.score)
    return AlternativesResult(example_text(example, example_names(predictor)), position, listed, entropy, forced)
