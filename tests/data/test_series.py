"""Tables of time series: what is read, and one sentence with file, line and column for what is not."""

from __future__ import annotations

from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful.data.series import SeriesConfig, check_split, find_split_file, part_bounds, read_split
from heedful.errors import DataError

GOOD = "date,a,b\n2024-01-01,1,2\n2024-01-02,3,4\n2024-01-03,5,6.5\n2024-01-04,7,8\n"


def config_of(folder: Path, content: str | bytes, **options: Any) -> SeriesConfig:
    file = folder / "series.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    given: dict[str, Any] = {"form": "series", "train": {"file": str(file)}, "time": "date"} | options
    return SeriesConfig.model_validate(given if "parts" in given else given | {"valid": {"file": str(file)}})


def read(data: SeriesConfig, split: str = "train") -> Any:
    source = find_split_file(data, split)
    assert source is not None
    return read_split(data, source)[0]


def test_names_values_and_times_are_read(tmp_path: Path) -> None:
    table, first = read(config_of(tmp_path, GOOD))
    assert (table.names, table.times[-1], first) == (("a", "b"), "2024-01-04", 0)
    assert np.array_equal(table.values, np.array([[1, 2], [3, 4], [5, 6.5], [7, 8]], np.float32))


def test_a_file_without_header_and_time_has_numbered_columns(tmp_path: Path) -> None:
    table, _ = read(config_of(tmp_path, "1,2\n3,4\n", header=False, time=None))
    assert (table.names, table.times, table.values.tolist()) == (("1", "2"), (), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("5,6.5", "5,six", r"series.csv line 4, column 'b': 'six' is not a number"),
        ("5,6.5", "5,inf", r"series.csv line 4, column 'b': 'inf' is out of range"),
        ("5,6.5", "5,", r"series.csv line 4: the value of column 'b' is missing"),
        ("5,6.5", "5,NaN", r"series.csv line 4: the value of column 'b' is missing"),
        ("5,6.5", "5", r"series.csv line 4 has 2 columns; expected 3"),
        ("2024-01-03", "2024-01-02", r"series.csv line 4, column 'date': 2024-01-02 00:00:00 is not after"),
        ("2024-01-03", "2023-01-03", r"series.csv line 4, column 'date': 2023-01-03 00:00:00 is not after"),
        ("2024-01-03", "3 January", r"series.csv line 4, column 'date': '3 January' is not a time"),
        ("2024-01-03", "2024-01-03 00:00+00:00", r"line 4, column 'date': only one of .* has a time zone"),
        ("date,a,b", "date,a,a", r"series.csv line 1 has two columns named 'a'"),
        ("date,a,b", "date,,b", r"series.csv line 1 has no name for column 2"),
        ("date,a,b", "date;a;b", r"series.csv line 1 is separated by semicolons; expected commas: 'date;a;b'"),
        ("date,a,b", "day,a,b", r"series.csv line 1 has no column 'date'; its columns are: day, a, b"),
        (GOOD[9:], "", r"series.csv has no rows"),
        ("5,6.5", "5,caf\udce9", r"series.csv line 4: byte 17 is not UTF-8"),
        ("2024-01-03,", "2024-01-03\r,", r"series.csv line 4 has a carriage return inside the line"),
        ("5,6.5", f"5,{'1' * 200_000}", r"series.csv line 4"),
        ("\n2024-01-04,7,8", "", r"series.csv has 3 rows for train; expected at least 4"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_file_line_and_column(
    before: str, after: str, sentence: str, tmp_path: Path
) -> None:
    assert GOOD.count(before) == 1
    data = config_of(tmp_path, GOOD.replace(before, after).encode(errors="surrogateescape"))
    source = find_split_file(data, "train")
    assert source is not None
    with pytest.raises(DataError, match=sentence) as raised:
        check_split(data, "train", source, least=4)
    assert "\n" not in raised.value.args[0]


def test_missing_cells_are_filled_from_the_row_before_where_it_is_allowed(tmp_path: Path) -> None:
    data = config_of(tmp_path, GOOD.replace("5,6.5", "5,"), max_unusable=0.25)
    source = find_split_file(data, "train")
    assert source is not None
    (finding,) = check_split(data, "train", source, least=1).findings
    assert (finding.count, finding.action, finding.examples[0].place.endswith("line 4")) == (1, "filled", True)
    assert read(data).table.values[2].tolist() == [5, 4]
    with pytest.raises(DataError, match=r"1 of 4 train rows have missing values"):
        check_split(data.model_copy(update={"max_unusable": 0.2}), "train", source, least=1)


def test_a_missing_cell_is_counted_among_the_rows_of_its_own_part(tmp_path: Path) -> None:
    data = config_of(tmp_path, GOOD.replace("5,6.5", "5,"), parts=(2, 1, 1), max_unusable=1.0)
    sources = {split: find_split_file(data, split) for split in ("train", "valid", "test")}
    found = {split: check_split(data, split, source, least=1).findings for split, source in sources.items() if source}
    assert [[one.count for one in found[split] if one.kind == "blank"] for split in found] == [[], [1], []]
    strict = data.model_copy(update={"max_unusable": 0.5})
    assert sources["valid"] is not None
    with pytest.raises(DataError, match=r"line 4: .*; 1 of 1 valid rows have missing values"):
        check_split(strict, "valid", sources["valid"], least=1)


@pytest.mark.parametrize("parts", [(2, 1, 1), (0.5, 0.25, 0.25)])
def test_parts_are_in_the_order_of_time_and_later_ones_keep_the_rows_before(parts: tuple[float, ...], tmp_path: Path) -> None:
    data = config_of(tmp_path, GOOD, parts=parts)
    found = {split: read(data, split) for split in ("train", "valid", "test")}
    assert [(part.first, len(part.table.values)) for part in found.values()] == [(0, 2), (2, 3), (3, 4)]
    assert found["test"].table.times[0] == "2024-01-01"


def test_fractions_leave_out_no_row() -> None:
    for rows in range(3, 50):
        bounds = [part_bounds((0.7, 0.1, 0.2), name, rows) for name in ("train", "valid", "test")]
        assert bounds[0][0] == 0 and bounds[-1][1] == rows
        assert all(one[1] == other[0] for one, other in pairwise(bounds))


def test_generated_splits_differ_and_are_the_same_every_time() -> None:
    data = SeriesConfig.model_validate(
        {"form": "series", "builtin": "brownian", "counts": {"train": 50, "valid": 50, "test": 50}}
    )
    train, again, test = read(data), read(data), read(data, "test")
    assert np.array_equal(train.table.values, again.table.values) and train.table.names == ("x", "y", "z")
    assert not np.array_equal(train.table.values, test.table.values)


@pytest.mark.parametrize("marker", ["", "n/a", "NA", "NaN", "null", "#N/A"])
def test_the_usual_markers_are_missing_values(marker: str, tmp_path: Path) -> None:
    rows = "date,a\n2024-01-01,1\n2024-01-02,2\n2024-01-03,{}\n2024-01-04,4\n"
    part = read(config_of(tmp_path, rows.format(marker), time="date"))
    assert part.table.values[:, 0].tolist() == [1, 2, 2, 4]
    hints = {"date": "correct it; in training data", None: 'set data.time = "date" if it is the time, or correct it'}
    for time, hint in hints.items():
        with pytest.raises(DataError) as error:
            read(config_of(tmp_path, rows.format("four"), time=time))
        assert str(error.value.hint).startswith(hint)


def test_gaps_and_constant_columns_are_reported_and_kept(tmp_path: Path) -> None:
    days = [f"2024-01-{day:02}" for day in range(1, 20) if day not in (5, 9, 10)]
    table = "date,a,b\n" + "".join(f"{day},{at},7\n" for at, day in enumerate(days))
    data = config_of(tmp_path, table, time="date")
    source = find_split_file(data, "train")
    assert source is not None
    gap, constant = check_split(data, "train", source, least=4).findings
    assert (gap.kind, gap.count, gap.action) == ("gap", 2, "kept")
    assert [one.text for one in gap.examples] == [
        "nothing between 2024-01-04 and 2024-01-06",
        "nothing between 2024-01-08 and 2024-01-11",
    ]
    assert (constant.kind, [one.text for one in constant.examples]) == ("constant", ["column 'b'"])


def test_weekends_are_no_gaps_in_daily_data(tmp_path: Path) -> None:
    days = [date(2024, 1, 1) + timedelta(days=at) for at in range(60)]
    rows = [f"{day},{at}\n" for at, day in enumerate(days) if day.weekday() < 5]
    data = config_of(tmp_path, "date,a\n" + "".join([*rows[:12], *rows[20:]]), time="date")  # a week and a half are missing
    source = find_split_file(data, "train")
    assert source is not None
    (gap,) = check_split(data, "train", source, least=4).findings
    assert [one.text for one in gap.examples] == ["nothing between 2024-01-16 and 2024-01-29"]
