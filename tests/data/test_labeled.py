from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pytest

from heedful.data.hash_split import split_by_hash
from heedful.data.labeled import (
    Example,
    LabeledConfig,
    LabeledFile,
    check_examples,
    find_split_file,
    scan_examples,
)
from heedful.data.labeled import read_examples as read_file
from heedful.errors import DataError


def config(**options: object) -> LabeledConfig:
    tables = {split: {"file": "a.tsv"} for split in ("train", "valid")}
    return LabeledConfig.model_validate({"form": "labeled"} | tables | options)


def named(**options: object) -> LabeledConfig:
    """Columns with names."""
    return config(**{"train": {"file": "a.csv"}, "valid": {"file": "a.csv"}, "label": "label", "texts": ["text"]} | options)


def read_examples(data: LabeledConfig, path: Path, labels: tuple[str, ...] | None = None) -> list[Example]:
    return read_file(data, LabeledFile(path, "tsv"), labels)


@pytest.mark.parametrize("first", ["label\ttext", "Sentiment\tReview", "sentence\tlabel"])
def test_a_header_is_an_error_or_skipped(tmp_path: Path, first: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(f"{first}\n" + "good\tfine\nbad\tawful\n" * 3)
    with pytest.raises(DataError, match="line 1 looks like a header") as caught:
        read_examples(config(), path)
    assert caught.value.hint is not None and "data.header = true" in caught.value.hint
    label, text = first.split("\t")
    data = config(header=True, label=label, texts=[text])
    assert read_examples(data, path) == [Example(("good",), ("fine",)), Example(("bad",), ("awful",))] * 3
    assert len(read_examples(config(header=False), path)) == 7


def test_a_first_line_like_the_others_is_not_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    for text in ("0\tx\n1\ty\n", "0\tx\n1\ty\n0\tz\n", "2\tx\n" + "0\ty\n2\tx\n" * 3):
        path.write_text(text)
        assert len(read_examples(config(), path)) == text.count("\n")


def test_an_unknown_label_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("label\ttext\ngood\tfine\nbad\tawful\ngod\tgreat\nmeh\tdull\n")
    data = config(header=True, label="label", texts=["text"])
    assert len(read_examples(data, path)) == 4
    with pytest.raises(DataError, match=r"a\.tsv line 4 has the label 'god'; expected one of: good, bad") as caught:
        read_examples(data, path, ("good", "bad"))
    assert caught.value.hint == "did you mean 'good'?"


def test_a_missing_file_is_an_error_that_lists_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEED_DATA", raising=False)
    data = LabeledConfig(form="labeled", folder="reviews")
    for split in ("train", "test"):
        with pytest.raises(DataError, match="there is no folder 'reviews' in the working directory"):
            find_split_file(data, split)
    Path("reviews").mkdir()
    (tmp_path / "reviews/training.tsv").write_text("")
    with pytest.raises(DataError) as caught:
        find_split_file(data, "train")
    assert str(caught.value) == (
        "reviews has no train.tsv and no train.tsv.gz; its files are: training.tsv\n\n"
        "hint: rename the file to train.tsv, or give its path in [data]"
    )
    assert find_split_file(data, "test") is None


UNUSABLE = {
    b"\tfine": "column {label!r} is empty; expected a label",
    "yes\t \u00a0".encode(): "column {text!r} is empty; expected a text",
    b"yes\xe9\tfine": "byte 4 is not UTF-8",
    b"yes\tg\0od": "the text contains a NUL byte",
}


@pytest.mark.parametrize("line", UNUSABLE)
@pytest.mark.parametrize("header", [True, False])
def test_an_unusable_line_is_skipped_and_reported(tmp_path: Path, line: bytes, header: bool) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"no\tgood\n" + line + b"\n" + b"no\tbad\n" * 2)
    label, text = ("no", "good") if header else (1, 2)
    data = config(header=header, label=label, texts=[text])
    assert read_examples(data, path) == [Example(("no",), ("good",)), *[Example(("no",), ("bad",))] * 2][header:]
    check = check_examples(data, "train", LabeledFile(path, "tsv"), ("no", "yes"))
    assert (check.total, check.kept, check.remark) == (4 - header, 3 - header, f"no: {3 - header}, yes: 0")
    (finding,) = check.findings
    assert (finding.count, finding.action) == (1, "skipped")
    assert finding.examples[0] == (f"{path} line 2", UNUSABLE[line].format(label=label, text=text))
    with pytest.raises(
        DataError, match="line 2 has 1 cell; expected 2" if header else "line 2 has 1 column; expected at least 2"
    ):
        path.write_bytes(b"no\tgood\nno\n")
        read_examples(data, path)


def test_lines_after_an_unusable_one_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("\tgood\nno\tgood\nmaybe\tgood\n")
    with pytest.raises(DataError, match=r"a\.tsv line 3 has the label 'maybe'"):
        read_examples(config(), path, ("no", "yes"))


