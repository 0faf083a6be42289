"""Image files: unusable ones are one sentence with their place; folders, files of paths and IDX files agree; augmentation."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from heedful.data.augment import AugmentConfig, LabeledAugmentConfig, augment, epoch_draws
from heedful.data.image_files import ImageFormat, Pixels, UnusableImage, decode_image, fit_array, read_idx
from heedful.data.image_store import open_images
from heedful.data.images import ImagesConfig, find_reader
from heedful.data.shapes import SHAPES, draw_shapes
from heedful.errors import DataError
from heedful.tasks.image_classification.data import ImageSet

GRAY, COLOR = ImageFormat(6, 8, 1), ImageFormat(6, 8, 3)


def drawn(form: ImageFormat = COLOR, number: int = 0) -> Pixels:
    size = (form.height, form.width, form.channels)
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)


def packed(pixels: Pixels, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(stream, kind)
    return stream.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A small PNG file that decodes to very many pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(1000))
    chunks = [(b"IHDR", header), (b"IDAT", body), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


UNUSABLE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty; expected an image"),
    "text": (b"not an image at all", "is not an image in a known format"),
    "truncated": (packed(drawn(ImageFormat(60, 80, 3)))[:2000], "is truncated or damaged"),
    "truncated JPEG": (packed(drawn(ImageFormat(60, 80, 3)), "JPEG")[:2000], "is truncated or damaged"),
    "another size": (packed(drawn(ImageFormat(5, 8, 3))), "is 8 pixels wide and 5 high, expected 8 and 6; set data.resize"),
    "grayscale": (packed(drawn(GRAY)), "has 1 (grayscale) channels, expected 3 (color); set data.convert_channels"),
    "transparent": (packed(drawn(ImageFormat(6, 8, 4))), "has 4 (color with transparency, or CMYK) channels, expected 3"),
    "large": (bomb(10_000, 10_000), "expected at most 67,108,864 pixels"),
    "bomb": (bomb(100_000, 100_000), "is a decompression bomb"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_image_that_cannot_be_used_is_one_sentence(name: str, recwarn: pytest.WarningsRecorder) -> None:
    raw, sentence = UNUSABLE[name]
    with pytest.raises(UnusableImage) as error:
        decode_image(raw, COLOR)
    assert sentence in str(error.value) and "\n" not in str(error.value)
    assert not recwarn.list


def test_an_image_with_16_bits_is_refused() -> None:
    stream = io.BytesIO()
    Image.fromarray(np.zeros((6, 8), np.uint16)).save(stream, "PNG")
    with pytest.raises(UnusableImage, match="8 bits per channel"):
        decode_image(stream.getvalue(), GRAY)


def test_a_truncated_file_never_decodes() -> None:
    raw = packed(drawn())
    assert np.array_equal(decode_image(raw, COLOR), drawn())
    for length in range(raw.index(b"IDAT") + 10):
        with pytest.raises(UnusableImage):
            decode_image(raw[:length], COLOR)


def test_options_convert_and_resize() -> None:
    form = COLOR._replace(resize=True, convert_channels=True)
    gray = decode_image(packed(drawn(GRAY)), form)
    assert np.array_equal(gray, np.repeat(drawn(GRAY), 3, axis=2))
    assert decode_image(packed(drawn(ImageFormat(60, 80, 4))), form).shape == (6, 8, 3)
    constant = np.full((50, 70, 3), 77, np.uint8)
    assert np.array_equal(fit_array(constant, form), np.full((6, 8, 3), 77, np.uint8))


@pytest.mark.parametrize(
    "array", [np.zeros((6, 8, 3)), np.zeros((6, 8, 2), np.uint8), np.zeros(6, np.uint8)], ids=["float", "two", "flat"]
)
def test_an_array_of_another_kind_is_refused(array: Any) -> None:
    with pytest.raises(UnusableImage, match=r"expected uint8, \(height, width\)"):
        fit_array(array, COLOR)


def idx(values: Pixels) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def config(**data: Any) -> ImagesConfig:
    return ImagesConfig.model_validate({"form": "images", "split": [0.5, 0.5, 0.0], **data})


@pytest.fixture
def three_forms(tmp_path: Path) -> list[ImagesConfig]:
    """The same images as a folder, as a file of paths, and as IDX files."""
    images = np.stack([drawn(GRAY, number)[..., 0] for number in range(6)])
    labels = np.array([0, 1, 0, 1, 0, 1], np.uint8)
    for number, label in enumerate(labels):
        file = tmp_path / "images" / str(label) / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(packed(images[number][..., None]))
    rows = "".join(f"images/{label}/{number}.png,{label}\n" for number, label in enumerate(labels))
    (tmp_path / "paths.csv").write_text(f"path,label\n{rows}")
    (tmp_path / "images.idx").write_bytes(idx(images))
    (tmp_path / "labels.idx.gz").write_bytes(gzip.compress(idx(labels)))
    return [
        config(train={"folder": str(tmp_path / "images")}),
        config(train={"file": str(tmp_path / "paths.csv")}),
        config(train={"images": str(tmp_path / "images.idx"), "labels": str(tmp_path / "labels.idx.gz")}),
    ]


def test_every_form_gives_the_same_images(three_forms: list[ImagesConfig], tmp_path: Path) -> None:
    found = []
    for data in three_forms:
        reader = find_reader(data, "train")
        assert reader is not None
        store = open_images(reader, GRAY, tmp_path / "cache")
        assert store.unusable == [] and len(store.labels) == 6
        names = [store.names[label] for label in store.labels]
        found.append(sorted((name, image.tobytes()) for name, image in zip(names, store.pixels, strict=True)))
    assert found[0] == found[1] == found[2]


def test_a_changed_file_gives_a_new_store_and_a_damaged_store_is_rebuilt(
    three_forms: list[ImagesConfig], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"

    def pixels() -> bytes:
        reader = find_reader(three_forms[0], "train")
        assert reader is not None
        return open_images(reader, GRAY, cache).pixels.tobytes()

    before = pixels()
    (stored,) = cache.glob("images/*/pixels")
    stored.chmod(0o644)
    stored.write_bytes(b"\0" * len(before))
    assert pixels() == before
    (tmp_path / "images" / "0" / "0.png").write_bytes(packed(drawn(GRAY, 99)))
    assert pixels() != before


def test_unusable_images_are_listed_and_the_others_kept(three_forms: list[ImagesConfig], tmp_path: Path) -> None:
    (tmp_path / "images" / "0" / "0.png").write_bytes(b"broken")
    (tmp_path / "images" / "1" / "notes.txt").write_text("no image")
    (tmp_path / "images" / "1" / "1.png").unlink()
    for data, expected in zip(three_forms[:2], (["0.png", "notes.txt"], ["0.png", "1.png"]), strict=True):
        reader = find_reader(data, "train")
        assert reader is not None
        store = open_images(reader, GRAY, tmp_path / "cache")
        assert [item.place.endswith(name) for item, name in zip(store.unusable, expected, strict=True)] == [True, True]
        assert len(store.labels) == 4
    texts = [item.text for item in store.unusable]
    assert texts[0].startswith("it is not an image") and texts[1].startswith("it cannot be read")


def test_a_folder_without_labels_or_with_an_empty_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "1.png").write_bytes(packed(drawn()))
    reader = find_reader(config(train={"folder": str(tmp_path / "flat")}), "train")
    assert reader is not None
    with pytest.raises(DataError, match="has no folders; expected one for each label"):
        reader.files()
    (tmp_path / "flat" / "rose").mkdir()
    with pytest.raises(DataError, match=r"rose is empty; expected the images of the label 'rose'"):
        reader.files()


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"", "starts with nothing; expected an IDX file"),
        (b"\0\0\x0d\3" + bytes(12), "starts with 00 00 0d 03"),
        (idx(drawn(GRAY)[None, ..., 0])[:-1], "has 47 bytes after its header, expected 1 x 6 x 8 = 48"),
        (gzip.compress(idx(drawn(GRAY)[None, ..., 0]))[:-20], "its gzip stream cannot be read"),
    ],
    ids=["empty", "floats", "truncated", "truncated gzip"],
)
def test_a_damaged_idx_file_is_a_data_error_with_its_name(raw: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "images.idx"
    path.write_bytes(raw)
    with pytest.raises(DataError) as error:
        read_idx(path, 3)
    assert str(path) in str(error.value) and sentence in str(error.value)


def augmented(images: Pixels, indices: Any, config: AugmentConfig, *, seed: int, epoch: int) -> Pixels:
    return augment(images, epoch_draws(seed, epoch, int(max(indices)) + 1)[indices], config)


def test_augmentation_is_a_pure_function_of_seed_epoch_and_index() -> None:
    images, options = np.stack([drawn(COLOR, number) for number in range(4)]), AugmentConfig(shift=2, flip=True, cutout=3)
    indices = np.array([7, 8, 9, 10])
    whole = augmented(images, indices, options, seed=1, epoch=2)
    for at in range(4):
        alone = augmented(images[at : at + 1], indices[at : at + 1], options, seed=1, epoch=2)
        assert np.array_equal(whole[at], alone[0])
    for other in ({"seed": 2, "epoch": 2}, {"seed": 1, "epoch": 3}):
        assert not np.array_equal(whole, augmented(images, indices, options, **other))
    assert not np.array_equal(whole, augmented(images, indices + 1, options, seed=1, epoch=2))
    assert augmented(images, indices, AugmentConfig(), seed=1, epoch=2) is images


def test_each_augmentation_does_what_it_says() -> None:
    images = np.repeat(np.maximum(drawn(ImageFormat(9, 9, 1)), 1)[None], 200, axis=0)  # no pixel is black
    indices = np.arange(200)
    flipped = augmented(images, indices, AugmentConfig(flip=True), seed=1, epoch=0)
    is_flipped = [np.array_equal(image, images[0][:, ::-1]) for image in flipped]
    is_same = [np.array_equal(image, images[0]) for image in flipped]
    assert sum(is_flipped) + sum(is_same) == 200 and 60 < sum(is_flipped) < 140
    shifted = augmented(images, indices, AugmentConfig(shift=1), seed=1, epoch=0)
    moves = {
        (y, x)
        for image in shifted
        for y in (-1, 0, 1)
        for x in (-1, 0, 1)
        if np.array_equal(image, np.pad(images[0], ((1, 1), (1, 1), (0, 0)))[1 + y : 10 + y, 1 + x : 10 + x])
    }
    assert len(moves) == 9
    black = (augmented(images, indices, AugmentConfig(cutout=3), seed=1, epoch=0) == 0).sum((1, 2, 3))
    assert black.max() == 9 and black.min() >= 4


def test_cutmix_replaces_one_rectangle_and_gives_its_share_of_the_label() -> None:
    values = np.arange(1, 101, dtype=np.uint8)  # each image has one color, so every pixel names its image
    images = ImageSet(np.broadcast_to(values[:, None, None, None], (100, 8, 8, 1)), np.arange(100), np.arange(100))
    chosen = np.array([3, 50, 98, 7, 21, 30])  # none is mixed with itself
    batch = images.augmented_batch(chosen, LabeledAugmentConfig(cutmix=0.999), seed=1, epoch=0)
    for pixels, label, mixed, share in zip(*(tensor.numpy() for tensor in batch), strict=True):
        is_other = pixels[..., 0] != label + 1
        assert set(pixels[is_other, 0].tolist()) <= {mixed + 1} and is_other.mean() == pytest.approx(share)
        rows, columns = is_other.any(1), is_other.any(0)
        assert np.array_equal(is_other, rows[:, None] & columns[None])  # the product of its rows and columns
        assert np.diff(np.flatnonzero(rows)).max(initial=1) == np.diff(np.flatnonzero(columns)).max(initial=1) == 1
    assert float(batch.mixed_shares.min()) > 0 and float(batch.mixed_shares.max()) < 1
    never = images.augmented_batch(chosen, LabeledAugmentConfig(cutmix=0.0), seed=1, epoch=0)
    assert not never.mixed_shares.any() and np.array_equal(never.pixels[:, 0, 0, 0], chosen + 1)


def test_more_shapes_only_append_and_splits_differ() -> None:
    few, labels = draw_shapes("train", 10, COLOR)
    more, all_labels = draw_shapes("train", 40, COLOR)
    assert np.array_equal(few, more[:10]) and labels == all_labels[:10] and set(all_labels) == set(SHAPES)
    assert not np.array_equal(few, draw_shapes("test", 10, COLOR)[0])
