"""Images with captions: tables and folders agree; what cannot be used is one sentence with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful.data.captions import CaptionsConfig, find_reader
from heedful.data.image_files import ImageFormat, encode_data_uri, encode_png
from heedful.data.images import LabeledImage, UnusableItem
from heedful.errors import DataError, HeedfulError

FORM = ImageFormat(4, 4, 3)


def image(value: int) -> np.ndarray:
    return np.full((4, 4, 3), value, np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for at, caption in enumerate(["a dark one", "a light one"]):
        (tmp_path / f"{at}.png").write_bytes(encode_png(image(40 + 100 * at)))
        (tmp_path / f"{at}.txt").write_text(f"{caption}\n")
    return tmp_path


def read(table: Any) -> list[LabeledImage | UnusableItem]:
    reader = find_reader(CaptionsConfig(form="captions", train=table, valid=table), "train")
    assert reader is not None
    return list(reader.images(FORM))


def test_tables_of_every_format_and_a_folder_have_the_same_images(folder: Path) -> None:
    rows = [("0.png", "a dark one"), (encode_data_uri(image(140)), "a light one")]
    (folder / "a.csv").write_text("path,caption\n" + "".join(f'"{path}",{caption}\n' for path, caption in rows))
    (folder / "a.tsv").write_text("path\tcaption\n" + "".join(f"{path}\t{caption}\n" for path, caption in rows))
    (folder / "a.jsonl").write_text("".join(json.dumps({"path": path, "caption": text}) + "\n" for path, text in rows))
    found = [read({"file": str(folder / name)}) for name in ("a.csv", "a.tsv", "a.jsonl")] + [read({"folder": str(folder)})]
    for images in found:
        assert [one.label for one in images if isinstance(one, LabeledImage)] == ["a dark one", "a light one"]
        assert [int(one.pixels[0, 0, 0]) for one in images if isinstance(one, LabeledImage)] == [40, 140]


def problem(folder: Path) -> str:
    (found,) = [one for one in read({"folder": str(folder)}) if isinstance(one, UnusableItem)]
    assert "\n" not in found.text
    return f"{Path(found.place).name} {found.text}"


def test_a_missing_empty_or_unreadable_caption_is_one_sentence(folder: Path) -> None:
    (folder / "1.txt").write_text(" \n")
    assert problem(folder) == "1.txt the caption is empty; expected at least one word"
    (folder / "1.txt").write_bytes(b"caf\xe9")
    assert "1.txt" in problem(folder) and "not UTF-8" in problem(folder)
    (folder / "1.txt").unlink()
    assert problem(folder) == "1.png the caption is missing; expected it in 1.txt"
    (folder / "1.png").write_bytes(b"text")
    (folder / "1.txt").write_text("a light one")
    assert problem(folder).startswith("1.png it is not an image in a known format")


def test_a_row_without_caption_names_file_and_line(folder: Path) -> None:
    table = folder / "a.csv"
    table.write_text("path,caption\n0.png,\n1.png,a light one\nmissing.png,none\n")
    blank, good, missing = read({"file": str(table)})
    assert isinstance(good, LabeledImage) and isinstance(blank, UnusableItem) and isinstance(missing, UnusableItem)
    assert (blank.place, blank.text) == (f"{table} line 2", "column 'caption' is empty; expected a path and a caption")
    assert missing.place == f"{table} line 4, missing.png" and "cannot be read" in missing.text


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("path,text\n0.png,a\n", "has no column 'caption'"), ("", "is empty")],
)
def test_a_table_of_another_form_is_refused(folder: Path, content: str, sentence: str) -> None:
    (folder / "a.csv").write_text(content)
    with pytest.raises(HeedfulError, match=sentence):
        read({"file": str(folder / "a.csv")})


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no images; expected files that end in \.png"):
        read({"folder": str(tmp_path)})