ROWS: list[tuple[tuple[str, ...], str]] = [(("yes",), 'good,\n"so" good'), (("no",), "bäd\tfilm"), (("yes",), " fine ")]


def as_csv(rows: list[tuple[tuple[str, ...], str]]) -> str:
    output = io.StringIO(newline="")
    csv.writer(output).writerows([["id", "text", "label"], *([at, text, label] for at, ((label,), text) in enumerate(rows))])
    return output.getvalue()


def as_jsonl(rows: list[tuple[tuple[str, ...], str]]) -> str:
    return "".join(json.dumps({"text": text, "n": 1, "label": list(labels)}) + "\n" for labels, text in rows)


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(("suffix", "content"), [("csv", as_csv(ROWS)), ("jsonl", as_jsonl(ROWS))])
def test_named_columns_of_csv_and_jsonl_are_read_with_every_character(
    tmp_path: Path, suffix: str, content: str, packed: str
) -> None:
    for name, given in ((f"a.{suffix}{packed}", {}), ("reviews", {"format": suffix})):
        (tmp_path / name).write_bytes(gzip.compress(content.encode()) if packed else content.encode())
        table = {"file": str(tmp_path / name)} | given
        file = find_split_file(named(train=table, valid=table), "train")
        assert file is not None
        assert read_file(named(), file) == [Example(labels, (text,)) for labels, text in ROWS]


def test_the_line_of_a_csv_row_is_the_one_where_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('label,text\nyes,"one\ntwo\nthree"\n\nno,\nyes,four\n')
    lines, unusable = scan_examples(named(), LabeledFile(path, "csv"))
    assert [(line, example.texts) for line, example in lines] == [(2, ("one\ntwo\nthree",)), (7, ("four",))]
    assert [(example.place, example.text) for finding in unusable.findings() for example in finding.examples] == [
        (f"{path} line 5", "the line is empty; expected a row"),
        (f"{path} line 6", "column 'text' is empty; expected a text"),
    ]


def test_a_cell_or_a_list_has_several_labels(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,text\nred | round,ball\n,air\nred,rose\n")
    several = [Example(("red", "round"), ("ball",)), Example((), ("air",)), Example(("red",), ("rose",))]
    path = tmp_path / "a.jsonl"
    csv_file, jsonl_file = LabeledFile(tmp_path / "a.csv", "csv"), LabeledFile(path, "jsonl")
    data = named(label_separator="|")
    assert read_file(data, csv_file, ("red", "round"), several=True) == several
    labels = '["red", "round"]', "[]", '"red"'
    lines = [f'{{"label": {label}, "text": "{example.texts[0]}"}}\n' for label, example in zip(labels, several, strict=True)]
    path.write_text("".join(lines))
    assert read_file(named(), jsonl_file, several=True) == several
    path.write_text("".join(lines[1:]))
    assert read_file(named(), jsonl_file) == several[2:]  # where one label is expected, a text without any is unusable
    for one, file in ((data, csv_file), (named(), jsonl_file)):
        path.write_text("".join(lines))
        with pytest.raises(DataError, match=r"line [12] has 2 labels: red, round; expected one"):
            read_file(one, file)


def test_labels_in_json_are_strings_integers_and_booleans(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"label": {label}, "text": "x"}}\n' for label in ('"a"', "3", "true", "[false, 1]", "null")))
    lines, unusable = scan_examples(named(), LabeledFile(path, "jsonl"), several=True)
    assert [example.labels for _, example in lines] == [("a",), ("3",), ("true",), ("false", "1")]
    assert unusable.total == 1


def test_a_file_is_split_into_parts_that_are_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    texts = [f"word{at} text{at}" for at in range(200)]
    path.write_text("label,text\n,lost\n" + "".join(f"{'yes' if at % 2 else 'no'},{text}\n" for at, text in enumerate(texts)))
    columns = {"form": "labeled", "label": "label", "texts": ["text"]}
    data = LabeledConfig.model_validate(columns | {"train": {"file": str(path)}, "split": [0.5, 0.25, 0.25]})
    parts = {}
    for split in ("train", "valid", "test"):
        file = find_split_file(data, split)
        assert file is not None
        parts[split] = [example.texts[0] for example in read_file(data, file)]
        check = check_examples(data, split, file, ("no", "yes"))
        assert (check.kept, check.total) == (len(parts[split]), len(parts[split]) + (split == "train"))  # one is unusable
    assert sorted(text for part in parts.values() for text in part) == sorted(texts)
    of = dict(zip(texts, split_by_hash(texts, (0.5, 0.25, 0.25)), strict=True))
    assert all(of[text] == split for split, part in parts.items() for text in part)
    path.write_text("label,text\nyes,one\n")
    with pytest.raises(DataError, match=r"a\.csv has no example for \w+ with data\.split"):
        for split in ("train", "valid", "test"):
            file = find_split_file(data, split)
            assert file is not None
            check_examples(data, split, file, ("no", "yes"))
