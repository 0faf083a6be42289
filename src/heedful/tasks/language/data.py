"""The data of language modeling: plain text as one sequence of tokens; see data/corpus_text.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from heedful.data.corpus_text import TextConfig, check_passage, passages, read_passage
from heedful.data.report import CheckReport
from heedful.data.sources import refuse_streams
from heedful.data.text_store import TextStore, open_text
from heedful.errors import DataError
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers


class TextSplits(NamedTuple):
    train: TextStore
    valid: TextStore


class TextData:
    def __init__(self, run: RunConfig) -> None:
        self.data: TextConfig = run.data

    def check(self) -> CheckReport:
        """Read every file once; report the unusable lines and the number of characters."""
        refuse_streams(self.files())
        splits = ("train", "valid", "test")
        return CheckReport(tuple(check_passage(split, passage) for split in splits for passage in passages(self.data, split)))

    def files(self) -> list[Path]:
        paths = [passage.path for split in ("train", "valid", "test") for passage in passages(self.data, split)]
        return list(dict.fromkeys(paths))

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The lines that the tokenizer is trained on; there is no source side."""
        for passage in passages(self.data, "train") if side == "target" else ():
            yield from read_passage(passage)

    @property
    def tags(self) -> list[str]:
        return []

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> TextSplits:
        train, valid = (open_text(passages(self.data, split), tokenizers[1]) for split in ("train", "valid"))
        if len(train.ids) <= self.data.block:
            raise DataError(
                f"the training text has {len(train.ids):,} tokens; expected more than data.block, which is {self.data.block}"
            )
        return TextSplits(train, valid)

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        usage = f'generator = heedful.load("{folder}")\nprint(generator.generate("…", length=200))'
        return usage, f"The context is at most {self.data.block} tokens. Generated text is plausible, but not necessarily true."


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """Texts, one after the other."""
    texts = list(examples)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise DataError(f"example {number} is {text!r:.60}; expected a text")
    return ExampleFile(".txt", "".join(f"{text.rstrip()}\n" for text in texts), "file", data={"split": [1.0, 0.0, 0.0]})
