"""Files of tables: their order, and one sentence for each file that cannot be read."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heedful.errors import ConfigError, DataError
from heedful.storage.tables import read_batches, read_schema, table_files


def write_parquet(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": ["x", "y"]}), path)
    return path


def write_saved(folder: Path, state: object) -> Path:
    folder.mkdir()
    (folder / "state.json").write_text(json.dumps(state))
    return folder


def test_the_files_of_a_pattern_and_a_folder_are_sorted_by_name(tmp_path: Path) -> None:
    names = ["part-2.parquet", "part-0.parquet", "part-1.parquet"]
    for name in names:
        write_parquet(tmp_path / name)
    (tmp_path / "notes.txt").touch()
    assert [file.name for file in table_files(tmp_path)] == sorted(names)
    assert [file.name for file in table_files(tmp_path / "part-[12]*.parquet")] == sorted(names)[1:]


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "what?.parquet")
    write_parquet(tmp_path / "whats.parquet")
    assert table_files(path) == [path]


def test_the_files_of_a_saved_dataset_are_those_of_its_state_in_that_order(tmp_path: Path) -> None:
    folder = write_saved(tmp_path / "saved", {"_data_files": [{"filename": "b.arrow"}, {"filename": "../a.arrow"}]})
    (folder / "unrelated.arrow").touch()
    assert table_files(folder) == [folder / "b.arrow", folder / "a.arrow"], "no file outside of the folder"


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({}, "does not list the files of a dataset"),
        ({"_data_files": [3]}, "does not list the files of a dataset"),
        ([], "expected a JSON object"),
        ({"_indices_files": [{"filename": "indices.arrow"}], "_data_files": []}, "an index of selected rows"),
    ],
)
def test_a_damaged_state_is_an_error(tmp_path: Path, state: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        table_files(write_saved(tmp_path / "saved", state))


def test_a_folder_without_tables_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no Parquet file"):
        table_files(tmp_path)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"not a table, but text of some length\n" * 9])
def test_a_damaged_file_is_an_error_of_one_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} cannot be read as (Parquet|Arrow): ") as caught:
        read_schema(tmp_path / name)
    assert "\n" not in caught.value.args[0]


def test_a_truncated_stream_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    table = pa.table({"a": [f"text {number}" for number in range(5000)]})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=1000)
    assert sum(batch.num_rows for batch in read_batches(path, ["a"])) == 5000
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"a\.arrow cannot be read as Arrow"):
        list(read_batches(path, ["a"]))


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="need pyarrow, which is not installed") as caught:
        read_schema(path)
    assert caught.value.hint == "pip install 'heedful[datasets]'"
