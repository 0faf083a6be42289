"""Tagged sentences, a label for each word: [data] with form = "tagged".

    folder = "ud-en-ewt"                 with train.conllu, valid.conllu and test.conllu, or .tsv or .txt, plain or .gz
    column = "upos"                      CoNLL-U: the column of the label

    train = { file = "train.tsv" }       two columns: a word, a tab and its label in each line, an empty line between sentences
    valid = { file = "valid.tsv" }       or: split = [0.9, 0.05, 0.05], and train alone is given (`hash_split.py`)

    builtin = "tag-by-context"           sentences of a toy (`toys.py`), as many as `counts` says

    numeric = true                       vectors instead of words: numbers and the label, separated by tabs, in each line

In CoNLL-U, the words are the numbered tokens: lines of multiword tokens (1-2) and of empty nodes (1.1) are left out. A sentence
with a line that cannot be read is left out as a whole; more than `max_unusable` of all lines are an error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
from pydantic import model_validator

from heedful.config.base import Config, Count, PathName, Problem, Size, ZeroOrSmallCount, refuse, unused
from heedful.data import conllu
from heedful.data.fractions import PARTS, Fractions, SplitPart, fraction_problems, makes_part
from heedful.data.hash_split import select_part
from heedful.data.report import CorpusCheck
from heedful.data.sources import ALIASES, find_folder, find_in_folder, find_path, missing_split
from heedful.data.splits import Counts, builtin_problems, toy_split
from heedful.data.toys import TAGGED, Draw, TaggedToy, TaggedWords, ToySplit, echo, sample
from heedful.data.unusable import MAX_UNUSABLE, LineProblem, Share, UnusableLines, usable_text
from heedful.errors import DataError, nearest
from heedful.evaluation.spans import follows
from heedful.storage.reading import read_lines

MIN_LENGTH = 3  # tokens
CONLLU, TABBED = ".conllu", (".tsv", ".txt")
SHOWN = 12  # labels in a report
Column = Literal["lemma", "upos", "xpos", "feats", "deprel", "label"]


class TaggedFile(Config):
    """One file."""

    file: PathName
    """CoNLL-U (.conllu) or tab-separated (.tsv, .txt) file, plain or .gz."""

    @model_validator(mode="after")
    def _known_suffix(self) -> TaggedFile:
        if suffix_of(self.file) is None:
            refuse([Problem("file", f"given {self.file!r}, expected a name that ends in .conllu, .tsv or .txt, plain or .gz")])
        return self


class TaggedConfig(Config):
    form: Literal["tagged"]
    """Form of the data: sentences with a label for each word, or sequences of vectors with a label for each."""
    folder: PathName | None = None
    """Folder with train, valid and test files: .conllu, .tsv or .txt, plain or .gz."""
    builtin: TaggedToy | None = None
    """Generate the sentences of this toy."""
    counts: Counts | None = None
    """Number of sentences of each split that are generated."""
    distance: Size | None = None
    """Distance of the toy "echo", in words; default: 10."""
    train: TaggedFile | None = None
    """Training file, instead of the folder's."""
    valid: TaggedFile | None = None
    """Validation file, instead of the folder's."""
    test: TaggedFile | None = None
    """Test file, instead of the folder's."""
    split: Fractions | None = None
    """Split `train` into train, valid and test: three fractions; near-duplicates stay together. Default: no split."""
    column: Column | None = None
    """Column of the label: of CoNLL-U, default: upos; "label", the default, of files with two columns."""
    numeric: bool = False
    """Tab-separated files have columns of numbers instead of a word; needs model.features."""
    max_unusable: Share = MAX_UNUSABLE
    """Maximum fraction of unusable lines in a file; more stop the run; 1: any number."""
    max_length: Size = 256
    """Maximum tokens, start and end included; longer sentences are cut into parts that are tagged separately."""
    batch_tokens: Count = 1024
    """Maximum tokens per batch, padding included."""
    pad_to_multiple_of: Size | Literal["auto"] = "auto"
    """Pad lengths to a multiple of this, so that few shapes occur; 1: no extra padding; auto: 16 with CUDA graphs, else 1."""
    prefetch: ZeroOrSmallCount = 4
    """Batches prepared ahead in the background; 0: none."""

    @model_validator(mode="after")
    def _fits_together(self) -> TaggedConfig:
        problems = builtin_problems(self)
        if self.folder is None and self.builtin is None:
            missing = [name for name in ("train", "valid") if getattr(self, name) is None and not self.makes(name)]
            problems += [
                Problem(name, "missing; expected a table with a file, data.folder or data.builtin") for name in missing
            ]
        if self.distance is not None and self.builtin != "echo":
            problems.append(Problem("distance", 'would have no effect without data.builtin = "echo"'))
        if self.max_length < MIN_LENGTH:
            problems.append(
                Problem("max_length", f"given {self.max_length}, expected at least {MIN_LENGTH}: a word, start and end")
            )
        refuse([*problems, *self._column_problems(), *self._split_problems()])
        return self

    def _column_problems(self) -> list[Problem]:
        """CoNLL-U has columns with names; other files have one column of labels."""
        problems = []
        files = {split: given.file for split in PARTS if (given := getattr(self, split)) is not None}
        for split, file in files.items():
            is_conllu = suffix_of(file) == CONLLU
            if is_conllu and (self.numeric or self.column == "label"):
                option = "numeric = true" if self.numeric else 'column = "label"'
                problems.append(Problem(f"{split}.file", f"given {file!r}, but {option} is for .tsv and .txt files"))
            elif not is_conllu and self.column not in (None, "label"):
                problems.append(Problem("column", f"given {self.column!r}, a column of CoNLL-U, but {split}.file is {file!r}"))
        if not files and self.numeric and self.column not in (None, "label"):
            problems.append(Problem("column", f"given {self.column!r}, a column of CoNLL-U, but numeric is true"))
        return problems

    def _split_problems(self) -> list[Problem]:
        if self.split is None:
            return []
        no_effect = {name: f"data.split makes a {name} part of data.train" for name in ("valid", "test") if self.makes(name)}
        problems = [Problem("split", sentence) for sentence in fraction_problems(self.split)]
        if self.train is None and (self.folder or self.builtin):
            given = "data.folder" if self.folder else "data.builtin"
            problems.append(Problem("split", f'given with {given}, expected data.train: {{ file = "…" }}'))
        return [*problems, *unused(self, no_effect)]

    def makes(self, split: str) -> bool:
        """Whether `data.split` makes this part, and others."""
        return makes_part(self.split, split)

    @property
    def length_multiple(self) -> int:
        """`pad_to_multiple_of` as a number: 1 as long as "auto" is not resolved."""
        return 1 if self.pad_to_multiple_of == "auto" else self.pad_to_multiple_of

    @property
    def sides(self) -> tuple[int, int]:
        return 0, self.max_length


