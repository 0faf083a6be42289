"""The data of translation: sentence pairs, checked, encoded and stored; see `data/`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from heedful.data.check import check_data
from heedful.data.encode import StoreOptions, no_usable_pair, open_store
from heedful.data.links import AlignedCorpus, JoinedLinks, open_links
from heedful.data.mixing import temper_weights
from heedful.data.pairs import pairs, sentences
from heedful.data.report import CheckReport
from heedful.data.sources import CorpusConfig, files_of, find_path, refuse_streams, title_of
from heedful.data.splits import DataConfig, splits_of
from heedful.data.store import JoinedStore
from heedful.data.streamed import StreamedStore, open_streamed
from heedful.errors import ConfigError, DataError
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.translation.config import TranslationConfig


class Examples(NamedTuple):
    sources: list[str]
    references: list[str]


class Corpora(NamedTuple):
    """Training and validation data."""

    train: JoinedStore | StreamedStore
    weights: tuple[float, ...]  # sampling weights of the corpora in train
    valid: Examples
    links: JoinedLinks | None = None  # token alignments of train, for guided alignment


def examples_of(corpora: Iterable[CorpusConfig], max_ratio: float) -> Examples:
    """The sources and references of some corpora."""
    usable = [pair for corpus in corpora for pair in pairs(corpus, max_ratio=max_ratio)]
    return Examples([pair.source for pair in usable], [pair.target for pair in usable])


class TranslationData:
    def __init__(self, run: RunConfig) -> None:
        self.config: TranslationConfig = run.task
        self.data: DataConfig = run.data
        self.dropout = run.tokenizer.dropout  # of BPE, which encodes the text anew in every epoch

    def check(self) -> CheckReport:
        """Read every line once and report the unusable ones."""
        refuse_streams(self.files())
        return check_data(self.data)

    def files(self) -> list[Path]:
        corpora = [corpus for split in splits_of(self.data) for corpus in split]
        alignments = [find_path(corpus.alignment) for corpus in corpora if corpus.alignment]
        return list(dict.fromkeys([*(file for corpus in corpora for file in files_of(corpus)), *alignments]))

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The lines that the tokenizer of a side is trained on."""
        return sentences(splits_of(self.data).train, side, max_ratio=self.data.max_ratio)

    @property
    def tags(self) -> list[str]:
        """Tags prepended to sources, each a single token."""
        return list(dict.fromkeys(corpus.tag for corpus in splits_of(self.data).train if corpus.tag))

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> Corpora:
        """Encode the data, without the lines that the check dropped."""
        splits = splits_of(self.data)
        options = StoreOptions(self.data.max_length, self.data.max_ratio, keep_text=self.dropout > 0)
        if self.data.max_store_megabytes is not None:
            return self.prepare_streamed(tokenizers, report, options, self.data.max_store_megabytes * 10**6)
        stores = [
            open_store(corpus, tokenizers, options, dropped=dropped)
            for corpus, dropped in zip(splits.train, report.dropped("train"), strict=True)
        ]
        links = None
        if self.config.guided_alignment:
            aligned = map(
                AlignedCorpus, splits.train, stores, (corpus.total for corpus in report.corpora if corpus.split == "train")
            )
            links = JoinedLinks([open_links(corpus, tokenizers) for corpus in aligned])
        weights = tuple(self.weights(list(map(len, stores))))
        return Corpora(JoinedStore(stores), weights, examples_of(splits.valid, self.data.max_ratio), links)

    def prepare_streamed(self, tokenizers: Tokenizers, report: CheckReport, options: StoreOptions, max_bytes: int) -> Corpora:
        """As `prepare`, with a store of which only parts are on the disk at a time."""
        if self.config.guided_alignment:
            raise ConfigError(
                "data.max_store_megabytes cannot be combined with task.guided_alignment", hint="remove one of them"
            )
        splits = splits_of(self.data)
        corpora = [
            open_streamed(corpus, tokenizers, options, dropped=dropped)
            for corpus, dropped in zip(splits.train, report.dropped("train"), strict=True)
        ]
        for corpus, opened in zip(splits.train, corpora, strict=True):
            if len(opened) == 0:
                raise no_usable_pair(title_of(corpus), sum(shard.overlong for shard in opened.facts), options)
        store = StreamedStore(corpora, self.weights(list(map(len, corpora))), max_bytes)
        return Corpora(store, tuple(store.weights), examples_of(splits.valid, self.data.max_ratio))

    def weights(self, sizes: Sequence[int]) -> list[float]:
        """The weight of each corpus in train; sizes: its pairs."""
        return temper_weights(sizes, [corpus.weight for corpus in splits_of(self.data).train], self.data.temperature)

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        usage = f'translator = heedful.load("{folder}")\ntranslator.translate(["…"])'
        return usage, f"It was trained on sentences of up to {self.data.max_length} tokens; longer ones are split."


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """(source, target) pairs as JSON lines."""
    rows = []
    for number, example in enumerate(examples, start=1):
        texts = list(example) if isinstance(example, tuple | list) else [example]
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise DataError(f"example {number} is {example!r:.60}; expected a pair of texts, (source, target)")
        rows.append(json.dumps({"source": texts[0], "target": texts[1]}, ensure_ascii=False))
    options = {"split": [1.0, 0.0, 0.0]}
    return ExampleFile(".jsonl", "".join(f"{row}\n" for row in rows), "jsonl", {"fields": ["source", "target"]}, options)
