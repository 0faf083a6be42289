"""samples.jsonl: outputs of the model for a few validation examples, one line for each validation.

    {"step": 250, "samples": [{"source": "the cat sees", "reference": "il gatto vede", "output": "il gatto"}]}

As metrics.jsonl, the file is appended to and cut where training continues. It stays small: of a long run, validations after the
first DENSE are logged less and less often, those in (DENSE, 2 DENSE] every second time, those up to 4 DENSE every fourth time.
Which are logged depends on the step alone, so a resumed run logs the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from heedful.training.metrics_log import append_metrics

NAME = "samples.jsonl"
MAX_SAMPLES = 5  # of a validation
MAX_CHARACTERS = 400  # of a text
DENSE = 200  # validations that are all logged


class Sample(NamedTuple):
    """An example and the output of the model for it."""

    source: str
    reference: str | None  # None: there is none, as for text that is continued
    output: str


def append_samples(path: Path, step: int, samples: Sequence[Sample]) -> None:
    shown = [{name: shorten(text) for name, text in one._asdict().items()} for one in samples[:MAX_SAMPLES]]
    append_metrics(path, {"step": step, "samples": shown})


def shorten(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def is_logged(step: int, validate_every: int) -> bool:
    """Whether the samples of a validation at this step are logged."""
    number, stride = -(-step // validate_every), 1
    while number > DENSE * stride:
        stride *= 2
    return number % stride == 0
