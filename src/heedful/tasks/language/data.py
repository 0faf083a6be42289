"""The data of language modeling: plain text as one sequence of tokens; see data/corpus_text.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from heedful.data.corpus_text import TextConfig, check_passage, passages, read_passage
from heedful.data.mixing import temper_weights
from heedful.data.report import CheckReport
from heedful.data.sources import refuse_streams
from heedful.data.streamed_text import StreamedText, open_streamed
from heedful.data.text_blocks import BlockMixture, BlockShape, JoinedText
from heedful.data.text_store import TextStore, open_text
from heedful.errors import ConfigError, DataError
from heedful.evaluation.tables import inflect
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers


class TextSplits(NamedTuple):
    train: tuple[TextStore, ...]  # one for each corpus if they are mixed, else one for all
    valid: TextStore


class StreamedSplits(NamedTuple):
    train: StreamedText
    valid: TextStore


class TextData:
    def __init__(self, run: RunConfig) -> None:
        self.data: TextConfig = run.data

    def check(self) -> CheckReport:
        """Read every file once; report the unusable lines and the number of characters."""
        refuse_streams(self.files())
        splits = ("train", "valid", "test")
        checks = [check_passage(split, passage) for split in splits for passage in passages(self.data, split)]
        if self.data.is_mixed:
            train = [check for check in checks if check.split == "train"]
            sizes = [max(check.characters, 1) for check in train]
            weights = temper_weights(sizes, self.data.weights, self.data.temperature)
            mixed = [
                replace(check, remark=f"{check.remark}, {weight:.3g} {inflect('passes', weight)} per epoch")
                for check, weight in zip(train, weights, strict=True)
            ]
            checks = [*mixed, *checks[len(train) :]]
        return CheckReport(tuple(checks))

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

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> TextSplits | StreamedSplits:
        if self.data.max_store_megabytes is not None:
            return self.prepare_streamed(tokenizers, self.data.max_store_megabytes * 10**6)
        return self.prepare_whole(tokenizers)

    def prepare_whole(self, tokenizers: Tokenizers) -> TextSplits:
        tokenizer, parts = tokenizers[1], passages(self.data, "train")
        groups = [[part] for part in parts] if self.data.is_mixed else [parts]
        train = tuple(open_text(group, tokenizer) for group in groups)
        for text, group in zip(train, groups, strict=True):
            self.require_block(len(text.ids), group[0].path if self.data.is_mixed else None)
        return TextSplits(train, open_text(passages(self.data, "valid"), tokenizer))

    def prepare_streamed(self, tokenizers: Tokenizers, max_bytes: int) -> StreamedSplits:
        """As `prepare_whole`, with training text of which only parts are on the disk at a time."""
        tokenizer, parts, data = tokenizers[1], passages(self.data, "train"), self.data
        corpora = [open_streamed(part, tokenizer) for part in parts]
        for corpus, part in zip(corpora, parts, strict=True):
            self.require_block(corpus.tokens_of(range(len(corpus.facts))), part.path)
        train = StreamedText(corpora, block_shape(data), data.weights, data.temperature, max_bytes)
        blocks = max(sum(train.counts_in(window)) for window in range(len(train.windows)))
        if blocks < data.batch:
            raise ConfigError(
                f"data.batch: given {data.batch:,}, expected at most {blocks:,}, the number of blocks that an epoch takes from "
                f"the largest part of the text that fits with data.max_store_megabytes = {data.max_store_megabytes}"
            )
        return StreamedSplits(train, open_text(passages(data, "valid"), tokenizer))

    def require_block(self, tokens: int, path: Path | None) -> None:
        """Raise if a training text has no block; path: of one corpus of several."""
        if tokens <= self.data.block:
            raise DataError(
                f"the training text {f'{path} ' if path else ''}has {tokens:,} tokens; "
                f"expected more than data.block, which is {self.data.block}"
            )

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        usage = f'generator = heedful.load("{folder}")\nprint(generator.generate("…", length=200))'
        return usage, f"The context is at most {self.data.block} tokens. Generated text is plausible, but not necessarily true."


def block_shape(data: TextConfig) -> BlockShape:
    """The blocks of a language model, with the token after each."""
    return BlockShape(data.block + 1, data.block)


def mixture_of(data: TextConfig, train: JoinedText, shape: BlockShape) -> BlockMixture | None:
    """The mixture of the training corpora; None if they are read as one text."""
    return BlockMixture(train.sizes, shape, data.weights, data.temperature) if data.is_mixed else None


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """Texts, one after the other."""
    texts = list(examples)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise DataError(f"example {number} is {text!r:.60}; expected a text")
    return ExampleFile(".txt", "".join(f"{text.rstrip()}\n" for text in texts), "file", data={"split": [1.0, 0.0, 0.0]})
