"""The output of a model without some of its heads.

without cross.1.0: Elena non dorme il lunedì  (log p -2.126; log p of the target above: -1.317)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heedful.errors import ConfigError
from heedful.inspection.analyses.example_text import ExampleText, example_names, example_text
from heedful.inspection.measures.interventions import HeadName, target_log_probabilities, without_heads
from heedful.inspection.page.blocks import Block, Words, sentence
from heedful.inspection.result import Result
from heedful.search import SearchConfig
from heedful.tasks.predictor import Predictor


@dataclass(frozen=True)
class AblationResult(Result):
    """The effect of setting the context vectors of heads to zero.

    >>> result = heedful.inspection.ablate(translator, "w1 w2", "encoder.1.0")
    >>> result.title, type(result.change)
    ('Without encoder.1.0', <class 'float'>)
    """

    example: ExampleText
    heads: list[str]  # each as kind.layer.head
    translation: str | None  # decoded without the heads; of a classifier the label; None: the text is given, not decoded
    log_probability: float | None  # of that output
    change: float  # of the log-probability of the target of the example

    @property
    def title(self) -> str:
        return f"Without {', '.join(self.heads)}"

    @property
    def subject(self) -> Sequence[str]:
        return self.example.subject

    def to_dict(self) -> dict[str, Any]:
        changed = {"heads": self.heads, "translation": self.translation, "log_probability": self.log_probability}
        return self.example.to_dict() | {"without": changed | {"change": self.change}}

    def text(self) -> str:
        return f"{self.example.numbered()}\n\n{self.describe()}"

    def blocks(self) -> list[Block]:
        return [Words(f"Target tokens by position: {self.example.numbered()}", "hint"), Words(sentence(self.describe()))]

    def describe(self) -> str:
        change = f"log p of the target above: {self.change:+.3f}"
        if self.translation is None:
            return f"without {', '.join(self.heads)}: {change}"
        return f"without {', '.join(self.heads)}: {self.translation}  (log p {self.log_probability:.3f}; {change})"


def ablate(
    predictor: Predictor,
    text: str,
    heads: str | Sequence[str],
    *,
    target: str | None = None,
    config: SearchConfig | None = None,
) -> AblationResult:
    """Decode a text without some heads, each named kind.layer.head, and compare the log-probability of the target.

    >>> heedful.inspection.ablate(translator, "w1 w2", ["cross.0.0"], target="w2 w1").heads
    ['cross.0.0']
    """
    names = [heads] if isinstance(heads, str) else list(heads)
    if not names:
        raise ConfigError("given no head, expected at least one, for example cross.0.2")
    parsed = [HeadName.parse(name) for name in names]
    example = predictor.encode_example(text, target, config if target is None else None)
    before = target_log_probabilities(predictor, example).sum()
    with without_heads(predictor, parsed):
        decoded = predictor.decode_example(example, config=config)
        after = target_log_probabilities(predictor, example).sum()
    output = None if decoded is None else decoded.text
    log_probability = None if decoded is None else decoded.log_probability
    return AblationResult(
        example_text(example, example_names(predictor)), names, output, log_probability, float(after - before)
    )
