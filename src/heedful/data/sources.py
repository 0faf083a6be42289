"""One corpus of sentence pairs, in any of the forms that people keep them in, read as a stream of pairs of bytes.

    source + target    two files of the same number of lines; line n of one translates line n of the other
    tsv                one file, columns apart by tabs (no quoting)
    jsonl              one file, one JSON object a line
    folder             a folder of <split>.<language>[.gz] files
    builtin            sentences written by the built-in grammar

Relative paths are looked up from the working directory, then from ./data, then from $HEED_DATA. What a pair must be like to be
trained on is said in `pairs.py`; here a file whose form is broken is an error that names the file and the line.

A first line that looks like the names of columns is refused, because it would be trained on: `header = true` skips it,
`header = false` says that it is text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, cast

from pydantic import Field, model_validator

from heedful.data.catalog import CATALOG
from heedful.data.json_text import parse_json
from heedful.errors import DataError, nearest
from heedful.schema import Config, Seed, Size
from heedful.storage.reading import is_rereadable, name_of, read_lines, unreadable

# Each form, and the options that belong to it.
FORMS: dict[str, tuple[str, ...]] = {
    "source": ("target", "alignment", "header"),
    "tsv": ("columns", "alignment", "header"),
    "jsonl": ("fields", "alignment"),
    "folder": ("languages", "split", "alignment", "header"),
    "builtin": ("split", "count", "seed"),
}
NEEDED = {"source": "target", "folder": "languages", "builtin": "count"}  # of those, the one that has no default
# What a split may be called in a folder, besides its own name; the first part of a file's name decides.
ALIASES = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}

# What the columns of a table of pairs are called, in lower case.
COLUMN_NAMES = re.compile(
    "source|target|src|tgt|trg|sentence|sentence1|sentence2|text|translation|translated|original|reference"
    "|english|german|french|spanish|italian|portuguese|dutch|russian|chinese|japanese|korean|arabic|czech|polish"
    "|ar|cs|da|de|el|en|es|et|fi|fr|he|hi|hu|it|ja|ko|lt|lv|nl|no|pl|pt|ro|ru|sk|sl|sv|tr|uk|vi|zh"
)
SHOWN = 8  # names of a folder in an error

Tag = Annotated[str, Field(pattern=r"^\S+$")]
Column = Annotated[Size, Field(description="counted from 1, as `cut -f` does")]
PairCount = Annotated[int, Field(ge=1, le=10**7)]  # of the grammar
CorpusWeight = Annotated[float, Field(gt=0.0, le=1000.0)]


class CorpusConfig(Config):
    """One corpus: exactly one of source + target, tsv, jsonl, folder or builtin, and the options of that form."""

    source: str | None = None
    """File of source sentences, one per line."""
    target: str | None = None
    """File of target sentences, one per line."""
    tsv: str | None = None
    """Tab-separated file with both sides."""
    columns: tuple[Column, Column] | None = None
    """Columns of source and target, counted from 1; default: 1 and 2."""
    jsonl: str | None = None
    """File with one JSON object per line."""
    fields: tuple[str, str] | None = None
    """Fields of source and target; a dot names a nested field: `translation.en`."""
    folder: str | None = None
    """Folder of <split>.<language> files, plain or .gz."""
    languages: tuple[str, str] | None = None
    """Source and target language, as in the names of the folder's files."""
    split: str | None = None
    """Which split of the folder or the grammar; default: train."""
    builtin: bool = False
    """Use sentences of the built-in English-Italian grammar."""
    count: PairCount | None = None
    """Number of pairs that the grammar generates."""
    seed: Seed | None = None
    """Seed of the grammar; default: 0."""
    weight: CorpusWeight = 1.0
    """How many times an epoch passes over this corpus."""
    tag: Tag | None = None
    """Token prepended to every source sentence, such as `<2de>`."""
    header: bool | None = None
    """Whether line 1 names the columns and is skipped; default: refused if it looks so."""
    alignment: str | None = None
    """File of word alignments, "0-0 1-2" per line; the grammar has its own."""

    @property
    def form(self) -> str:
        return next(form for form in FORMS if getattr(self, form))

    @model_validator(mode="after")
    def one_form_and_its_options(self) -> Self:
        given = [form for form in FORMS if getattr(self, form)]
        if len(given) != 1:
            raise ValueError(
                f"expected one of source + target, tsv, jsonl, folder or builtin, but {' and '.join(given) or 'none'} "
                f"{'is' if len(given) < 2 else 'are'} given"
            )
        form = given[0]
        options = {option for options in FORMS.values() for option in options}
        stray = sorted(option for option in options - set(FORMS[form]) if getattr(self, option) is not None)
        if stray:
            raise ValueError(f"{' and '.join(stray)} would have no effect with {form}; leave out the one or the other")
        needed = NEEDED.get(form)
        if needed and not getattr(self, needed):
            raise ValueError(f"{form} is given without {needed}")
        if form == "builtin" and self.split not in (None, *ALIASES):
            raise ValueError(f"split is {self.split!r}, but builtin has: {', '.join(ALIASES)}")
        if self.source is not None and self.target is not None and Path(self.source) == Path(self.target):
            raise ValueError(f"source and target are both {self.source!r}; expected two files, one for each language")
        if self.header and self.alignment:
            raise ValueError("header = true does not go with alignment, whose line n belongs to line n of the corpus")
        for option in ("columns", "fields", "languages"):
            sides = getattr(self, option)
            if sides and sides[0] == sides[1]:
                raise ValueError(f"{option} is {list(sides)!r}, but source and target must differ")
        return self


