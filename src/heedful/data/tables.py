"""Columns of tables (Parquet files and Hugging Face datasets) as text.

A column is given by its name. A dot selects a field of a nested column: `translation.en`; the fields of a column named
`translation` may be given without it: `en`. A row with a null is counted as unusable and skipped.

The splits of a dataset are those of its dataset_dict.json, or the names of its Parquet files: train-00000-of-00002.parquet,
train.parquet, train/0.parquet. A dataset that was saved without splits is used as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heedful.errors import DataError, nearest
from heedful.storage.tables import STATE, import_arrow, read_batches, read_json, read_schema, table_files

SPLITS = "dataset_dict.json"
SHARD = re.compile(r"(?P<split>.+?)-\d+-of-\d+\.parquet")
NESTED = "translation"

Cell = bytes | None  # UTF-8, unless the file is damaged; None: null


class Column(NamedTuple):
    name: str
    path: tuple[str, ...]  # the column, and the fields inside it
    kind: Any  # pyarrow's type


def dataset_splits(folder: Path) -> dict[str, Path]:
    """The path of each split of a dataset; none if it was saved without splits."""
    if (folder / SPLITS).exists():
        names = read_json(folder / SPLITS).get("splits")
        return {name: folder / name for name in names if isinstance(name, str)} if isinstance(names, list) else {}
    if (folder / STATE).exists():
        return {}
    splits: dict[str, Path] = {}
    for parent in (folder, folder / "data"):
        for path in sorted(parent.iterdir()) if parent.is_dir() else ():
            if path.is_dir() and any(path.glob("*.parquet")):
                splits.setdefault(path.name, path)
            elif shard := SHARD.fullmatch(path.name):
                splits.setdefault(shard["split"], parent / f"{shard['split']}-*.parquet")
            elif path.suffix == ".parquet":
                splits.setdefault(path.stem, path)
    if not splits:
        raise DataError(
            f"{folder} is no dataset: it has no {SPLITS}, no {STATE} and no Parquet file",
            hint="expected a folder written by save_to_disk, or a folder of Parquet files",
        )
    return splits


def split_path(folder: Path, split: str | None, prefixes: tuple[str, ...]) -> Path:
    """The table of a split: of exactly that name, or else the only one whose name starts with a prefix."""
    splits = dataset_splits(folder)
    if not splits:
        if split is not None:
            raise DataError(f"{folder} was saved without splits, but split = {split!r} is given", hint="remove split")
        return folder
    matching = [name for name in splits if name == split] or [name for name in splits if name.startswith(prefixes)]
    if len(matching) != 1:
        problem = f"several splits for {split!r}: {', '.join(matching)}" if matching else f"no split {split!r}"
        raise DataError(f"{folder} has {problem}; its splits are: {', '.join(splits)}", hint='choose one with split = "…"')
    return splits[matching[0]]


def read_rows(path: Path, texts: Sequence[str], label: str | None = None) -> Iterator[tuple[Cell, ...]]:
    """Yield the cells of every row: that of the label first, if one is given, then those of the texts."""
    empty = True
    for file in table_files(path):
        schema = read_schema(file)
        columns = [find_column(schema, name, file) for name in texts]
        for column in columns:
            refuse_other_than_text(column, file)
        labels = None if label is None else find_column(schema, label, file)
        names = class_names(schema, labels)
        chosen = [*([] if labels is None else [labels]), *columns]
        for batch in read_batches(file, [column.path[0] for column in chosen]):
            cells = [text_cells(select(batch, column)) for column in columns]
            if labels is not None:
                cells.insert(0, label_cells(select(batch, labels), labels, names, file))
            for row in zip(*cells, strict=True):
                empty = False
                yield row
    if empty:
        raise DataError(f"{path} is empty; expected at least one row")


def find_column(schema: Any, name: str, file: Path) -> Column:
    """The column of this name; DataError with the columns that exist."""
    known = {column.name: column for column in columns_of(schema)}
    for candidate in (name, f"{NESTED}.{name}"):
        if candidate in known:
            return known[candidate]
    close = nearest(name, known)
    raise DataError(
        f"{file} has no column {name!r}; its columns are: {', '.join(known) or 'none'}",
        hint=f"did you mean {close!r}?" if close else None,
    )


def columns_of(schema: Any) -> list[Column]:
    """All columns; a nested one is listed as its fields."""
    arrow = import_arrow()[0]
    found = []
    waiting = [Column(field.name, (field.name,), field.type) for field in reversed(schema)]
    while waiting:
        column = waiting.pop()
        if arrow.types.is_struct(column.kind):
            fields = [column.kind.field(number) for number in range(column.kind.num_fields)]
            waiting += [
                Column(f"{column.name}.{field.name}", (*column.path, field.name), field.type) for field in reversed(fields)
            ]
        else:
            found.append(column)
    return found


def text_columns(path: Path) -> list[str]:
    """The names of the columns that have text."""
    return [column.name for column in columns_of(read_schema(table_files(path)[0])) if is_text(column.kind)]


def is_text(kind: Any) -> bool:
    types = import_arrow()[0].types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def refuse_other_than_text(column: Column, file: Path) -> None:
    if not is_text(column.kind):
        raise DataError(f"{file}: column {column.name!r} has the type {column.kind}; expected text")


def class_names(schema: Any, column: Column | None) -> list[str] | None:
    """The names of the classes, if the column is a ClassLabel of Hugging Face datasets."""
    if column is None or not schema.metadata or b"huggingface" not in schema.metadata:
        return None
    try:
        feature = json.loads(schema.metadata[b"huggingface"])["info"]["features"][column.path[0]]
        for name in column.path[1:]:
            feature = feature[name]
        return [str(name) for name in feature["names"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def select(batch: Any, column: Column) -> Any:
    """The array of a column; a field of a null is null."""
    array = batch.column(column.path[0])
    if len(column.path) == 1:
        return array
    import pyarrow.compute

    return pyarrow.compute.struct_field(array, list(column.path[1:]))


def text_cells(array: Any) -> list[Cell]:
    """The bytes of each text; pyarrow does not check that they are UTF-8."""
    arrow = import_arrow()[0]
    if arrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if arrow.types.is_string_view(array.type):
        array = array.cast(arrow.large_string())
    large = arrow.types.is_large_string(array.type)
    cells: list[Cell] = array.cast(arrow.large_binary() if large else arrow.binary()).to_pylist()
    return cells


def label_cells(array: Any, column: Column, names: list[str] | None, file: Path) -> list[Cell]:
    """Labels as text: the name of a class, a text as it is, an integer in digits, true or false."""
    types = import_arrow()[0].types
    if is_text(column.kind):
        return text_cells(array)
    if types.is_boolean(column.kind):
        return [None if value is None else (b"true" if value else b"false") for value in array.to_pylist()]
    if not types.is_integer(column.kind):
        raise DataError(f"{file}: column {column.name!r} has the type {column.kind}; expected text, integers or booleans")
    if names is None:
        return [None if value is None else str(value).encode() for value in array.to_pylist()]
    return [class_name(value, names, column, file) for value in array.to_pylist()]


def class_name(value: int | None, names: list[str], column: Column, file: Path) -> Cell:
    if value is None or value == -1:  # -1: datasets without labels, such as public test sets
        return None
    if not 0 <= value < len(names):
        raise DataError(f"{file}: column {column.name!r} has the class {value}; expected one of 0 to {len(names) - 1}")
    return names[value].encode()