class TaggedSentence(NamedTuple):
    line: int  # of its first word, counted from 1
    words: list[str]  # of a numeric sequence: its numbers as they are in the file, separated by tabs
    labels: list[str]
    lines: list[int]  # of each word
    rows: Sequence[conllu.Row] = ()  # of CoNLL-U


class TaggedSource(NamedTuple):
    """The data of a split: a file, or a part of one, or a toy."""

    path: Path | ToySplit
    part: str | None = None  # of data.split; None: all of it


class TaggedSentences(NamedTuple):
    """The usable sentences of a file, and its unusable lines."""

    sentences: list[TaggedSentence]
    unusable: UnusableLines
    lines: int  # with a word


Check = Callable[[Path | ToySplit, Sequence[TaggedSentence]], None]


def suffix_of(name: str) -> str | None:
    """.conllu, .tsv or .txt; None: another one."""
    return next((suffix for suffix in (CONLLU, *TABBED) if name.lower().removesuffix(".gz").endswith(suffix)), None)


def find_split_file(data: TaggedConfig, split: str) -> TaggedSource | None:
    """Return the file of a split; None if there is no test set."""
    part = split if data.makes(split) else None
    given: TaggedFile | None = getattr(data, "train" if part else split)
    if given is not None:
        return TaggedSource(find_path(given.file), part)
    if split == "test" and data.train is not None:
        return None  # the test set of a folder or toy belongs to other training data
    if (toy := toy_split(data, split)) is not None:
        return TaggedSource(toy)
    if data.folder is None:
        return None
    folder = find_folder(data.folder)
    suffixes = TABBED if data.numeric or data.column == "label" else (CONLLU, *TABBED) if data.column is None else (CONLLU,)
    path = find_in_folder(folder, split, suffixes)
    if path is None and split != "test":
        others = {suffix_of(file.name) for file in folder.iterdir() if file.name.split(".")[0] in sum(ALIASES.values(), ())}
        raise missing_split(folder, f"{split}{next((suffix for suffix in suffixes if suffix in others), suffixes[0])}")
    return None if path is None else TaggedSource(path)