class RawPair(NamedTuple):
    line: int  # counted from 1
    source: bytes
    target: bytes


def raw_pairs(corpus: CorpusConfig) -> Iterator[RawPair]:
    """Every pair of the corpus in its order, as it stands in the file, without the tag and without a header."""
    found = READERS[corpus.form](corpus)
    if "header" not in FORMS[corpus.form]:
        return found
    return after_header(corpus, found)


def after_header(corpus: CorpusConfig, found: Iterator[RawPair]) -> Iterator[RawPair]:
    for first in found:
        if corpus.header is None and names_columns(first):
            cells = ", ".join(cell.decode(errors="replace") for cell in first[1:])
            raise DataError(
                f"{place_of(corpus, first.line)} looks like the names of columns: {cells}",
                hint="header = true, beside the file in its table of [data], skips that line; header = false trains on it",
            )
        yield from found if corpus.header else chain([first], found)


def names_columns(pair: RawPair) -> bool:
    cells = [cell.strip().strip(b'"').lower().decode(errors="replace") for cell in pair[1:]]
    return cells[0] != cells[1] and all(map(COLUMN_NAMES.fullmatch, cells))


def files_of(corpus: CorpusConfig) -> tuple[Path, ...]:
    """The files that the corpus is read from: one, or one for each side; none for the built-in corpus."""
    if corpus.folder is not None and corpus.languages is not None:
        return split_files(corpus.folder, corpus.split or "train", corpus.languages)
    names = (corpus.source, corpus.target, corpus.tsv, corpus.jsonl)
    return tuple(find_path(name) for name in names if name is not None)


def place_of(corpus: CorpusConfig, line: int, side: Literal["source", "target"] = "source") -> str:
    """Where a reader of the corpus finds that line: "train.de.gz line 17"."""
    files = files_of(corpus)
    if not files:
        return f"built-in {corpus.split or 'train'} pair {line}"
    return f"{files[0 if side == 'source' else -1]} line {line}"


def title_of(corpus: CorpusConfig) -> str:
    return " + ".join(map(str, files_of(corpus))) or f"built-in {corpus.split or 'train'}"


