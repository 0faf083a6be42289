from __future__ import annotations

from pathlib import Path

import pytest

from heedful.data.labeled import Example, LabeledConfig, find_split_file, read_examples
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


@pytest.mark.parametrize(
    ("line", "what"), [("\tfine", "column 1 is empty; expected a label"), ("1\t \u00a0", "column 2 is empty; expected a text")]
)
def test_an_example_without_label_or_text_is_an_error_with_its_line(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(f"0\tgood\n{line}\n")
    with pytest.raises(DataError, match=f"a.tsv line 2: {what}"):
        read_examples(config(), path)
