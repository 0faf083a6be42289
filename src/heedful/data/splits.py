"""The training, validation and test corpora: the [data] table.

    [data]                          [data.train]                    [[data.train]]
    folder = "multi30k"             source = "train.en"             source = "a.en"
    languages = ["en", "de"]        target = "train.de.gz"          …
                                    [data.valid]                    [[data.train]]
    (or: builtin = true, "copy")    …                               tsv = "b.tsv"

With `split = [0.9, 0.05, 0.05]` only train is given, one corpus, and split into train, valid and test (`hash_split.py`):
near-duplicate sources stay together.

The short form on the left applies to the splits without a table of their own. The config keeps the form that was given;
`splits_of` resolves it to corpora.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from heedful.config.base import Config, Count, PathName, Problem, Size, ZeroOrSmallCount
from heedful.config.bounds import MAX_NUMBER
from heedful.data.fractions import Fractions, SplitPart, fraction_problems, makes_part
from heedful.data.pairs import MAX_RATIO
from heedful.data.sources import (
    ALIASES,
    CorpusConfig,
    CorpusPart,
    PairCount,
    Temperature,
    find_folder,
    find_path,
    mixing_problems,
    splits_in,
)
from heedful.data.tables import dataset_splits, text_columns
from heedful.data.toys import PairToy, ToySplit
from heedful.data.unusable import MAX_UNUSABLE, Share
from heedful.errors import ConfigError
from heedful.evaluation.tables import counted

SPLITS = ("train", "valid", "test")


def as_list(value: Any) -> Any:
    """Turn a single table into a list of one; validated here, so that errors in it keep the path that the user gave."""
    return [CorpusConfig.model_validate(value)] if isinstance(value, Mapping | CorpusConfig) else value


def unwrap_single(corpora: tuple[CorpusConfig, ...]) -> Any:
    tables = [corpus.model_dump(exclude_none=True) for corpus in corpora]
    return tables[0] if len(tables) == 1 else tables


Corpora = Annotated[tuple[CorpusConfig, ...], Field(min_length=1), BeforeValidator(as_list), PlainSerializer(unwrap_single)]

MaxRatio = Annotated[float, Field(gt=1.0, le=MAX_NUMBER)]


class Counts(Config):
    """Number of examples of a built-in corpus in each split; splits are disjoint, by a hash."""

    train: PairCount = 20_000
    """Training examples."""
    valid: PairCount = 500
    """Validation examples."""
    test: PairCount = 500
    """Test examples."""


class DataConfig(Config):
    """The corpora, the handling of questionable pairs, and the batch size."""

    form: Literal["pairs"] = "pairs"
    """Form of the data: sentence pairs."""
    train: Corpora | None = None
    """Training corpora."""
    valid: Corpora | None = None
    """Validation corpora."""
    test: Corpora | None = None
    """Test corpora."""
    split: Fractions | None = None
    """Split `train` into train, valid and test: three fractions; near-duplicate sources stay together. Default: no split."""
    folder: PathName | None = None
    """Folder of <split>.<language> files, plain or .gz."""
    languages: tuple[str, str] | None = None
    """Source and target language, as in the names of the folder's files."""
    builtin: bool | PairToy = False
    """Generate pairs: true for the built-in English-Italian grammar, or the name of a toy."""
    counts: Counts | None = None
    """Number of pairs of each split that are generated."""
    temperature: Temperature = 1.0
    """Share of a corpus of train in an epoch: (weight x pairs)^(1 / temperature); 1: by size; more: closer to equal shares."""
    strict: bool = False
    """Stop at an unusable pair instead of skipping it."""
    max_ratio: MaxRatio = MAX_RATIO
    """Maximum ratio of the lengths of both sides, in characters."""
    max_unusable: Share = MAX_UNUSABLE
    """Maximum fraction of unusable lines in a corpus; more stop the run; 1: any number."""
    drop_duplicates: bool = False
    """Keep only the first of identical training pairs."""
    drop_leaks: bool = False
    """Remove training pairs whose source is also in valid or test."""
    max_length: Size = 256
    """Maximum tokens per side, without the end token; longer pairs are left out."""
    batch_tokens: Count = 4096
    """Maximum tokens per batch on either side, padding included; a longer pair is a batch of its own."""
    pad_to_multiple_of: Size | Literal["auto"] = "auto"
    """Pad lengths to a multiple of this, so that few shapes occur; 1: no extra padding; auto: 16 with CUDA graphs, else 1."""
    max_store_megabytes: Count | None = None
    """Maximum size of the encoded training data on disk; parts are encoded ahead of use and removed. Default: no limit."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    @property
    def sides(self) -> tuple[int, int]:
        """Maximum tokens of source and target, including the end or start token."""
        return self.max_length + 1, self.max_length + 1

    @property
    def length_multiple(self) -> int:
        """`pad_to_multiple_of` as a number: 1 as long as "auto" is not resolved."""
        return 1 if self.pad_to_multiple_of == "auto" else self.pad_to_multiple_of

    @model_validator(mode="after")
    def every_option_has_an_effect(self) -> Self:
        problems: list[str] = []
        if self.folder and self.builtin:
            problems.append("folder and builtin are both given; expected one of them")
        if self.languages and not self.folder:
            problems.append("languages would have no effect without folder")
        if self.folder and not self.languages:
            problems.append('folder is given without languages; expected for example languages = ["en", "de"]')
        if self.languages and self.languages[0] == self.languages[1]:
            problems.append(f"languages is {list(self.languages)!r}; expected different values for source and target")
        if self.counts and not self.builtin:
            problems.append("counts would have no effect without builtin")
        if not self.folder and not self.builtin:
            missing = [split for split in ("train", "valid") if getattr(self, split) is None and not self.makes(split)]
            if missing:
                problems.append(f"{' and '.join(missing)} missing; expected a table of files, or folder, or builtin")
        problems += mixing_problems({split: getattr(self, split) for split in SPLITS}, self.temperature)
        problems += self.split_problems()
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def split_problems(self) -> list[str]:
        """Problems of `split`."""
        if self.split is None:
            return []
        problems = [f"split: {sentence}" for sentence in fraction_problems(self.split)]
        if not any(map(self.makes, SPLITS)):
            return problems  # all of it is for training
        given = "folder" if self.folder else "builtin" if self.builtin else None
        if given:
            problems.append(f'split: given with data.{given}, expected data.train: {{ tsv = "…" }}')
        if self.train is not None and len(self.train) > 1:
            problems.append(f"split: given with {len(self.train)} corpora in data.train, expected one")
        for corpus in self.train or ():
            if corpus.form in ("folder", "builtin"):
                problems.append(f"split: given with train.{corpus.form}, which has splits of its own; expected a file")
            if corpus.alignment:
                problems.append("split: cannot be combined with train.alignment, whose line n belongs to line n of the corpus")
        made = [name for name in ("valid", "test") if self.makes(name) and getattr(self, name) is not None]
        return [*problems, *(f"{name} would have no effect: data.split makes a {name} part of data.train" for name in made)]

    def makes(self, split: str) -> bool:
        """Whether `data.split` makes this part, and others."""
        return makes_part(self.split, split)


class BuiltinOptions(Protocol):
    """The options of [data] that choose a toy."""

    @property
    def folder(self) -> str | None: ...
    @property
    def builtin(self) -> str | None: ...
    @property
    def counts(self) -> Counts | None: ...


def builtin_problems(data: BuiltinOptions) -> list[Problem]:
    """Options that conflict with a toy, or have no effect without one."""
    problems = []
    if data.folder is not None and data.builtin is not None:
        problems.append(Problem("builtin", "given with data.folder, expected one of them; remove one from the recipe"))
    if data.counts is not None and data.builtin is None:
        problems.append(Problem("counts", "would have no effect without data.builtin"))
    return problems


def toy_split(data: BuiltinOptions, split: str) -> ToySplit | None:
    """The split of the toy; None if there is none."""
    return None if data.builtin is None else ToySplit(data.builtin, split, getattr(data.counts or Counts(), split))


class Splits(NamedTuple):
    train: tuple[CorpusConfig, ...]
    valid: tuple[CorpusConfig, ...] = ()
    test: tuple[CorpusConfig, ...] = ()


def splits_of(data: DataConfig) -> Splits:
    """Return the corpora of each split; none for test if the folder has no file whose name starts with "test", or if
    train has its own table and test does not."""
    return Splits(*(corpora_of(data, split) for split in SPLITS))


def corpora_of(data: DataConfig, split: str) -> tuple[CorpusConfig, ...]:
    if data.split is not None and data.makes(split):
        (corpus,) = (set_split(one, "train") for one in data.train or ())
        return (CorpusPart(**corpus.model_dump(exclude_unset=True), part=SplitPart(split, data.split)),)
    given: tuple[CorpusConfig, ...] | None = getattr(data, split)
    if given is not None:
        return tuple(set_split(corpus, split) for corpus in given)
    if split == "test" and data.train is not None:
        return ()  # the folder's test set belongs to another corpus than the training data
    if data.builtin:
        return (CorpusConfig(builtin=data.builtin, split=split, count=getattr(data.counts or Counts(), split)),)
    if data.folder is None or data.languages is None:
        return ()
    if split == "test" and not any(name.startswith(ALIASES["test"]) for name in splits_in(data.folder, data.languages)):
        return ()
    return (CorpusConfig(folder=data.folder, languages=data.languages, split=split),)


def set_split(corpus: CorpusConfig, split: str) -> CorpusConfig:
    """Set the default split of a folder, of a dataset with splits or of a built-in corpus: "valid" in [data.valid]."""
    if corpus.split is not None or corpus.form not in ("dataset", "folder", "builtin"):
        return corpus
    if corpus.dataset is not None and not dataset_splits(find_folder(corpus.dataset)):
        return corpus
    return corpus.model_copy(update={"split": split})


def splits_of_files(files: list[str], *, header: bool = False, columns: tuple[str, str] | None = None) -> Splits:
    """Return the splits of `heed data check FILES`, train, valid and test: each two files, or a .tsv, .jsonl or .parquet file.

    columns: of .parquet files; default: the only two that have text"""
    corpora = pair_files(files, header=header, columns=columns)
    if corpora is None or not 1 <= len(corpora) <= len(SPLITS):
        raise ConfigError(
            f"{counted(len(files), 'files')} given; expected a source and a target file, "
            "or one .tsv, .jsonl or .parquet file, for train and optionally for valid and test",
            hint="write for example: heed data check train.en train.de valid.en valid.de; "
            "labeled or plain text is checked by its recipe: heed data check RECIPE",
        )
    return Splits(*((corpus,) for corpus in corpora))


def corpus_of_files(files: list[str], *, header: bool, columns: tuple[str, str] | None) -> CorpusConfig:
    """Return the corpus of `heed data clean FILES`; arguments as in `splits_of_files`."""
    corpora = pair_files(files, header=header, columns=columns)
    if corpora is None or len(corpora) != 1:
        raise ConfigError(
            f"{counted(len(files), 'files')} given; expected a source and a target file, "
            "or one .tsv, .jsonl or .parquet file of sentence pairs",
            hint="write for example: heed data clean web.en web.de --output clean.jsonl",
        )
    return corpora[0]


def pair_files(files: list[str], *, header: bool, columns: tuple[str, str] | None) -> list[CorpusConfig] | None:
    """Return the corpora of files, each two files or a .tsv, .jsonl or .parquet file; None if a target file is missing."""
    corpora: list[CorpusConfig] = []
    unpaired: list[str] = []
    for file in files:
        form = next((form for form in ("tsv", "jsonl", "parquet") if file.removesuffix(".gz").endswith(f".{form}")), None)
        if form and not unpaired:
            options: dict[str, Any] = {"header": True} if header and form == "tsv" else {}
            if form == "parquet":
                options["columns"] = columns or only_text_columns(file)
            corpora.append(CorpusConfig.model_validate({form: file} | options))
        elif unpaired:
            if Path(unpaired[0]) == Path(file):
                raise ConfigError(f"{file!r} is given as both source and target; expected two files, one for each language")
            corpora.append(CorpusConfig(source=unpaired.pop(), target=file, header=header or None))
        else:
            unpaired.append(file)
    if unpaired:
        return None
    if columns and not any(corpus.parquet for corpus in corpora):
        raise ConfigError("--columns has no effect without a .parquet file")
    return corpora


def only_text_columns(file: str) -> tuple[str, ...]:
    """Return the two columns of a Parquet file that have text; any other number of them is an error."""
    found = text_columns(find_path(file))
    if len(found) != 2:
        raise ConfigError(
            f"{file} has {len(found)} column{'s' * (len(found) != 1)} of text: {', '.join(found) or 'none'}; expected two",
            hint="choose those of source and target with --columns SOURCE,TARGET" if len(found) > 2 else None,
        )
    return tuple(found)
