"""Images as inputs of a predictor: the path of a file, a data URI, an array of bytes, or an image of Pillow."""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heedful.data.image_files import (
    SIGNATURES,
    SUFFIXES,
    ImageFormat,
    Pixels,
    UnusableImage,
    data_uri_bytes,
    decode_image,
    encode_data_uri,
    fit_array,
    fit_opened,
    is_data_uri,
)
from heedful.data.input_lines import STDIN, read_texts, refuse_too_long
from heedful.data.sources import find_path
from heedful.errors import DataError
from heedful.storage.reading import open_plain, read_bytes, unreadable
from heedful.tasks.encoded_example import Tokens

Image = Any  # a path, a data URI, an array of bytes, (height, width) or (height, width, channels), or an image of Pillow
SHOWN = 60  # characters of a data URI in messages and results


class NamedImage(NamedTuple):
    name: str  # its path; a data URI is shortened
    pixels: Pixels  # (height, width, channels)


def is_image(given: Any) -> bool:
    """Whether a Python object is one image, not several."""
    return isinstance(given, str | Path) or hasattr(given, "__array__") or is_pillow_image(given)


def is_pillow_image(given: Any) -> bool:
    library = sys.modules.get("PIL.Image")  # loaded, if the object is one of its images
    return library is not None and isinstance(given, library.Image)


def read_input(image: Image, place: str, form: ImageFormat, *, reads_paths: bool) -> NamedImage:
    """Decode an image; DataError if it cannot be used. reads_paths: whether it may be the path of a file."""
    if isinstance(image, str | Path):
        refuse_too_long(str(image), place)
    name = shorten(str(image)) if isinstance(image, str | Path) else f"{type(image).__name__}"
    try:
        if not isinstance(image, str | Path):
            return NamedImage(name, fit_opened(image, form) if is_pillow_image(image) else fit_array(image, form))
        if is_data_uri(str(image)):
            return NamedImage(name, decode_image(data_uri_bytes(str(image)), form))
        if not reads_paths:
            raise UnusableImage("is a path, which a server does not read; expected data:image/png;base64,…")
        path = find_path(str(image))
        if path.is_dir():
            raise UnusableImage("is a folder; expected an image")
        try:
            return NamedImage(name, decode_image(read_bytes(path), form))
        except OSError as error:
            raise unreadable(path, error) from error
    except UnusableImage as error:
        raise DataError(f"{place}, {name}, {error}") from error


def shorten(name: str) -> str:
    """A path, or the beginning of a data URI."""
    return f"{name[:SHOWN]}…" if is_data_uri(name) and len(name) > SHOWN else name


def image_lines(file: Path) -> Iterator[str]:
    """The inputs of a file: one if it has the suffix of an image; else each line is the path of an image, or a data URI."""
    if file.suffix.lower() in SUFFIXES:
        return iter([str(file)])
    if find_path(str(file)).is_dir():
        raise DataError(
            f"{file} is a folder; expected images, or a text file with the path of an image in each line",
            hint=f"give the images in it, as {file}/*.png",
        )
    if file != STDIN and find_path(str(file)).is_file():  # opening a pipe a second time would end its writer
        refuse_other_suffix(find_path(str(file)))
    return read_texts(file, may_be_empty=True)


def refuse_other_suffix(file: Path) -> None:
    """Raise an error for an image whose name has another suffix."""
    try:
        with open_plain(file) as stream:
            start = stream.read(8)
    except OSError:  # an error where its lines are read
        return
    kind = next((name for signature, name in SIGNATURES.items() if start.startswith(signature)), None)
    if kind is not None:
        raise DataError(
            f"{file} is a {kind} image with the suffix {file.suffix!r}; expected one of {', '.join(SUFFIXES)}, or a text file "
            "with the path of an image in each line",
            hint="rename the file",
        )


def input_of(image: Image, number: int) -> str:
    """An image of a Python object in one line: its absolute path, or its pixels as a data URI; number: of the example."""
    if isinstance(image, str | Path):
        return str(image) if is_data_uri(str(image)) else str(Path(image).expanduser().absolute())
    if is_pillow_image(image):
        return pillow_data_uri(image, f"example {number}")
    values = np.asarray(image)
    if values.dtype != np.uint8 or values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (1, 3)):
        given = f"an array of type {values.dtype} and shape {values.shape}"
        raise DataError(f"example {number} has {given}; expected uint8, (height, width) or (height, width, 1 or 3)")
    return encode_data_uri(values.reshape(*values.shape[:2], -1))


def pillow_data_uri(image: Any, place: str) -> str:
    file = io.BytesIO()
    try:
        image.save(file, "PNG")
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{place} is an image of Pillow that cannot be written as PNG: {error}") from error
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def name_patches(name: str, model: Any) -> Tokens:
    """The patches of an image as tokens, named by row and column, as 1,2; model: config of a family that reads images."""
    down, across = (size // model.patch for size in model.image_size)
    pieces = [f"{row},{column}" for row in range(1, down + 1) for column in range(1, across + 1)]
    numbers = list(range(len(pieces)))
    return Tokens(name, numbers, pieces, numbers)
