"""Invalid images and files of images, each with its message and exit code 3; nothing is written, and no file is changed."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from workshop import heed

from heedful.config.toml import write_toml

HEIGHT, WIDTH = 4, 6
FOLDER: dict[str, Any] = {"train": {"folder": "images"}, "valid": {"folder": "images"}}
TABLE: dict[str, Any] = {"train": {"file": "train.csv"}, "valid": {"folder": "images"}}
IDX: dict[str, Any] = {"train": {"images": "i.idx", "labels": "l.idx"}, "valid": {"folder": "images"}}


def png(mode: str = "RGB", size: tuple[int, int] = (WIDTH, HEIGHT), kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size).save(stream, kind, **options)
    return stream.getvalue()


def claimed(width: int, height: int) -> bytes:
    """A small PNG file whose header has very many pixels."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(99)))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def idx(*sizes: int, values: int | None = None) -> bytes:
    count = int(np.prod(sizes)) if values is None else values
    return bytes((0, 0, 8, len(sizes))) + struct.pack(f">{len(sizes)}I", *sizes) + bytes(count)


NOISE = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
CUT = io.BytesIO()
Image.fromarray(NOISE).save(CUT, "PNG")
DEEP = io.BytesIO()
Image.fromarray(np.zeros((HEIGHT, WIDTH), np.uint16)).save(DEEP, "PNG")
MANY = png(kind="GIF", save_all=True, append_images=[Image.new("RGB", (WIDTH, HEIGHT), "red")])

# the broken file -> why it cannot be used
IMAGES: dict[str, tuple[str, bytes, str]] = {
    "truncated PNG": ("x.png", CUT.getvalue()[:-30], "it is truncated or damaged (image file is truncated)"),
    "truncated JPEG": ("x.jpg", png(kind="JPEG", size=(60, 40))[:-10], "it is truncated or damaged"),
    "half a header": ("x.png", CUT.getvalue()[:20], "it is damaged (Truncated File Read); expected a complete image"),
    "no bytes": ("x.png", b"", "it is empty; expected an image"),
    "text with the suffix of an image": ("x.png", b"a caption\n", "it is not an image in a known format"),
    "another size": ("x.png", png(size=(5, 4)), "it is 5 pixels wide and 4 high, expected 6 and 4; set data.resize = true"),
    "grayscale": ("x.png", png("L"), "it has 1 (grayscale) channels, expected 3 (color); set data.convert_channels = true"),
    "transparent": ("x.png", png("RGBA"), "it has 4 (color with transparency, or CMYK) channels, expected 3 (color)"),
    "16 bits": ("x.png", DEEP.getvalue(), "it has pixels of Pillow's mode 'I;16'; expected 8 bits per channel"),
    "a header with very many pixels": ("x.png", claimed(9000, 9000), "it has 9000 x 9000 pixels in a file of"),
    "a decompression bomb": ("x.png", claimed(90_000, 90_000), "it is a decompression bomb"),
    "an unknown suffix": ("notes.txt", b"notes", "the suffix is '.txt'; expected one of .png, .jpg"),
    "several frames": ("x.gif", MANY, "it has 2 frames; expected a single image"),
}
# files, data -> message
FILES: dict[str, tuple[dict[str, bytes], dict[str, Any], str]] = {
    "a missing image": (
        {"train.csv": b"path,label\nimages/a/1.png,a\nimages/a/9.png,b\n"},
        TABLE,
        "train.csv line 3, images/a/9.png: it cannot be read: No such file or directory",
    ),
    "a single image that is missing": (
        {"train.csv": b"path,label\nimages/a/9.png,b\n"},
        {"train": {"file": "train.csv"}, "split": [0.8, 0.1, 0.1]},
        "train.csv has 1 image, but no usable image; 1 image that cannot be read, the first at",
    ),
    "a row without a label": (
        {"train.csv": b"path,label\nimages/a/1.png,\nimages/b/1.png,b\n"},
        TABLE,
        "train.csv line 2: column 'label' is empty; expected a path and a label",
    ),
    "no such column": (
        {"train.csv": b"file,class\nimages/a/1.png,a\n"},
        TABLE,
        "train.csv has no column 'path'; its columns are: file, class",
    ),
    "an empty file of paths": ({"train.csv": b""}, TABLE, "train.csv is empty"),
    "a header without rows": (
        {"train.csv": b"path,label\n"},
        TABLE,
        "train.csv has a header, but no rows; expected at least one row after line 1",
    ),
    "binary instead of CSV": ({"train.csv": b"\x00\x01\xff\xfe" * 20}, TABLE, "train.csv"),
    "no such file": ({}, TABLE, "train.csv"),
    "no such folder": ({}, {**FOLDER, "train": {"folder": "pictures"}}, "pictures"),
    "no folder for a label": (
        {"flat/1.png": png()},
        {**FOLDER, "train": {"folder": "flat"}},
        "flat has no folders; expected one for each label",
    ),
    "an empty folder of a label": (
        {"two/a/1.png": png(), "two/b/.hidden": b""},
        {**FOLDER, "train": {"folder": "two"}},
        "two/b is empty; expected the images of the label 'b'",
    ),
    "a single label": (
        {"one/a/1.png": png()},
        {**FOLDER, "train": {"folder": "one"}},
        "one has usable images of 1 label; expected two or more",
    ),
    "IDX with fewer values than its header says": (
        {"i.idx": idx(3, HEIGHT, WIDTH, values=50), "l.idx": idx(3)},
        IDX,
        "i.idx has 50 bytes after its header, expected 3 x 4 x 6 = 72",
    ),
    "IDX with a header of very many images": (
        {"i.idx": idx(2**31, 2**31, 2**31, values=9), "l.idx": idx(3)},
        IDX,
        "i.idx has 9 bytes after its header, expected 2147483648 x 2147483648 x 2147483648",
    ),
    "IDX of numbers that are no bytes": (
        {"i.idx": b"\0\0\x0d\3" + bytes(24), "l.idx": idx(3)},
        IDX,
        "i.idx starts with 00 00 0d 03; expected an IDX file of bytes with 3 axes",
    ),
    "fewer labels than images": (
        {"i.idx": idx(3, HEIGHT, WIDTH), "l.idx": idx(2)},
        IDX,
        "l.idx has 2 labels",
    ),
    "labels in place of images": (
        {"i.idx": idx(3), "l.idx": idx(3)},
        IDX,
        "i.idx starts with 00 00 08 01; expected an IDX file of bytes with 3 axes, 00 00 08 03",
    ),
    "a truncated gzip": (
        {"i.idx": b"", "i.gz": gzip.compress(idx(9, HEIGHT, WIDTH))[:-12], "l.idx": idx(9)},
        {**IDX, "train": {"images": "i.gz", "labels": "l.idx"}},
        "i.gz is damaged: its gzip stream cannot be read",
    ),
}


