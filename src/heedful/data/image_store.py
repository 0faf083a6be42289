"""Decoded images in a memory-mapped file, cached by the content of their files.

    pixels           (images, height, width, channels), uint8
    labels           index of the label of each image in the names of the manifest, int32
    MANIFEST.json    names of the labels, images that cannot be used and why; size and SHA-256 of the files

Every image is decoded once. A changed file or option leads to a new store; see `encode.py` for how the cache is kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.encode import cache_folder, content_hash, find_or_build
from heedful.data.image_files import ImageFormat, Pixels
from heedful.data.images import ImageReader, UnusableItem
from heedful.storage.manifest import FORMAT, Damaged, checked_manifest, write_manifest
from heedful.storage.mapping import append_array, map_array
from heedful.storage.writing import create

log = logging.getLogger(__name__)


class ImageStore(NamedTuple):
    pixels: Pixels  # (images, height, width, channels)
    labels: NDArray[np.int32]  # (images,): indices of names
    names: list[str]
    unusable: list[UnusableItem]

    @staticmethod
    def of(pixels: Pixels, labels: Sequence[str]) -> ImageStore:
        """Images in memory, with the label of each."""
        names = list(dict.fromkeys(labels))
        index = {name: at for at, name in enumerate(names)}
        return ImageStore(pixels, np.array([index[label] for label in labels], np.int32), names, [])


def open_images(reader: ImageReader, form: ImageFormat, cache: Path | None = None) -> ImageStore:
    """The images of a reader in this format, from the cache if they are there. cache: default: as in `encode.open_store`."""
    files = reader.files()
    about = {
        "format": FORMAT,
        "kind": type(reader).__name__,
        "options": [*form, *(str(part) for part in reader if not isinstance(part, Path))],  # type: ignore[attr-defined]
        "title": reader.title,  # messages name it
        "content": [[str(file), content_hash(file)] for file in files],
    }
    key = sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
    folder = (cache or cache_folder()) / "images" / key

    def find(folder: Path) -> ImageStore | None:
        return find_store(folder, form)

    return find_or_build(folder, find, lambda partial: write_store(partial, reader, form))


def write_store(folder: Path, reader: ImageReader, form: ImageFormat) -> None:
    names: dict[str, int] = {}
    unusable: list[UnusableItem] = []
    with create(folder / "pixels") as pixels, create(folder / "labels") as labels:
        for item in reader.images(form):
            if isinstance(item, UnusableItem):
                unusable.append(item)
                continue
            append_array(pixels, item.pixels)
            append_array(labels, np.array([names.setdefault(item.label, len(names))], np.int32))
    write_manifest(folder, {"names": list(names), "unusable": [list(item) for item in unusable]})


def find_store(folder: Path, form: ImageFormat) -> ImageStore | None:
    try:
        manifest = checked_manifest(folder)
    except OSError:  # missing or unreadable
        return None
    except Damaged as damage:
        log.warning("the image store %s is damaged and will be rebuilt: %s", folder, damage)
        return None
    pixels = map_array(folder / "pixels", "uint8").reshape(-1, form.height, form.width, form.channels)
    unusable = [UnusableItem(*item) for item in manifest["unusable"]]
    return ImageStore(pixels, map_array(folder / "labels", "int32"), manifest["names"], unusable)
