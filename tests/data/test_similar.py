from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from heedful.data.row_files import check_file, find_split_file, scan_file
from heedful.data.similar import SimilarConfig, SimilarTexts, similar_form
from heedful.errors import DataError


def read(path: Path, **options: object) -> list[SimilarTexts]:
    table = {"file": str(path)}
    data = SimilarConfig.model_validate({"form": "similar", "train": table, "valid": table} | options)
    file = find_split_file(data, "train")
    assert file is not None
    return scan_file(data, file, similar_form(data)).examples


def test_all_formats_have_the_same_examples(tmp_path: Path) -> None:
    expected = [SimilarTexts("a cat", "one cat", ("a dog",)), SimilarTexts("a cow", "one cow")]
    contents = {
        "a.tsv": "a cat\tone cat\ta dog\na cow\tone cow\t\n",
        "b.tsv": "x\ty\tz\na cat\tone cat\ta dog\na cow\tone cow\t\n",
        "c.csv": "z,y,x\na dog,one cat,a cat\n,one cow,a cow\n",
        "d.jsonl": "".join(json.dumps({"x": a, "y": b, "z": list(c)}) + "\n" for a, b, c in expected),
        "e.jsonl": "".join(json.dumps({"x": a, "y": b, "z": next(iter(c), None)}) + "\n" for a, b, c in expected),
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        columns = [1, 2, 3] if name == "a.tsv" else ["x", "y", "z"]
        assert read(tmp_path / name, columns=columns) == expected


def test_a_hash_split_has_every_row_once_and_keeps_an_anchor_together(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"anchor {i // 2}\tpositive {i}\n" for i in range(200)))
    data = SimilarConfig.model_validate({"form": "similar", "train": {"file": str(path)}, "split": [0.6, 0.2, 0.2]})
    parts = []
    for split in ("train", "valid", "test"):
        file = find_split_file(data, split)
        assert file is not None
        parts.append(scan_file(data, file, similar_form(data)).examples)
        assert check_file(data, split, file, similar_form(data)).kept == len(parts[-1]) > 10
    assert sorted(one.positive for part in parts for one in part) == sorted(f"positive {i}" for i in range(200))
    anchors = [{one.anchor for one in part} for part in parts]
    assert not anchors[0] & anchors[1] and not anchors[0] & anchors[2] and not anchors[1] & anchors[2]


def test_empty_texts_are_unusable_and_wrong_types_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": "a", "y": "b"}\n{"x": " ", "y": "b"}\n')
    data = SimilarConfig.model_validate(
        {"form": "similar", "train": {"file": str(path)}, "valid": {"file": str(path)}, "columns": ["x", "y"]}
    )
    file = find_split_file(data, "train")
    assert file is not None
    report = check_file(data, "train", file, similar_form(data))
    assert (report.total, report.kept) == (2, 1)
    assert report.findings[0].examples[0].place == f"{path} line 2"
    path.write_text('{"x": "a", "y": "b"}\n{"x": 3, "y": "b"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl line 2: field 'x' is 3; expected a string"):
        read(path, columns=["x", "y"])
    with pytest.raises(DataError, match=r"a\.jsonl line 1 has no field 'z'") as caught:
        read(path, columns=["x", "z"])
    assert caught.value.hint is not None and "data.columns" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": [1]}, "at least 2"),
        ({"columns": [1, "b"]}, "expected names"),
        ({"train": {"file": "a.csv"}}, r"\[1, 2\] has numbers; expected names, because train is a .csv file"),
        ({"columns": [1, 1]}, "expected columns that differ"),
        ({"train": {"file": "a.txt"}}, "expected tsv, csv or jsonl"),
        ({"valid": None}, "missing; expected a table with a file, or data.split"),
        ({"split": [0.5, 0.5, 0.0]}, "data.split makes a valid part of data.train"),
        ({"split": [0.9, 0.0, 0.0]}, "whose sum is 0.9"),
    ],
)
def test_options_that_do_not_fit_are_errors(options: dict[str, object], message: str) -> None:
    given = {"form": "similar", "train": {"file": "a.tsv"}, "valid": {"file": "b.tsv"}} | options
    with pytest.raises(ValidationError, match=message):
        SimilarConfig.model_validate(given)