def find_path(name: str) -> Path:
    """`name` from the working directory, or else from ./data or $HEED_DATA if it is there."""
    path = Path(name).expanduser()
    if path.is_absolute() or path.exists():
        return path
    return next((root / path for root in data_roots() if (root / path).exists()), path)


def data_roots() -> list[Path]:
    """Where relative paths are looked up after the working directory."""
    return [Path("data"), *([Path(os.environ["HEED_DATA"])] if os.environ.get("HEED_DATA") else [])]


def find_folder(name: str) -> Path:
    """As `find_path`, for a folder that must exist; else a DataError that says where it was looked for and what is near."""
    path = find_path(name)
    if path.is_dir():
        return path
    if path.exists():
        raise DataError(f"{path} is a file; expected a folder")
    tried = "" if path.is_absolute() else f" here, in ./data or in $HEED_DATA ({os.environ.get('HEED_DATA') or 'not set'})"
    raise DataError(f"there is no folder {str(path)!r}{tried}", hint=_hint_for_folder(path))


def _hint_for_folder(path: Path) -> str:
    if str(path) in CATALOG:
        return f"`heed data get {path}` fetches this public corpus"
    parents = [path.parent] if path.is_absolute() else [root / path.parent for root in (Path(), *data_roots())]
    there = {str(entry): entry for parent in parents if parent.is_dir() for entry in parent.iterdir() if entry.is_dir()}
    close = nearest(path.name, {entry.name for entry in there.values()} | CATALOG.keys())
    folder = next((name for name, entry in there.items() if entry.name == close), None)
    if close is None:
        return "check the path; a relative one starts from the working directory, ./data or $HEED_DATA"
    return f"did you mean {folder!r}?" if folder else f"did you mean {close!r}? `heed data get {close}` fetches it"


def refuse_streams(paths: Iterable[Path]) -> None:
    """Training reads its files to check them, to learn a vocabulary and to encode them; a pipe gives its text once."""
    for path in paths:
        try:
            if not path.is_dir() and not is_rereadable(path):
                raise DataError(
                    f"{name_of(path)} is a pipe or a device, whose text can be read only once; expected a file",
                    hint="save it to a file first: cat … > FILE",
                )
        except OSError as error:
            raise unreadable(path, error) from error


def missing_split(folder: Path, name: str) -> DataError:
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    shown = ", ".join([*names[:SHOWN], *(["…"] if len(names) > SHOWN else [])])
    return DataError(f"{folder} has no {name} and no {name}.gz", hint=f"the files there are: {shown or 'none'}")


def splits_in(folder: str, languages: tuple[str, str]) -> dict[str, tuple[Path, Path]]:
    """The splits that a folder has in both languages, by the name that the files bear."""
    path = find_folder(folder)
    found: dict[str, dict[str, Path]] = {}
    for file in sorted(path.iterdir(), reverse=True):  # train.en comes after train.en.gz, and so it is preferred
        split, _, language = file.name.removesuffix(".gz").rpartition(".")
        if split and language in languages and file.is_file():
            found.setdefault(split, {})[language] = file
    source, target = languages
    return {split: (found[split][source], found[split][target]) for split in sorted(found) if len(found[split]) == 2}


def split_files(folder: str, split: str, languages: tuple[str, str]) -> tuple[Path, Path]:
    """The two files of a split: those of just that name, or else the only ones whose name begins with it."""
    there = splits_in(folder, languages)
    if split in there:
        return there[split]
    begins = [name for name in there if name.startswith(ALIASES.get(split, (split,)))]
    if len(begins) == 1:
        return there[begins[0]]
    if begins:
        raise DataError(
            f"{find_path(folder)} has several files for {split!r}: {', '.join(begins)}",
            hint=f'say which, for example split = "{begins[0]}" with folder and languages in [data.test]',
        )
    source, target = languages
    raise DataError(
        f"{find_path(folder)} has no {split}.{source}[.gz] with {split}.{target}[.gz]; "
        f"it has these splits in both languages: {', '.join(there) or 'none'}",
        hint="a file there is named <split>.<language> or <split>.<language>.gz",
    )


