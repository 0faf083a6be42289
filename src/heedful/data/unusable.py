"""Unusable lines of a data file: recognized, counted and reported in the same way for every form of data.

    utf8       the line is not UTF-8
    surrogate  it has an escape such as \\ud800, which is no character
    nul        it has a NUL byte

`pairs.py` and `labeled.py` add problems of their own. Training skips these lines; more than `data.max_unusable` are an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from heedful.data.report import Example, Finding
from heedful.storage.reading import convert_command, likely_encoding

EXAMPLES = 5  # listed in a report for each kind of problem
SAMPLE = 4096  # bytes for guessing the encoding
MAX_UNUSABLE = 0.05

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Side = Literal["source", "target"]


class LineProblem(NamedTuple):
    kind: str  # a key of `report.NAMES`
    line: int
    side: Side  # "source" in data with one side
    text: str
    sample: bytes = b""  # the first bytes that are not UTF-8


def usable_text(raw: bytes, line: int, side: Side = "source") -> str | LineProblem:
    """Return the text of a line or of a part of it, or why it is unusable."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        if (half := lone_surrogate(raw)) is not None:
            return LineProblem("surrogate", line, side, f"the text contains {half}, half of a surrogate pair and no character")
        return LineProblem("utf8", line, side, f"byte {error.start + 1} is not UTF-8", raw[error.start : error.start + 80])
    if "\0" in text:
        return LineProblem("nul", line, side, "the text contains a NUL byte")
    return text


def lone_surrogate(raw: bytes) -> str | None:
    """The escape of the first half of a surrogate pair in a text that is valid apart from such halves: JSON can escape them."""
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return next((f"\\u{ord(character):04x}" for character in text if "\ud800" <= character <= "\udfff"), None)


class UnusableLines:
    """The unusable lines of a corpus: their number by kind, the first of each kind, and bytes that show the encoding."""

    def __init__(self, place: Callable[[LineProblem], str]) -> None:
        self.place = place  # file and line, for messages
        self.counts: dict[str, int] = {}
        self.examples: dict[str, list[Example]] = {}
        self.samples: dict[Side, bytes] = {}

    def add(self, problem: LineProblem) -> None:
        self.counts[problem.kind] = self.counts.get(problem.kind, 0) + 1
        examples = self.examples.setdefault(problem.kind, [])
        if len(examples) < EXAMPLES:
            examples.append(Example(self.place(problem), problem.text))
        if problem.sample and len(self.samples.get(problem.side, b"")) < SAMPLE:
            self.samples[problem.side] = self.samples.get(problem.side, b"") + problem.sample

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def note(self) -> str:
        """What an error of a file without usable content adds: how many lines are unusable, and the first; empty: none is."""
        if not self.counts:
            return ""
        place, text = next(iter(self.examples.values()))[0]
        return f"; {self.total:,} of its lines {'is' if self.total == 1 else 'are'} unusable, such as {place}: {text}"

    def findings(self) -> tuple[Finding, ...]:
        return tuple(Finding(kind, count, "skipped", tuple(self.examples[kind])) for kind, count in self.counts.items())

    def conversions(self, files: Sequence[Path]) -> tuple[str, ...]:
        """Return an iconv command for each file, of one or of both sides, with lines that are not UTF-8."""
        commands = [
            convert_command(str(files[0 if side == "source" else -1]), likely_encoding(sample))
            for side, sample in self.samples.items()
        ]
        return tuple(dict.fromkeys(commands))
