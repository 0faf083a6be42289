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
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from heedful.bounds import MAX_NUMBER
from heedful.data.pairs import MAX_RATIO
from heedful.data.sources import ALIASES, CorpusConfig, PairCount, splits_in
from heedful.errors import ConfigError
from heedful.schema import Config, Count, Size, ZeroOrSmallCount

SPLITS = ("train", "valid", "test")


def one_or_more(value: Any) -> Any:
    """A single table stands for a list of one, and the problems in it keep the path that the user typed."""
    return [CorpusConfig.model_validate(value)] if isinstance(value, Mapping | CorpusConfig) else value


def as_typed(corpora: tuple[CorpusConfig, ...]) -> Any:
    tables = [corpus.model_dump(exclude_none=True) for corpus in corpora]
    return tables[0] if len(tables) == 1 else tables


Corpora = Annotated[tuple[CorpusConfig, ...], Field(min_length=1), BeforeValidator(one_or_more), PlainSerializer(as_typed)]

MAX_UNUSABLE = 0.05

Share = Annotated[float, Field(ge=0.0, le=1.0)]
MaxRatio = Annotated[float, Field(gt=1.0, le=MAX_NUMBER)]


class Counts(Config):
    """How many pairs the grammar writes for each split; a split is chosen by a hash of the source, so none leak."""

    train: PairCount = 20_000
    """Training pairs."""
    valid: PairCount = 500
    """Validation pairs."""
    test: PairCount = 500
    """Test pairs."""


class DataConfig(Config):
    """The corpora, what is done with pairs that look wrong, and how large a batch is."""

    form: Literal["pairs"] = "pairs"
    """Form of the data: sentence pairs."""
    train: Corpora | None = None
    """Training corpora."""
    valid: Corpora | None = None
    """Validation corpora."""
    test: Corpora | None = None
    """Test corpora."""
    folder: str | None = None
    """Folder of <split>.<language> files, plain or .gz."""
    languages: tuple[str, str] | None = None
    """Source and target language, as in the names of the folder's files."""
    builtin: bool = False
    """Use sentences of the built-in English-Italian grammar."""
    counts: Counts | None = None
    """Number of pairs of each split that the grammar generates."""
    strict: bool = False
    """Stop at a pair that looks wrong instead of skipping it."""
    max_ratio: MaxRatio = MAX_RATIO
    """Maximum ratio of the lengths of both sides, in characters."""
    max_unusable: Share = MAX_UNUSABLE
    """Maximum share of unusable lines in a corpus before the run stops; 1: any number."""
    drop_duplicates: bool = False
    """Keep only the first of identical training pairs."""
    drop_leaks: bool = False
    """Remove training pairs whose source is also in valid or test."""
    max_length: Size = 256
    """Maximum tokens per side, without the end token; longer pairs are left out."""
    batch_tokens: Count = 4096
    """Maximum tokens per batch on either side, padding included; a longer pair is a batch of its own."""
    pad_to_multiple_of: Size = 1
    """Pad lengths to a multiple of this, so that few shapes occur; 1: no extra padding."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

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


def splits_of_files(files: list[str], *, header: bool = False) -> Splits:
    """For `heed data check FILES`: two files, a .tsv or a .jsonl make a corpus; train comes first."""
    corpora: list[CorpusConfig] = []
    waiting: list[str] = []
    for file in files:
        form = next((form for form in ("tsv", "jsonl") if file.removesuffix(".gz").endswith(f".{form}")), None)
        if form and not waiting:
            corpora.append(CorpusConfig.model_validate({form: file} | ({"header": True} if header and form == "tsv" else {})))
        elif waiting:
            if Path(waiting[0]) == Path(file):
                raise ConfigError(f"{file!r} is given as both source and target; expected two files, one for each language")
            corpora.append(CorpusConfig(source=waiting.pop(), target=file, header=header or None))
        else:
            waiting.append(file)
    if waiting or not 1 <= len(corpora) <= len(SPLITS):
        raise ConfigError(
            f"{len(files)} file{'s' * (len(files) != 1)} given; expected a source and a target file, "
            "or one .tsv or .jsonl file, once for train and once more each for valid and test",
            hint="heed data check train.en train.de valid.en valid.de",
        )
    return Splits(*((corpus,) for corpus in corpora))
