"""A residual convolutional network over images (He et al., 2016), with normalization and activation before each convolution.

    x = stem(image)                        convolutions that halve the image until one vector for each patch is left
    x + W2 relu(norm(W1 relu(norm(x))))    `layers` times; W1, W2: convolutions of 3 x 3 over the grid of patches

The hidden states are those of the last grid, row by row, and the image is their mean, as in a Vision Transformer without [CLS].
Norms are over the channels of each position, so that an image has the same states in every batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional

from heedful.config.base import Probability, Problem, Size, ZeroOrSmallCount, refuse
from heedful.models.family import Architecture, FamilyConfig, ImageShape
from heedful.models.vit import (
    KERNEL,
    NORM_EPS,
    ConvolutionStem,
    PatchEmbedding,
    PatchPosition,
    make_patch_position,
    patch_problems,
)
from heedful.nn.blocks import PreNorm
from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.model import EncoderModel, LayerOutput
from heedful.nn.positions import PatchGrid


class ResNetConfig(FamilyConfig):
    architecture: ClassVar[Architecture] = "image-encoder"
    pooling: ClassVar[Literal["mean"]] = "mean"
    family: Literal["resnet"] = "resnet"
    """Model family."""
    dim: Size = 256
    """Channels of the residual blocks."""
    layers: ZeroOrSmallCount = 6
    """Residual blocks of two convolutions."""
    image_size: tuple[Size, Size] = (224, 224)
    """Height and width of the images in pixels."""
    channels: Literal[1, 3] = 3
    """1: grayscale, 3: RGB."""
    patch: Size = 16
    """Height and width of the pixels of each position of the last grid: a power of two that divides both sizes."""
    position: PatchPosition = "none"
    """Positional encoding of the grid; sinusoidal: of row and column. Zero padding already encodes the border of the image."""
    dropout: Probability = 0.1
    """Dropout of every block's output."""

    @property
    def image_shape(self) -> ImageShape:
        return ImageShape(*self.image_size, self.channels)

    @model_validator(mode="after")
    def _fits_together(self) -> ResNetConfig:
        problems = patch_problems(self, "convolution")
        if self.position == "sinusoidal" and self.dim % 4:
            problems.append(Problem("dim", f"given {self.dim}, expected a multiple of 4 for sinusoidal positions"))
        refuse(problems)
        return self


class Layer(nn.Module):
    """A residual block over the grid of patches."""

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        self.down = config.image_size[0] // config.patch
        self.first, self.second = (nn.Conv2d(config.dim, config.dim, KERNEL, padding=KERNEL // 2) for _ in range(2))
        self.norm = nn.LayerNorm(config.dim, NORM_EPS)
        self.residual = PreNorm(config.dim, config.dropout, NORM_EPS)
        self.out = HookPoint()

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x (rows, patches, dim), mask (rows, patches): False for padding, which counts as zero, as beyond the border."""

        def convolve(convolution: nn.Conv2d, x: Tensor) -> Tensor:
            x = functional.relu(x) if mask is None else functional.relu(x) * mask[..., None]
            grid = x.transpose(1, 2).reshape(x.shape[0], x.shape[2], self.down, -1)  # (rows, dim, down, across)
            convolved: Tensor = convolution(grid)
            return convolved.flatten(2).transpose(1, 2)  # (rows, patches, dim)

        def convolve_twice(x: Tensor) -> Tensor:
            return convolve(self.second, self.norm(convolve(self.first, x)))

        return self.out(self.residual(x, convolve_twice))

    if TYPE_CHECKING:
        __call__ = forward


class ResNet(EncoderModel):
    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        self.config = config
        down, across = (size // config.patch for size in config.image_size)
        self.embed_patches = PatchEmbedding(config.patch, config.channels, ConvolutionStem(config))
        self.position = make_patch_position(config.position, config.dim, PatchGrid(down, across))
        self.dropout = Dropout(config.dropout)
        self.layers = Layers(Layer(config) for _ in range(config.layers))
        self.last = PreNorm.last(config.dim, NORM_EPS)

    def embeddings(self) -> dict[Literal["source", "target"], nn.Embedding]:
        return {}  # its inputs are numbers

    def input_vectors(self) -> list[nn.Module]:
        return [self.embed_patches.patches]

    def layer_outputs(self) -> list[LayerOutput]:
        return [self.layer_output("target", at, layer.out) for at, layer in enumerate(self.layers)]

    @property
    def max_length(self) -> int | None:
        height, width = self.config.image_size
        patches: int = (height // self.config.patch) * (width // self.config.patch)
        return patches

    def fit_pixels(self, counts: Tensor) -> None:
        """Standardize pixels by those of the training images: counts (channels, 256), as in `PatchEmbedding.fit`."""
        self.embed_patches.fit(counts)

    def encode(self, tokens: Tensor, mask: Tensor | None = None, *, segments: Tensor | None = None) -> Tensor:
        """tokens: pixels (rows, height, width, channels), 0 to 255; mask (rows, patches): False for patches that are padding,
        which the data of no task has -> hidden states of the grid, row by row: (rows, patches, dim). There are no segments."""
        x = self.embed_patches(tokens, mask)  # (rows, patches, dim)
        x = self.dropout(self.position.embed(x, torch.arange(x.shape[1], device=x.device)[None]))
        for layer in self.layers:
            x = layer(x, mask)
        hidden: Tensor = self.last(x)
        return hidden

    def first_state(self, hidden: Tensor) -> Tensor:
        """The vector of each image: the mean of its states."""
        return hidden.mean(1)

    def blocks(self) -> list[nn.Module]:
        return list(self.layers)
