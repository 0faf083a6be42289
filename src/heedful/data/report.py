"""The result of a data check: `lines` for users, `as_dict` for programs, `dropped` for training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.errors import DataError
from heedful.evaluation.tables import counted, inflect

if TYPE_CHECKING:  # configs load without numpy
    import numpy as np
    from numpy.typing import NDArray

# The kinds of problem, in singular and plural.
NAMES: dict[str, tuple[str, str]] = {
    "utf8": ("line that is not UTF-8", "lines that are not UTF-8"),
    "surrogate": ("line with half of a surrogate pair", "lines with halves of surrogate pairs"),
    "nul": ("line with a NUL byte", "lines with NUL bytes"),
    "empty": ("line with an empty side", "lines with an empty side"),
    "blank": ("line with an empty column", "lines with an empty column"),
    "turns": ("line with fewer than two turns", "lines with fewer than two turns"),
    "long": ("line that is too long", "lines that are too long"),
    "ratio": ("line that exceeds the maximum length ratio", "lines that exceed the maximum length ratio"),
    "duplicate": ("duplicate", "duplicates"),
    "row": ("unusable row", "unusable rows"),
    "words": ("line with too many words", "lines with too many words"),
    "copy": ("line whose sides are the same text", "lines whose sides are the same text"),
    "script": ("line in another script", "lines in another script"),
    "language": ("line in another language", "lines in another language"),
    "near": ("near-duplicate", "near-duplicates"),
    "score": ("line below the minimum score", "lines below the minimum score"),
    "image": ("image that cannot be read", "images that cannot be read"),
    "size": ("image of another size", "images of another size"),
    "channels": ("image with other channels", "images with other channels"),
    "gap": ("gap in the time", "gaps in the time"),
    "constant": ("column with the same value in all rows", "columns with the same value in all rows"),
    "leak": ("source that is also in valid or test", "sources that are also in valid or test"),
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


def allowing(share: float) -> str:
    """A value of data.max_unusable that allows this share: rounded up to a thousandth."""
    return f"{math.ceil(1000 * share) / 1000:g}"


@dataclass(frozen=True)
class CorpusCheck:
    split: str
    title: str  # the files
    total: int  # lines read
    kept: int  # pairs, examples or lines used for training
    findings: tuple[Finding, ...]
    dropped: NDArray[np.int64] = field(repr=False)  # lines of usable pairs dropped as duplicates or leaks, in order
    conversions: tuple[str, ...] = ()  # commands that convert files that are not UTF-8
    unit: str = "pairs"
    remark: str = ""  # shown after the title
    items: str = "lines"  # what its files consist of
    characters: int = 0  # of plain text

    @property
    def skipped(self) -> list[Finding]:
        """The problems that make a line unusable, most frequent first."""
        skipped = [finding for finding in self.findings if finding.action == "skipped"]
        return sorted(skipped, key=lambda finding: -finding.count)

    @property
    def unusable(self) -> float:
        """The fraction of lines that are skipped."""
        return sum(finding.count for finding in self.skipped) / max(self.total, 1)

    def training_error(self, max_unusable: float) -> DataError | None:
        """Return the error if this corpus has too few usable lines for training, else None."""
        if self.kept and self.unusable <= max_unusable:
            return None
        worst, skipped = (self.skipped or self.findings)[0], sum(finding.count for finding in self.skipped)
        reasons = f"{worst.count:,} {worst.what}, the first at {worst.examples[0].place}: {worst.examples[0].text}"
        reasons = "; ".join([reasons, *(f"{finding.count:,} {finding.what}" for finding in self.skipped[1:])])
        if worst.kind == "utf8" and self.conversions:
            advice = f"convert it: {' && '.join(self.conversions)}"
        elif worst.kind == "nul":
            advice = "remove the NUL bytes; if the file is UTF-16, convert it: iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8"
        else:
            advice = f"check these {self.items}"
        if not self.kept:
            return DataError(
                f"{self.title} has {counted(self.total, self.items)}, but no usable {inflect(self.unit, 1)}; {reasons}",
                hint=advice,
            )
        return DataError(
            f"{self.title}: {skipped:,} of {self.total:,} {self.items} are unusable; expected at most "
            f"the fraction data.max_unusable = {max_unusable:g}; {reasons}",
            hint=f"{advice}; or set data.max_unusable = {allowing(self.unusable)} to skip them",
        )


@dataclass(frozen=True)
class CheckReport:
    corpora: tuple[CorpusCheck, ...]

    @property
    def clean(self) -> bool:
        return not any(corpus.findings for corpus in self.corpora)

    def training_error(self, max_unusable: float) -> DataError | None:
        """Return the error of the first corpus with too few usable lines for training, else None."""
        errors = (corpus.training_error(max_unusable) for corpus in self.corpora)
        return next((error for error in errors if error is not None), None)

    def dropped(self, split: str) -> list[NDArray[np.int64]]:
        """Return, for each corpus of the split in order, the lines that its store leaves out."""
        return [corpus.dropped for corpus in self.corpora if corpus.split == split]

    def lines(self) -> list[str]:
        """train  29,000 pairs, 28,998 kept  train.en.gz + train.de.gz
        2 lines that exceed the maximum length ratio, skipped
          train.en.gz line 12: …"""
        texts: list[str] = []
        width = max((len(f"{corpus.total:,}") for corpus in self.corpora), default=0)
        for corpus in self.corpora:
            total, kept = (
                f"{number:>{width},} {inflect(noun, number)}"
                for number, noun in ((corpus.total, corpus.items), (corpus.kept, corpus.unit))
            )
            counts = f"{total}, {kept} kept"
            texts.append(f"{corpus.split:<5}  {counts}  {corpus.title}{corpus.remark and f' ({corpus.remark})'}")
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
                    "unit": corpus.unit,
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
