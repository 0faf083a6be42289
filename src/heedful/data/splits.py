"""Which pairs are trained on, validated on and tested on: the [data] table.

    [data]                          [data.train]                    [[data.train]]
    folder = "multi30k"             source = "train.en"             source = "a.en"
    languages = ["en", "de"]        target = "train.de.gz"          …
                                    [data.valid]                    [[data.train]]
    (or: builtin = true)            …                               tsv = "b.tsv"

The short forms on the left fill the splits that have no table of their own. The config stays as it was typed;
`splits_of` works it out into corpora.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PlainSerializer, PositiveInt, model_validator

from heedful.data.pairs import MAX_RATIO
from heedful.data.sources import ALIASES, CorpusConfig, splits_in
from heedful.errors import ConfigError
from heedful.schema import Config

SPLITS = ("train", "valid", "test")


def one_or_more(value: Any) -> Any:
    """A single table stands for a list of one, and the problems in it keep the path that the user typed."""
    return [CorpusConfig.model_validate(value)] if isinstance(value, Mapping | CorpusConfig) else value


def as_typed(corpora: tuple[CorpusConfig, ...]) -> Any:
    tables = [corpus.model_dump(exclude_none=True) for corpus in corpora]
    return tables[0] if len(tables) == 1 else tables


Corpora = Annotated[tuple[CorpusConfig, ...], Field(min_length=1), BeforeValidator(one_or_more), PlainSerializer(as_typed)]


class Counts(Config):
    """How many pairs the grammar writes for each split; a split is chosen by a hash of the source, so none leak."""

    train: PositiveInt = 20_000
    valid: PositiveInt = 500
    test: PositiveInt = 500


class DataConfig(Config):
    """The corpora, what is done with pairs that look wrong, and how large a batch is."""

    form: Literal["pairs"] = "pairs"
    train: Corpora | None = None
    valid: Corpora | None = None
    test: Corpora | None = None
    folder: str | None = None
    languages: tuple[str, str] | None = None  # source, target
    builtin: bool = False
    counts: Counts | None = None
    strict: bool = False  # a line that looks wrong stops the run instead of being counted and skipped
    max_ratio: Annotated[float, Field(gt=1.0)] = MAX_RATIO  # characters of the longer side over those of the shorter one
    drop_duplicates: bool = False  # of pairs that occur twice in training keep the first
    drop_leaks: bool = False  # leave out of training what is also a source in valid or test
    max_length: PositiveInt = 256  # tokens a side, the end token not counted; longer pairs are counted and left out
    batch_tokens: PositiveInt = 4096  # rows x longest of either side, end token and padding counted
    rung: PositiveInt = 1  # pad lengths to a multiple of this and fill batches up, so that few shapes occur; 1: never
    prefetch: NonNegativeInt = 4  # batches prepared ahead in the background; 0 prepares each when it is asked for

    @property
    def sides(self) -> tuple[int, int]:
        """Tokens of the longest source and target, the end or the start counted."""
        return self.max_length + 1, self.max_length + 1

    @model_validator(mode="after")
    def every_option_has_an_effect(self) -> Self:
        problems: list[str] = []
        if self.folder and self.builtin:
            problems.append("folder and builtin are both given; leave out the one or the other")
        if self.languages and not self.folder:
            problems.append("languages would have no effect without folder")
        if self.folder and not self.languages:
            problems.append('folder is given without languages; expected for example languages = ["en", "de"]')
        if self.languages and self.languages[0] == self.languages[1]:
            problems.append(f"languages is {list(self.languages)!r}, but source and target must differ")
        if self.counts and not self.builtin:
            problems.append("counts would have no effect without builtin")
        if not self.folder and not self.builtin:
            missing = [split for split in ("train", "valid") if getattr(self, split) is None]
            if missing:
                problems.append(f"{' and '.join(missing)} missing; expected a table of files, or folder, or builtin")
        for split in ("valid", "test"):
            if any(corpus.weight != 1.0 for corpus in getattr(self, split) or ()):
                problems.append(f"{split}: weight would have no effect, only train is mixed by weight")
        if problems:
            raise ValueError("; ".join(problems))
        return self


class Splits(NamedTuple):
    train: tuple[CorpusConfig, ...]
    valid: tuple[CorpusConfig, ...] = ()
    test: tuple[CorpusConfig, ...] = ()


def splits_of(data: DataConfig) -> Splits:
    """The corpora of each split; there is none for test when the folder has no file whose name begins with it, or when
    train is given apart and test is not."""
    return Splits(*(corpora_of(data, split) for split in SPLITS))


def corpora_of(data: DataConfig, split: str) -> tuple[CorpusConfig, ...]:
    typed: tuple[CorpusConfig, ...] | None = getattr(data, split)
    if typed is not None:
        return tuple(named(corpus, split) for corpus in typed)
    if split == "test" and data.train is not None:
        return ()  # another corpus's test set would judge a model of this one
    if data.builtin:
        return (CorpusConfig(builtin=True, split=split, count=getattr(data.counts or Counts(), split)),)
    if data.folder is None or data.languages is None:
        return ()
    if split == "test" and not any(name.startswith(ALIASES["test"]) for name in splits_in(data.folder, data.languages)):
        return ()
    return (CorpusConfig(folder=data.folder, languages=data.languages, split=split),)


def named(corpus: CorpusConfig, split: str) -> CorpusConfig:
    """In [data.valid] the split of a folder or of the grammar is "valid", unless another one is named."""
    if corpus.form in ("folder", "builtin") and corpus.split is None:
        return corpus.model_copy(update={"split": split})
    return corpus


def splits_of_files(files: list[str]) -> Splits:
    """For `heed data check FILES`: two files, a .tsv or a .jsonl make a corpus; train comes first."""
    corpora: list[CorpusConfig] = []
    waiting: list[str] = []
    for file in files:
        form = next((form for form in ("tsv", "jsonl") if file.removesuffix(".gz").endswith(f".{form}")), None)
        if form and not waiting:
            corpora.append(CorpusConfig.model_validate({form: file}))
        elif waiting:
            corpora.append(CorpusConfig(source=waiting.pop(), target=file))
        else:
            waiting.append(file)
    if waiting or not 1 <= len(corpora) <= len(SPLITS):
        raise ConfigError(
            f"{len(files)} file{'s' * (len(files) != 1)} given; expected a source and a target file, "
            "or one .tsv or .jsonl file, once for train and once more each for valid and test",
            hint="heed data check train.en train.de valid.en valid.de",
        )
    return Splits(*((corpus,) for corpus in corpora))
