"""Tables in Parquet and Arrow files, read with pyarrow, a batch of rows at a time.

The path of a table is one of

    train.parquet             a file
    data/train-*.parquet      a pattern: all files that match, in the order of their names
    data                      a folder of Parquet files
    imdb/train                a folder written by `save_to_disk` of Hugging Face datasets: state.json lists its Arrow files

Damaged files, and a missing pyarrow, are errors of one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError, DataError
from heedful.storage.reading import open_plain, read_bytes, unreadable

STATE = "state.json"  # of a saved dataset
ROWS = 4096  # of a batch


def is_pattern(path: Path) -> bool:
    """Whether the name stands for all files that match it."""
    return any(mark in path.name for mark in "*?") and not path.exists()


def table_files(path: Path) -> list[Path]:
    """The files of a table, in order."""
    if is_pattern(path):
        files = sorted(path.parent.glob(path.name)) if path.parent.is_dir() else []
        if not files:
            raise DataError(f"no file matches {path}", hint="check the name; * stands for any number of characters")
        return files
    if not path.is_dir():
        return [path]
    if (path / STATE).exists():
        return [path / name for name in saved_files(path)]
    files = sorted(path.glob("*.parquet"))
    if not files:
        raise DataError(f"{path} has no Parquet file and no {STATE} of a saved dataset; expected a folder of one of these")
    return files


def saved_files(folder: Path) -> list[str]:
    """The names of the Arrow files of a saved dataset."""
    state = read_json(folder / STATE)
    if state.get("_indices_files") or state.get("_indices_data_files"):
        raise DataError(
            f"{folder} was saved with an index of selected rows, which is not supported",
            hint="load it with datasets, and save the result of flatten_indices()",
        )
    try:
        return [Path(entry["filename"]).name for entry in state["_data_files"]]
    except (KeyError, TypeError) as error:
        raise DataError(f"{folder / STATE} does not list the files of a dataset") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a small JSON object that belongs to a dataset."""
    try:
        content = json.loads(read_bytes(path))
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is {content!r:.40}; expected a JSON object")
    return content


def read_schema(file: Path) -> Any:
    """The schema of a Parquet or Arrow file: names and types of its columns."""
    with open_table(file) as table:
        return table.schema_arrow if is_parquet(file) else table.schema


def read_batches(file: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Yield record batches with these columns."""
    names = list(dict.fromkeys(columns))
    with open_table(file) as table:
        if is_parquet(file):
            yield from table.iter_batches(ROWS, columns=names)
        else:
            for batch in table:
                yield from (batch.select(names).slice(at, ROWS) for at in range(0, batch.num_rows, ROWS))


def is_parquet(file: Path) -> bool:
    return file.suffix != ".arrow"


@contextmanager
def open_table(file: Path) -> Iterator[Any]:
    """Open a file with pyarrow; whatever it raises inside the block is a DataError."""
    arrow, ipc, parquet = import_arrow()
    form = "Parquet" if is_parquet(file) else "Arrow"
    try:
        with open_plain(file) as stream:
            yield parquet.ParquetFile(stream) if is_parquet(file) else ipc.open_stream(stream)
    except FileNotFoundError as error:
        raise unreadable(file, error) from error
    except (arrow.ArrowException, OSError, EOFError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(f"{file} cannot be read as {form}: {reason}", hint="copy or download it again") from error


def import_arrow() -> tuple[Any, Any, Any]:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            "Parquet files and datasets need pyarrow, which is not installed", hint="pip install 'heedful[datasets]'"
        ) from error
    return pyarrow, pyarrow.ipc, pyarrow.parquet