def scan_sentences(data: TaggedConfig, source: TaggedSource) -> TaggedSentences:
    """Read a file, or its part; DataError with file and line if a line has not the columns of the format."""
    path = source.path
    unusable = UnusableLines(lambda problem: f"{path} line {problem.line}")
    if isinstance(path, ToySplit):
        sentences = list(toy_sentences(data, path))
        return TaggedSentences(sentences, unusable, sum(len(sentence.words) for sentence in sentences))
    parse: Callable[[Sequence[tuple[int, str]]], TaggedSentence] = partial(parse_tabbed, data, path)
    if suffix_of(path.name) == CONLLU:
        parse = partial(parse_conllu, path, conllu.NAMES.index(data.column or "upos"))
    sentences, lines = [], 0
    for block in read_blocks(path, comments=suffix_of(path.name) == CONLLU):
        lines += len(block)
        problems = [text for _, text in block if isinstance(text, LineProblem)]
        problems = problems or empty_cells(block)
        for problem in problems:
            unusable.add(problem)
        if not problems:
            sentence = parse([(number, str(text)) for number, text in block])
            if sentence.words:
                sentences.append(sentence)
    if source.part is not None and data.split is not None:
        texts = [" ".join(sentence.words) for sentence in sentences]
        sentences = select_part(sentences, texts, SplitPart(source.part, data.split))
    return TaggedSentences(sentences, unusable, lines)


def toy_sentences(data: TaggedConfig, toy: ToySplit) -> Iterator[TaggedSentence]:
    """The sentences of a toy; the line of a word is the number of its sentence."""
    draw: Draw[TaggedWords] = TAGGED[cast(TaggedToy, toy.name)]
    if data.distance is not None:
        draw = partial(echo, distance=data.distance)
    for number, one in enumerate(sample(draw, toy.split, toy.size), start=1):
        yield TaggedSentence(
            number, one.words, one.labels, [number] * len(one.words), toy_rows(one, f"{toy} sentence {number}")
        )


def toy_rows(sentence: TaggedWords, place: str) -> list[conllu.Row]:
    """The dependency tree of a toy's sentence, if it has one, as lines of CoNLL-U."""
    nodes = enumerate(zip(sentence.words, sentence.tree, strict=False), start=1)
    return [
        conllu.Row(place, (str(at), word, "_", "_", "_", "_", str(head + 1), relation, "_", "_"))
        for at, (word, (head, relation)) in nodes
    ]


def read_blocks(path: Path, *, comments: bool) -> Iterator[list[tuple[int, str | LineProblem]]]:
    """Yield the numbered lines of each sentence; comments: whether lines that begin with # are left out."""
    block: list[tuple[int, str | LineProblem]] = []
    for number, raw in enumerate(read_lines(path), start=1):
        if not raw.strip(b" \r"):
            if block:
                yield block
            block = []
        elif not (comments and raw.startswith(b"#")):
            block.append((number, usable_text(raw, number)))
    if block:
        yield block


def empty_cells(block: Sequence[tuple[int, str | LineProblem]]) -> list[LineProblem]:
    """The lines with an empty word or label."""
    problems = []
    for number, text in block:
        cells = str(text).split("\t")
        if len(cells) > 1 and not all(cell.strip() for cell in cells):
            problems.append(LineProblem("blank", number, "source", "a column is empty; expected a word and a label"))
    return problems


def parse_tabbed(data: TaggedConfig, path: Path, block: Sequence[tuple[int, str]]) -> TaggedSentence:
    """A sentence of lines with a word and a label, or with numbers and a label."""
    words, labels = [], []
    for number, text in block:
        word, tab, label = text.rpartition("\t")
        if not tab or ("\t" in word and not data.numeric):
            cells = text.count("\t") + 1
            expected = "numbers and a label" if data.numeric else "two, a word and its label"
            raise DataError(
                f"{path} line {number} has {cells} column{'s' * (cells != 1)}; expected {expected}, separated by tabs",
                hint="check the tabs of that line; sentences are separated by empty lines",
            )
        if data.numeric:
            parse_numbers(word, f"{path} line {number}")
        words.append(word)
        labels.append(label)
    return TaggedSentence(block[0][0], words, labels, [number for number, _ in block])


