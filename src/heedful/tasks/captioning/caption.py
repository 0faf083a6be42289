"""Captioning: image -> start -> search -> text. Validation, the command line and Python call `caption_images`; the server
decodes the same pieces by continuous batching.

A piece is an image whose tokens are its patches. Captions are at most as long as those of the training data (data.max_length),
or as search.max_length says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from heedful.data.image_files import Pixels
from heedful.nn.decoder_state import States
from heedful.search import SearchConfig
from heedful.tasks.decoding import Decoder, Piece
from heedful.tasks.system import System
from heedful.tasks.translation.translate import Candidate, candidate_rows, decode_pieces


class Caption(NamedTuple):
    image: str  # its path; a data URI is shortened
    candidates: list[Candidate]  # best first, at least one

    @property
    def text(self) -> str:
        return self.candidates[0].text

    def rows(self) -> list[str]:
        return candidate_rows(self.candidates)

    def to_dict(self) -> dict[str, Any]:
        best = self.candidates[0]
        found = {"image": self.image, "caption": best.text, "score": best.score, "log_probability": best.log_probability}
        return found | {"candidates": [candidate.to_dict() for candidate in self.candidates]}


class ImageDecoder(Decoder):
    """A decoder whose sources are images of one size."""

    def source_length(self, piece: Piece) -> int:
        return len(piece.ids)

    def encode(self, pieces: Sequence[Piece], slots: int, *, length: int = 0, masked: bool = False) -> States:
        """No image is padded, so there is no mask."""
        images = [piece.image for piece in pieces]
        assert all(image is not None for image in images), "the pieces of a captioner are images"
        return self.start_states(torch.from_numpy(np.stack(images)), None, slots)  # type: ignore[arg-type]

    def placeholder_states(self, length: int) -> Callable[[int, int], States]:
        config: Any = self.system.models[0].config

        def make(sources: int, slots: int) -> States:
            return self.start_states(torch.zeros(sources, *config.image_shape, dtype=torch.uint8), None, slots)

        return make


def image_decoder(system: System) -> ImageDecoder:
    specials = system.target_tokenizer.specials
    return ImageDecoder(system, specials.start, specials.end)


def count_patches(system: System) -> int:
    """Patches of an image."""
    model: Any = system.models[0].config
    return math.prod(size // model.patch for size in model.image_size)


def image_piece(
    system: System, pixels: Pixels, config: SearchConfig, *, number: int = 0, name: str = "", prefix: Sequence[int] = ()
) -> Piece:
    """number: of the image, which keys random numbers; prefix: tokens that the caption must start with."""
    limit = max(min(config.max_length, system.max_length), config.min_length, len(prefix))
    return Piece(number, list(range(count_patches(system))), list(prefix), name, limit=limit, image=pixels)


def caption_images(system: System, images: Sequence[Pixels], config: SearchConfig, *, first: int = 0) -> list[list[Candidate]]:
    """`config.n_best` candidates of each image, (height, width, channels); first: number of the first image, from 0."""
    pieces = [image_piece(system, pixels, config, number=first + at) for at, pixels in enumerate(images)]
    return decode_pieces(system, pieces, config, image_decoder(system))
