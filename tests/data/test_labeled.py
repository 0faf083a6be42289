from __future__ import annotations

from pathlib import Path

import pytest

from heedful.data.labeled import Example, LabeledConfig, check_examples, find_split_file, read_examples
from heedful.errors import DataError


def config(**options: object) -> LabeledConfig:
    return LabeledConfig.model_validate({"form": "labeled", "train": "a", "valid": "a"} | options)


@pytest.mark.parametrize("first", ["label\ttext", "Sentiment\tReview", "sentence\tlabel"])
def test_a_header_is_an_error_or_skipped(tmp_path: Path, first: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(f"{first}\n" + "good\tfine\nbad\tawful\n" * 3)
    with pytest.raises(DataError, match="line 1 looks like a header") as caught:
        read_examples(config(), path)
    assert caught.value.hint == "set data.header = true to skip that line, or data.header = false to train on it"
    assert read_examples(config(header=True), path) == [Example("good", ("fine",)), Example("bad", ("awful",))] * 3
    assert len(read_examples(config(header=False), path)) == 7


def test_a_first_line_like_the_others_is_not_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    for text in ("0\tx\n1\ty\n", "0\tx\n1\ty\n0\tz\n", "2\tx\n" + "0\ty\n2\tx\n" * 3):
        path.write_text(text)
        assert len(read_examples(config(), path)) == text.count("\n")


def test_an_unknown_label_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("label\ttext\ngood\tfine\nbad\tawful\ngod\tgreat\nmeh\tdull\n")
    assert len(read_examples(config(header=True), path)) == 4
    with pytest.raises(DataError, match=r"a\.tsv line 4 has the label 'god'; expected one of: good, bad") as caught:
        read_examples(config(header=True), path, ("good", "bad"))
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
    b"\tfine": "column 1 is empty; expected a label",
    "yes\t \u00a0".encode(): "column 2 is empty; expected a text",
    b"yes\xe9\tfine": "byte 4 is not UTF-8",
    b"yes\tg\0od": "the text contains a NUL byte",
}


@pytest.mark.parametrize("line", UNUSABLE)
@pytest.mark.parametrize("header", [True, False])
def test_an_unusable_line_is_skipped_and_reported(tmp_path: Path, line: bytes, header: bool) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"no\tgood\n" + line + b"\n" + b"no\tbad\n" * 2)
    data = config(header=header)
    assert read_examples(data, path) == [Example("no", ("good",)), *[Example("no", ("bad",))] * 2][header:]
    check = check_examples(data, "train", path, ("no", "yes"))
    assert (check.total, check.kept, check.remark) == (4 - header, 3 - header, f"no: {3 - header}, yes: 0")
    (finding,) = check.findings
    assert (finding.count, finding.action) == (1, "skipped")
    assert finding.examples[0] == (f"{path} line 2", UNUSABLE[line])
    with pytest.raises(DataError, match="line 2 has 1 column; expected at least 2"):
        path.write_bytes(b"no\tgood\nno\n")
        read_examples(data, path)


def test_lines_after_an_unusable_one_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("\tgood\nno\tgood\nmaybe\tgood\n")
    with pytest.raises(DataError, match=r"a\.tsv line 3 has the label 'maybe'"):
        read_examples(config(), path, ("no", "yes"))