def parse_numbers(text: str, place: str) -> list[float]:
    """The numbers of a line, separated by tabs; DataError with the place for anything else."""
    numbers = []
    for cell in text.split("\t"):
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise DataError(f"{place} has {cell!r:.40} where a number is expected; expected finite numbers, separated by tabs")
        numbers.append(value)
    return numbers


def parse_conllu(path: Path, column: int, block: Sequence[tuple[int, str]]) -> TaggedSentence:
    """The numbered tokens of a sentence in CoNLL-U."""
    places = {f"{path} line {number}": number for number, _ in block}
    tokens, _ = conllu.separate_spans([conllu.parse_row(text, f"{path} line {number}") for number, text in block])
    return TaggedSentence(
        block[0][0],
        [row.form for row in tokens],
        [row.cells[column] for row in tokens],
        [places[row.place] for row in tokens],
        tokens,
    )


def read_sentences(data: TaggedConfig, source: TaggedSource) -> list[TaggedSentence]:
    """Return the usable sentences of a file, or of its part."""
    return scan_sentences(data, source).sentences


def collect_labels(sentences: Sequence[TaggedSentence]) -> tuple[str, ...]:
    """The labels in alphabetical order."""
    return tuple(sorted({label for sentence in sentences for label in sentence.labels}))


def check_sentences(data: TaggedConfig, split: str, source: TaggedSource, check: Check) -> CorpusCheck:
    """Read a file once and report its unusable lines and the number of words of each label; check: further checks.

    The unusable lines of a file that `data.split` splits are reported once, with its training part."""
    (path, part), (sentences, unusable, lines) = source, scan_sentences(data, source)
    check(path, sentences)
    if part is not None and not sentences:
        raise DataError(
            SplitPart(part, data.split or (1.0, 0.0, 0.0)).empty(str(path), "sentence") + unusable.note(),
            hint="use a larger fraction, or more sentences",
        )
    if part is not None:
        lines = sum(len(sentence.words) for sentence in sentences) + (unusable.total if part == "train" else 0)
    counts = Counter(label for sentence in sentences for label in sentence.labels)
    most = [f"{label}: {count:,}" for label, count in counts.most_common(SHOWN)]
    more = [f"{len(counts) - SHOWN} more"] if len(counts) > SHOWN else []
    return CorpusCheck(
        split=split,
        title=str(path),
        total=lines,
        kept=len(sentences),
        findings=unusable.findings() if part in (None, "train") else (),
        dropped=np.zeros(0, np.int64),
        conversions=unusable.conversions([path]) if isinstance(path, Path) else (),
        unit="sentences",
        remark=", ".join([*most, *more]),
    )


def refuse_unknown_label(path: Path | ToySplit, sentences: Sequence[TaggedSentence], labels: Sequence[str]) -> None:
    """Raise at the first label that is not one of `labels`."""
    known = set(labels)
    for sentence in sentences:
        for number, label in zip(sentence.lines, sentence.labels, strict=True):
            if label not in known:
                close = nearest(label, labels)
                raise DataError(
                    f"{path} line {number} has the label {label!r:.40}; expected one of: {', '.join(labels)}",
                    hint=f"did you mean {close!r}?" if close else "correct the label, or list all labels in task.labels",
                )


def refuse_other_sizes(path: Path | ToySplit, sentences: Sequence[TaggedSentence], features: int) -> None:
    """Raise at the first vector that does not have this size."""
    for sentence in sentences:
        for number, word in zip(sentence.lines, sentence.words, strict=True):
            size = word.count("\t") + 1
            if size != features:
                raise DataError(
                    f"{path} line {number} has {size} number{'s' * (size != 1)}; expected model.features = {features}",
                    hint="set model.features to the number of numeric columns, or correct that line",
                )


def refuse_invalid_bio(path: Path | ToySplit, sentences: Sequence[TaggedSentence]) -> None:
    """Raise at the first label that cannot follow the one before it in BIO."""
    for sentence in sentences:
        previous = None
        for number, label in zip(sentence.lines, sentence.labels, strict=True):
            if not follows(previous, label):
                before = "at the start of a sentence" if previous is None else f"after {previous!r:.40}"
                raise DataError(
                    f"{path} line {number} has the label {label!r:.40} {before}; expected B-{label[2:]} there",
                    hint="write the first word of each span with B-, or set task.crf = false, which accepts any sequence",
                )
            previous = label
