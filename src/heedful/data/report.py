"""What the check found, as a value: for people by `lines`, for programs by `as_dict`, for training by `dropped`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError

# The kinds of problem, as a report names one and many of them.
NAMES: dict[str, tuple[str, str]] = {
    "utf8": ("line that is not UTF-8", "lines that are not UTF-8"),
    "nul": ("line with a NUL byte", "lines with NUL bytes"),
    "empty": ("line with an empty side", "lines with an empty side"),
    "long": ("line that is too long", "lines that are too long"),
    "ratio": ("line with an absurd length ratio", "lines with absurd length ratios"),
    "duplicate": ("duplicate", "duplicates"),
    "leak": ("source leaked from valid or test", "sources leaked from valid or test"),
}


class Example(NamedTuple):
    place: str  # file and line
    text: str


@dataclass(frozen=True)
class Finding:
    kind: str  # a key of NAMES
    count: int
    action: str  # "skipped", "dropped" or "kept"
    examples: tuple[Example, ...]

    @property
    def what(self) -> str:
        return NAMES[self.kind][self.count != 1]


@dataclass(frozen=True)
class CorpusCheck:
    split: str
    title: str  # the files
    total: int  # lines read
    kept: int  # pairs that training will see
    findings: tuple[Finding, ...]
    dropped: NDArray[np.int64] = field(repr=False)  # lines of good pairs that were asked to be dropped, in order
    conversions: tuple[str, ...] = ()  # commands that would convert files which are not UTF-8

    @property
    def skipped(self) -> list[Finding]:
        """The problems that make a line unusable, most frequent first."""
        return sorted((one for one in self.findings if one.action == "skipped"), key=lambda one: -one.count)

    @property
    def unusable(self) -> float:
        """The share of lines that are skipped."""
        return sum(one.count for one in self.skipped) / max(self.total, 1)

    def refusal(self, max_unusable: float) -> DataError | None:
        """Why this corpus cannot be trained on, if that is so."""
        if self.kept and self.unusable <= max_unusable:
            return None
        worst, bad = (self.skipped or self.findings)[0], sum(one.count for one in self.skipped)
        example = f"{worst.examples[0].place}: {worst.examples[0].text}"
        if worst.kind == "utf8":
            advice = f"convert it: {' && '.join(self.conversions)}"
        elif worst.kind == "nul":
            advice = "NUL bytes are no text; UTF-16, for example, is converted by: iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8"
        else:
            advice = "look at these lines"
        if not self.kept:
            return DataError(
                f"{self.title} has {self.total:,} lines, but no pair that can be used; {worst.count:,} {worst.what}, "
                f"the first at {example}",
                hint=advice,
            )
        return DataError(
            f"{self.title}: {bad:,} of {self.total:,} lines cannot be used, more than data.max_unusable = {max_unusable:g} "
            f"allows; {worst.count:,} {worst.what}, the first at {example}",
            hint=f"{advice}; data.max_unusable = 1 skips them all the same",
        )


@dataclass(frozen=True)
class CheckReport:
    corpora: tuple[CorpusCheck, ...]

    @property
    def clean(self) -> bool:
        return not any(corpus.findings for corpus in self.corpora)

    def refusal(self, max_unusable: float) -> DataError | None:
        """Why the data cannot be trained on, if that is so: the first corpus with too few usable lines."""
        refusals = (corpus.refusal(max_unusable) for corpus in self.corpora)
        return next((one for one in refusals if one is not None), None)

    def dropped(self, split: str) -> list[NDArray[np.int64]]:
        """For each corpus of the split, in order, the lines that its store leaves out."""
        return [corpus.dropped for corpus in self.corpora if corpus.split == split]

    def lines(self) -> list[str]:
        """train  29,000 pairs, 28,998 kept  train.en.gz + train.de.gz
        2 lines with absurd length ratios, skipped
          train.en.gz line 12: …"""
        texts: list[str] = []
        width = max((len(f"{corpus.total:,}") for corpus in self.corpora), default=0)
        for corpus in self.corpora:
            texts.append(
                f"{corpus.split:<5}  {corpus.total:>{width},} lines, {corpus.kept:>{width},} pairs kept  {corpus.title}"
            )
            for finding in corpus.findings:
                texts.append(f"       {finding.count:,} {finding.what}, {finding.action}")
                texts.extend(f"         {example.place}: {example.text}" for example in finding.examples)
                if finding.count > len(finding.examples):
                    texts.append(f"         … and {finding.count - len(finding.examples):,} more")
        return texts

    def as_dict(self) -> dict[str, Any]:
        return {
            "clean": self.clean,
            "corpora": [
                {
                    "split": corpus.split,
                    "title": corpus.title,
                    "lines": corpus.total,
                    "kept": corpus.kept,
                    "unusable": corpus.unusable,
                    "problems": [
                        {
                            "problem": finding.kind,
                            "count": finding.count,
                            "action": finding.action,
                            "examples": [example._asdict() for example in finding.examples],
                        }
                        for finding in corpus.findings
                    ],
                }
                for corpus in self.corpora
            ],
        }


class Notes(NamedTuple):
    """What a check has to say where nothing is dropped."""

    found: list[str]

    def lines(self) -> list[str]:
        return self.found