@pytest.fixture(name="workplace")
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with images of the labels a and b."""
    monkeypatch.chdir(tmp_path)
    for number, label in enumerate("ab"):
        write(tmp_path / "images" / label / "1.png", png() if number else CUT.getvalue())
    return tmp_path


def write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def message_of(folder: Path, data: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """Train, which fails; nothing but the recipe and, without checkpoints, the folder of the run may be new."""
    before = digests(folder)
    config = {
        "data": {"form": "images", "max_unusable": 0.0, **data},
        "task": {"name": "image_classification"},
        "tokenizer": {"kind": "words", "min_frequency": 1},
        "model": {"family": "vit", "dim": 16, "layers": 1, "heads": 2, "image_size": [HEIGHT, WIDTH], "patch": 2},
        "training": {"steps": 1},
    }
    (folder / "recipe.toml").write_text(write_toml(config))
    capsys.readouterr()
    assert heed("train", folder / "recipe.toml", "--run", folder / "run") == 3
    output = capsys.readouterr()
    assert output.out == "" and "Traceback" not in output.err
    assert not (folder / "run" / "checkpoints").exists()
    assert before.items() <= digests(folder).items()
    _, _, message = output.err.partition("error: ")
    sentence, _, _ = message.partition("\n\nhint: ")
    assert sentence.strip() and "\n" not in sentence.strip()
    return message


def digests(folder: Path) -> dict[Path, str]:
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("case", IMAGES)
def test_a_broken_image_among_others_has_its_message(case: str, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, content, reason = IMAGES[case]
    write(workplace / "images" / "b" / name, content)
    message = message_of(workplace, FOLDER, capsys)
    assert "images: 1 of 3 images are unusable; expected at most the fraction data.max_unusable = 0" in message
    assert f"images/b/{name}: {reason}" in message


@pytest.mark.parametrize("case", FILES)
def test_a_broken_file_or_folder_has_its_message(case: str, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, data, expected = FILES[case]
    for name, content in files.items():
        write(workplace / name, content)
    assert expected in message_of(workplace, data, capsys)


@pytest.mark.parametrize("split", [{"split": [0.8, 0.1, 0.1]}, {"valid": {"folder": "images"}}])
def test_too_many_unusable_images_are_named_before_what_is_left(
    split: dict[str, Any], workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2, 9):
        write(workplace / "images" / "b" / f"{number}.png", png("L"))
    for label in "ab":
        (workplace / "images" / label / "1.png").write_bytes(png("L") if label == "a" else CUT.getvalue())
    (workplace / "images" / "b" / "2.png").write_bytes(CUT.getvalue()[:-30])
    message = message_of(workplace, {"train": {"folder": "images"}, **split}, capsys)
    assert "images: 8 of 9 images are unusable; expected at most the fraction data.max_unusable = 0;" in message
    assert "= 0; 7 images with other channels, the first at" in message and "; 1 image that cannot be read\n" in message
    assert "has 1 (grayscale) channels" in message and "set data.max_unusable = 0.889" in message