def read_sides(corpus: CorpusConfig) -> Iterator[RawPair]:
    """Two line-aligned files. That one of them is longer is known at the end of the shorter one."""
    source, target = files_of(corpus)
    refuse_same_file(source, target)
    sides = zip_longest(read_lines(source), read_lines(target))
    for line, (left, right) in enumerate(sides, start=1):
        if left is None or right is None:
            longer = line + sum(1 for _ in sides)
            counts = (line - 1, longer) if left is None else (longer, line - 1)
            raise DataError(
                f"{source} has {counts[0]:,} lines, but {target} has {counts[1]:,}; "
                "line n of the one must translate line n of the other",
                hint="look for a line that was lost, added or cut in two",
            )
        yield RawPair(line, left, right)


def refuse_same_file(source: Path, target: Path) -> None:
    if source.is_file() and target.is_file() and source.samefile(target):
        raise DataError(
            f"{source} and {target} are one file; expected a source and its translation",
            hint="check the names of source and target",
        )


def read_tsv(corpus: CorpusConfig) -> Iterator[RawPair]:
    (path,) = files_of(corpus)
    source, target = corpus.columns or (1, 2)
    for line, text in enumerate(read_lines(path), start=1):
        cells = text.split(b"\t")
        if len(cells) < max(source, target):
            raise DataError(
                f"{path} line {line} has {len(cells)} column{'s' * (len(cells) != 1)}, "
                f"but column {max(source, target)} is wanted",
                hint="columns are apart by tabs and counted from 1; `columns = [1, 2]` says which two are read",
            )
        yield RawPair(line, cells[source - 1], cells[target - 1])


def read_jsonl(corpus: CorpusConfig) -> Iterator[RawPair]:
    (path,) = files_of(corpus)
    source, target = corpus.fields or ("source", "target")
    for line, raw in enumerate(read_lines(path), start=1):
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            yield RawPair(line, raw, raw)  # the bytes tell what is wrong with them
            continue
        record = parse_json(text, f"{path} line {line}", hint="one JSON object a line, without blank lines")
        yield RawPair(
            line,
            *(field_of(record, field, f"{path} line {line}").encode("utf-8", "surrogatepass") for field in (source, target)),
        )


def field_of(record: Any, field: str, place: str) -> str:
    """record["a.b"], or else record["a"]["b"]; it must be a text."""
    if not isinstance(record, dict):
        raise DataError(f"{place} is not an object but {record!r:.40}", hint='expected {"source": …, "target": …}')
    value: Any = record
    for key in [field] if field in record else field.split("."):
        if not isinstance(value, dict) or key not in value:
            close = nearest(field, record)
            raise DataError(
                f"{place} has no field {field!r}; it has: {', '.join(map(repr, record)) or 'none'}",
                hint=f"did you mean {close!r}?" if close else 'fields = ["…", "…"] names the two that are read',
            )
        value = value[key]
    if not isinstance(value, str):
        raise DataError(f"{place}: field {field!r} is {value!r:.40}; expected a text")
    return value


def read_builtin(corpus: CorpusConfig) -> Iterator[RawPair]:
    from heedful.data.grammar import generate  # only those who use the grammar wait for its word lists

    assert corpus.count is not None, "a built-in corpus has a count"
    split = cast(Literal["train", "valid", "test"], corpus.split or "train")  # the config has seen to it
    sentences = generate(split, corpus.count, corpus.seed or 0)
    for line, sentence in enumerate(sentences, start=1):
        yield RawPair(line, sentence.source.encode(), sentence.target.encode())


READERS: dict[str, Callable[[CorpusConfig], Iterator[RawPair]]] = {
    "source": read_sides,
    "tsv": read_tsv,
    "jsonl": read_jsonl,
    "folder": read_sides,
    "builtin": read_builtin,
}
