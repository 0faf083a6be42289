from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from heedful.data.row_files import check_file, find_split_file, scan_file
from heedful.data.spans import Answer, Question, SpansConfig, spans_form
from heedful.errors import DataError

CONTEXT = "The key is in the box, the red box."
RECORD = {"question": "Where?", "context": CONTEXT, "answer": "in the box", "answer_start": 11}


def config(path: Path, **options: object) -> SpansConfig:
    table = {"file": str(path)}
    valid = {} if "split" in options else {"valid": table}
    return SpansConfig.model_validate({"form": "spans", "train": table} | valid | options)


def read(path: Path, *records: Mapping[str, object], **options: object) -> list[Question]:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    data = config(path, **options)
    file = find_split_file(data, "train")
    assert file is not None
    return scan_file(data, file, spans_form(data)).examples


def test_one_answer_several_answers_and_nested_fields(tmp_path: Path) -> None:
    path, expected = tmp_path / "a.jsonl", Question("Where?", CONTEXT, (Answer("in the box", 11),))
    assert read(path, RECORD) == [expected]
    several = RECORD | {"answer": ["in the box", "box"], "answer_start": [11, 31]}
    assert read(path, several) == [expected._replace(answers=(Answer("in the box", 11), Answer("box", 31)))]
    nested = {"q": "Where?", "context": CONTEXT, "answers": {"text": ["in the box"], "answer_start": [11]}}
    names = {"question": "q", "answer": "answers.text", "answer_start": "answers.answer_start"}
    assert read(path, nested, **names) == [expected]


def test_tables_have_one_answer_in_each_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f'question,context,answer,answer_start\nWhere?,"{CONTEXT}",in the box,11\n')
    (tmp_path / "a.tsv").write_text(f"Where?\t11\tin the box\t{CONTEXT}\n")
    numbers = {"question": 1, "answer_start": 2, "answer": 3, "context": 4}
    for name, options in (("a.csv", {}), ("a.tsv", numbers)):
        data = config(tmp_path / name, **options)
        file = find_split_file(data, "train")
        assert file is not None
        assert scan_file(data, file, spans_form(data)).examples == [Question("Where?", CONTEXT, (Answer("in the box", 11),))]


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        (
            {"answer_start": 10},
            "at character 10 the context has ' in the bo'; expected the answer, 'in the box'",
            "character 11",
        ),
        ({"answer": "on top"}, "at character 11 the context has 'in the'; expected the answer", "does not contain it"),
        ({"answer_start": "x"}, "field 'answer_start' is \"x\"; expected an integer from 0", ""),
        ({"answer_start": -1}, "field 'answer_start' is -1; expected an integer from 0", ""),
        ({"answer_start": [1, 2]}, r"is \[1, 2\]; expected an integer from 0", ""),
        ({"answer": ["box", "red"]}, "expected a list of 2 integers", ""),
        ({"question": 3}, "field 'question' is 3; expected a string", ""),
    ],
)
def test_a_wrong_answer_is_an_error_with_file_and_line(
    change: dict[str, object], message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=rf"a\.jsonl line 2: .*{message}") as caught:
        read(tmp_path / "a.jsonl", RECORD, RECORD | change)
    assert hint in (caught.value.hint or "")


def test_a_question_without_answer_is_unusable(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert len(read(path, RECORD, RECORD | {"answer": [], "answer_start": []}, RECORD | {"question": ""})) == 1
    data = config(path)
    file = find_split_file(data, "train")
    assert file is not None
    report = check_file(data, "train", file, spans_form(data))
    assert (report.total, report.kept, report.findings[0].count) == (3, 1, 2)


def test_a_hash_split_keeps_the_questions_of_a_context_together(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records = [
        {"question": f"Where {i}?", "context": f"word{i // 4}", "answer": f"word{i // 4}", "answer_start": 0} for i in range(40)
    ]
    assert len(read(path, *records)) == 40
    data = config(path, split=[0.5, 0.3, 0.2])
    parts = []
    for split in ("train", "valid", "test"):
        file = find_split_file(data, split)
        assert file is not None
        parts.append({one.context for one in scan_file(data, file, spans_form(data)).examples})
    assert sum(map(len, parts)) == len(set.union(*parts)) == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 64, "max_length": 64}, "expected less than max_length = 64"),
        ({"max_length": 6, "stride": 2}, "given 6, expected at least 8"),
        ({"answer": "context"}, "expected four columns that differ"),
        ({"question": 1}, "expected names, because train is a .jsonl file"),
    ],
)
def test_options_that_do_not_fit_are_errors(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config(Path("a.jsonl"), **options)
