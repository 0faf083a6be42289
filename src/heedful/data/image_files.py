"""Decode an image file into pixels, (height, width, channels), one byte each, or say in one sentence why it cannot be used.

    not an image, truncated, a decompression bomb (few bytes that decode to very many pixels), more than 8 bits per channel,
    several frames, as of an animated GIF
    grayscale where color is expected, or transparent          converted with data.convert_channels
    another size                                               resized with data.resize

Pillow decodes; it is an optional dependency (`heedful[vision]`). IDX files, the format of MNIST, need no library:

    0 0 8 N   N sizes as big-endian 32-bit numbers   the values, one byte each
"""

from __future__ import annotations

import base64
import gzip
import io
import math
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError, DataError
from heedful.storage.reading import open_stream, unreadable

Pixels = NDArray[np.uint8]  # (height, width, channels)
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
SIGNATURES = {  # the first bytes of image files that are no text
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF8": "GIF",
    b"RIFF": "WebP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
}
MAX_PIXELS = 1 << 26  # of an image that is decoded; a larger one would need hundreds of megabytes
CHANNELS = {"1": 1, "L": 1, "LA": 2, "P": 3, "RGB": 3, "RGBA": 4, "PA": 4, "CMYK": 4, "YCbCr": 3}  # by Pillow's mode
MODES = {1: "L", 3: "RGB"}
KINDS = {1: "1 (grayscale)", 2: "2 (grayscale with transparency)", 3: "3 (color)", 4: "4 (color with transparency, or CMYK)"}


class ImageFormat(NamedTuple):
    """The images that a model reads, and what may be changed to make others fit."""

    height: int
    width: int
    channels: int
    resize: bool = False
    convert_channels: bool = False


class UnusableImage(Exception):
    """Why an image cannot be used: a clause without subject, "is truncated"; kind: a key of `report.NAMES`."""

    def __init__(self, reason: str, kind: str = "image") -> None:
        super().__init__(reason)
        self.kind = kind


def import_pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError(
            "reading images needs Pillow, which is not installed", hint="pip install 'heedful[vision]'"
        ) from error
    return Image


def is_data_uri(name: str) -> bool:
    return name.startswith("data:")


def data_uri_bytes(uri: str) -> bytes:
    """The content of a data URI, data:image/png;base64,…; UnusableImage if it is invalid."""
    header, _, encoded = uri.partition(",")
    try:
        if not header.endswith(";base64"):
            raise ValueError("it has no ;base64,")
        return base64.b64decode(encoded, validate=True)
    except ValueError as error:
        raise UnusableImage(f"is no valid data URI ({error}); expected data:image/png;base64,…") from error


def decode_image(raw: bytes, form: ImageFormat) -> Pixels:
    """The pixels of an image file given as bytes, in this format; UnusableImage if it cannot be used."""
    if not raw:
        raise UnusableImage("is empty; expected an image")
    library = import_pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", library.DecompressionBombWarning)  # checked below
            image = library.open(io.BytesIO(raw))
    except library.DecompressionBombError as error:
        raise UnusableImage(
            f"is a decompression bomb: its {len(raw):,} bytes have far more pixels; expected at most {MAX_PIXELS:,} pixels"
        ) from error
    except library.UnidentifiedImageError as error:
        raise UnusableImage("is not an image in a known format; expected PNG, JPEG or another format of Pillow") from error
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error) as error:
        raise UnusableImage(f"is damaged ({error}); expected a complete image file") from error
    return fit_opened(image, form, f" in a file of {len(raw):,} bytes")


def fit_opened(image: Any, form: ImageFormat, origin: str = "") -> Pixels:
    """An image of Pillow that may not be decoded yet, in this format; origin: for messages."""
    if math.prod(image.size) > MAX_PIXELS:
        width, height = image.size
        raise UnusableImage(f"has {width} x {height} pixels{origin}; expected at most {MAX_PIXELS:,} pixels")
    try:
        frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)  # MPO: a photograph with previews
        image.load()
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error) as error:
        raise UnusableImage(f"is truncated or damaged ({error}); expected a complete image file") from error
    if frames > 1:
        raise UnusableImage(f"has {frames} frames; expected a single image")
    return fit_image(image, form)


def fit_image(image: Any, form: ImageFormat) -> Pixels:
    """A decoded image of Pillow in this format."""
    if image.mode not in CHANNELS:
        raise UnusableImage(f"has pixels of Pillow's mode {image.mode!r}; expected 8 bits per channel, grayscale or RGB")
    transparent = image.mode == "P" and "transparency" in image.info
    channels = 4 if transparent else CHANNELS[image.mode]
    if channels != form.channels and not form.convert_channels:
        raise UnusableImage(
            f"has {KINDS[channels]} channels, expected {KINDS[form.channels]}; set data.convert_channels = true to convert",
            "channels",
        )
    if transparent:
        image = image.convert("RGBA")
    image = image.convert(MODES[form.channels])
    if image.size != (form.width, form.height):
        if not form.resize:
            raise UnusableImage(
                f"is {image.size[0]} pixels wide and {image.size[1]} high, expected {form.width} and {form.height}; "
                "set data.resize = true to resize",
                "size",
            )
        image = image.resize((form.width, form.height), import_pillow().Resampling.BILINEAR)
    return np.asarray(image, np.uint8).reshape(form.height, form.width, form.channels)


def fit_array(array: Any, form: ImageFormat) -> Pixels:
    """An array of bytes, (height, width) or (height, width, channels), in this format."""
    values = np.asarray(array)
    if values.dtype != np.uint8 or values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (1, 3)):
        given = f"is an array of type {values.dtype} and shape {values.shape}"
        raise UnusableImage(f"{given}; expected uint8, (height, width) or (height, width, 1 or 3)")
    values = values.reshape(*values.shape[:2], -1)
    if values.shape == (form.height, form.width, form.channels):
        return values
    return fit_image(import_pillow().fromarray(values[..., 0] if values.shape[2] == 1 else values), form)


def encode_png(pixels: Pixels) -> bytes:
    """A PNG file of an image with 1 or 3 channels."""
    height, width, channels = pixels.shape
    rows = np.concatenate((np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)), axis=1)  # each with filter 0: none
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)  # 8 bits per channel
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    packed = (struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def encode_data_uri(pixels: Pixels) -> str:
    """An image with 1 or 3 channels as a data URI, in one line."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode()


def read_idx(path: Path, axes: int) -> Pixels:
    """The bytes of an IDX file, plain or .gz, with this many axes; DataError if it is another file or truncated."""
    try:
        with open_stream(path) as stream:
            raw = stream.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path} is damaged: its gzip stream cannot be read ({error})", hint="copy or download it again"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error
    header = 4 + 4 * axes
    if raw[:4] != bytes((0, 0, 8, axes)) or len(raw) < header:
        raise DataError(
            f"{path} starts with {raw[:4].hex(' ') or 'nothing'}; expected an IDX file of bytes with {axes} "
            f"{'axis' if axes == 1 else 'axes'}, 00 00 08 {axes:02x}"
        )
    shape = struct.unpack(f">{axes}I", raw[4:header])
    if len(raw) - header != math.prod(shape):
        sizes = " x ".join(map(str, shape))
        raise DataError(
            f"{path} has {len(raw) - header:,} bytes after its header, expected {sizes} = {math.prod(shape):,}",
            hint="the file is truncated or damaged: copy or download it again",
        )
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)
