"""Images as sequences of patches.

    image (rows, height, width, channels)  ->  patches (rows, height / P x width / P, P x P x channels), row by row

Positions of patches are learned vectors, or two-dimensional sinusoids: half of the dimensions encode the row of a patch, the
other half its column,

    PE(row, column) = [sinusoid(row); sinusoid(column)],   each of size dim / 2

A token before the patches, [CLS], has position 0; patch n has position n + 1. Its sinusoid is zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.nn.positions import PatchGrid, PositionSize, Waves, sinusoid


def split_patches(image: Tensor, patch: int) -> Tensor:
    """(rows, height, width, channels) -> (rows, patches, patch x patch x channels); both sizes are multiples of `patch`."""
    rows, height, width, channels = image.shape
    grid = image.reshape(rows, height // patch, patch, width // patch, patch, channels)
    return grid.transpose(2, 3).flatten(3).flatten(1, 2)  # (rows, down x across, patch x patch x channels)


def join_patches(patches: Tensor, patch: int, across: int) -> Tensor:
    """The inverse of `split_patches`; across: patches in a row of the image."""
    rows, count, _ = patches.shape
    grid = patches.reshape(rows, count // across, across, patch, patch, -1)
    return grid.transpose(2, 3).flatten(3, 4).flatten(1, 2)  # (rows, height, width, channels)


class PatchSinusoids(Waves):
    """Sinusoids of the row and the column of a patch."""

    def __init__(self, size: PositionSize, grid: PatchGrid) -> None:
        super().__init__(size, size.dim // 2)
        self.grid, self.across, self.before = grid, grid.across, grid.before

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (rows, time, dim), positions (1, time)."""
        patch = positions - self.before  # (1, time)
        row, column = patch.div(self.across, rounding_mode="floor"), patch.remainder(self.across)
        vectors = torch.cat((sinusoid(row, self.waves), sinusoid(column, self.waves)), dim=-1)  # (1, time, dim)
        return x + vectors.masked_fill((patch < 0)[..., None], 0.0).to(x.dtype)
