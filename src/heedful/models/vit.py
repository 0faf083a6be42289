"""Vision Transformer: an image as a sequence of patches (Dosovitskiy et al., 2021).

    x_n = W patch_n + b + position_n,   x_0 = [CLS] + position_0
    then `layers` x (self-attention, feed-forward), pre-norm, GELU, and a last norm

    ViT-B/16   dim 768,  12 layers, 12 heads, patch 16      ViT-L/16   dim 1024, 24 layers, 16 heads, patch 16
    ViT-H/14   dim 1280, 32 layers, 16 heads, patch 14      all with 224 x 224 pixels and feed_forward = 4 x dim

The image is the state of [CLS], or with pooling = "mean" the mean of the states of its patches, without [CLS]. Pixels are
standardized by the mean and the standard deviation of each channel over the training images, which are stored with the weights.

With stem = "convolution" convolutions of 3 x 3 replace the linear map of a patch: with stride 2 until one vector for each patch
is left, and one more with stride 1 (after Xiao et al., 2021).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional

from heedful.config.base import Probability, Problem, Size, SmallCount, ZeroOrSmallCount, refuse
from heedful.models.family import Architecture, FamilyConfig, ImageShape
from heedful.nn.attention import AttentionBias, SelfAttention
from heedful.nn.blocks import FeedForward, PreNorm
from heedful.nn.dropout import Dropout
from heedful.nn.hooks import HookPoint
from heedful.nn.layers import Layers
from heedful.nn.linear import linear
from heedful.nn.model import SELF, AttentionLayer, EncoderModel, LayerOutput
from heedful.nn.patches import PatchSinusoids, join_patches, split_patches
from heedful.nn.positions import Learned, PatchGrid, Position, PositionSize
from heedful.nn.structure import PatchStructureConfig, StructureConfig, attention_structure, join, make_structure

NORM_EPS = 1e-6  # as published
LEVELS = 256  # values of a pixel
KERNEL = 3  # height and width of a convolution of the stem
Stem = Literal["linear", "convolution"]
PatchPosition = Literal["none", "learned", "sinusoidal"]


class PatchOptions(Protocol):
    """The options of a family that reads images."""

    @property
    def dim(self) -> int: ...
    @property
    def image_size(self) -> tuple[int, int]: ...
    @property
    def patch(self) -> int: ...
    @property
    def channels(self) -> int: ...


def patch_problems(config: PatchOptions, stem: Stem) -> list[Problem]:
    """Problems with the size of patches."""
    problems = []
    if any(size % config.patch for size in config.image_size):
        given = f"given {config.patch}, which does not divide both sizes of model.image_size {list(config.image_size)}"
        problems.append(Problem("patch", given))
    if stem == "convolution" and config.patch & (config.patch - 1):
        expected = "expected a power of two with convolutions, which halve the image"
        problems.append(Problem("patch", f"given {config.patch}, {expected}"))
    if stem == "convolution" and config.dim % config.patch:
        expected = f"expected a multiple of model.patch {config.patch} with convolutions"
        problems.append(Problem("dim", f"given {config.dim}, {expected}"))
    return problems


class VitConfig(FamilyConfig):
    """Sizes default to ViT-B/16."""

    architecture: ClassVar[Architecture] = "image-encoder"
    family: Literal["vit"] = "vit"
    """Model family."""
    dim: Size = 768
    """Size of patch embeddings and hidden states."""
    layers: ZeroOrSmallCount = 12
    """Encoder layers; 0: none, so that no patch attends to another."""
    heads: SmallCount = 12
    """Attention heads."""
    feed_forward: Size | None = None
    """Hidden size of feed-forward layers; default: 4 x dim."""
    image_size: tuple[Size, Size] = (224, 224)
    """Height and width of the images in pixels."""
    channels: Literal[1, 3] = 3
    """1: grayscale, 3: RGB."""
    patch: Size = 16
    """Height and width of a patch in pixels; divides both sizes of the images."""
    stem: Stem = "linear"
    """How a patch becomes a vector: a linear map, or convolutions, which also read the pixels around it."""
    position: PatchPosition = "learned"
    """Positional encoding; sinusoidal: of the row and the column of a patch."""
    pooling: Literal["cls", "mean"] = "cls"
    """The vector of an image: the state of a [CLS] token before the patches, or the mean of the states of the patches."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of every sub-layer's output."""
    attention_dropout: Probability = 0.0
    """Dropout of attention weights."""
    structure: PatchStructureConfig = PatchStructureConfig()
    """Which patches attend to which; [CLS] attends to all, and all attend to it."""

    @property
    def structures(self) -> dict[str, StructureConfig]:
        return {"structure": self.structure.over(self.grid)}

    @property
    def image_shape(self) -> ImageShape:
        return ImageShape(*self.image_size, self.channels)

    @property
    def grid(self) -> PatchGrid:
        """The sequence: the patches, after [CLS] if there is one."""
        height, width = self.image_size
        return PatchGrid(height // self.patch, width // self.patch, before=int(self.pooling == "cls"))

    @model_validator(mode="after")
    def _fits_together(self) -> VitConfig:
        problems = patch_problems(self, self.stem)
        if self.dim % self.heads:
            problems.append(Problem("heads", f"given {self.heads}, which does not divide dim {self.dim}"))
        if self.position == "sinusoidal" and self.dim % 4:
            problems.append(Problem("dim", f"given {self.dim}, expected a multiple of 4 for sinusoidal positions"))
        problems += self.structure.problems_with_grid(self.grid)
        if self.structure.kind != "full" and not self.layers:
            problems.append(Problem("structure.kind", f"given {self.structure.kind!r}, but layers is 0; expected 'full'"))
        refuse(problems)
        return self


class PatchEmbedding(nn.Module):
    """Standardize the pixels, and map each patch to a vector."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, patch: int, channels: int, patches_to_vectors: nn.Module) -> None:
        super().__init__()
        self.patch, self.map = patch, patches_to_vectors
        self.patches = HookPoint()  # (rows, patches, patch x patch x channels), standardized
        self.register_buffer("mean", torch.full((channels,), 0.5))
        self.register_buffer("deviation", torch.full((channels,), 0.5))

    def fit(self, counts: Tensor) -> None:
        """Set mean and standard deviation to those of the training images. counts (channels, 256): how often each value of a
        pixel occurs; a constant channel is only centered."""
        levels = torch.arange(LEVELS, dtype=torch.float64) / (LEVELS - 1)
        shares = counts.double() / counts.sum(1, keepdim=True)  # (channels, 256)
        mean = shares @ levels  # (channels,)
        deviation = (shares @ levels.square() - mean.square()).clamp(min=0).sqrt()
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, 1.0))

    def forward(self, pixels: Tensor, mask: Tensor | None) -> Tensor:
        """pixels (rows, height, width, channels), 0 to 255; mask (rows, patches): False for padding, which becomes zeros
        -> (rows, patches, dim)."""
        image = (pixels.to(self.mean.dtype) / (LEVELS - 1) - self.mean) / self.deviation
        patches = self.patches(split_patches(image, self.patch))
        vectors: Tensor = self.map(patches if mask is None else patches * mask[..., None])
        return vectors

    if TYPE_CHECKING:
        __call__ = forward


class ConvolutionStem(nn.Module):
    """Patches through convolutions that halve height and width until one vector for each patch is left, and one more."""

    def __init__(self, config: PatchOptions) -> None:
        super().__init__()
        self.patch, self.down = config.patch, config.image_size[0] // config.patch
        halvings = int(math.log2(config.patch))
        sizes = [config.channels, *(config.dim >> (halvings - 1 - at) for at in range(halvings))]  # dim after the last
        self.halve = nn.ModuleList(
            nn.Conv2d(size, after, KERNEL, stride=2, padding=KERNEL // 2) for size, after in pairwise(sizes)
        )
        self.out = nn.Conv2d(sizes[-1], config.dim, KERNEL, padding=KERNEL // 2)

    def forward(self, patches: Tensor) -> Tensor:
        """(rows, patches, patch x patch x channels) -> (rows, patches, dim)."""
        across = patches.shape[1] // self.down
        x = join_patches(patches, self.patch, across).permute(0, 3, 1, 2)  # (rows, channels, height, width)
        for convolution in self.halve:
            x = functional.relu(convolution(x))  # (rows, channels, height, width), height and width halved
        vectors: Tensor = self.out(x)  # (rows, dim, down, across)
        return vectors.flatten(2).transpose(1, 2)  # (rows, patches, dim)

    if TYPE_CHECKING:
        __call__ = forward


def make_patch_position(name: PatchPosition, dim: int, grid: PatchGrid) -> Position:
    size = PositionSize(dim, heads=1, head_dim=dim, limit=grid.positions, clip=0, reads_ahead=True)
    if name == "sinusoidal":
        position: Position = PatchSinusoids(size, grid)
    else:
        position = Learned(size) if name == "learned" else Position(size)
    position.grid = grid
    return position


class Layer(nn.Module):
    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        dim, hidden = config.dim, config.feed_forward or 4 * config.dim
        self.self_attention = SelfAttention(dim, config.heads, dim // config.heads, config.attention_dropout)
        self.self_attention_residual = PreNorm(dim, config.dropout, NORM_EPS)
        self.feed_forward = FeedForward(dim, hidden, "gelu", dropout=config.dropout)
        self.feed_forward_residual = PreNorm(dim, config.dropout, NORM_EPS)
        self.out = HookPoint()

    def forward(self, x: Tensor, allowed: AttentionBias) -> Tensor:
        """x (rows, time, dim); allowed: mask and bias (rows or 1, 1, time or 1, time)."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attention(*self.self_attention.split(x), allowed)

        x = self.self_attention_residual(x, attend)
        return self.out(self.feed_forward_residual(x, self.feed_forward))

    if TYPE_CHECKING:
        __call__ = forward


class Vit(EncoderModel):
    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config = config
        linear_map = config.stem == "linear"
        stem = linear(config.patch**2 * config.channels, config.dim) if linear_map else ConvolutionStem(config)
        self.embed_patches = PatchEmbedding(config.patch, config.channels, stem)
        self.cls = nn.Parameter(0.02 * torch.randn(config.dim)) if config.pooling == "cls" else None
        self.position = make_patch_position(config.position, config.dim, config.grid)
        self.structure = make_structure(config.structure.over(config.grid))
        self.dropout = Dropout(config.dropout)
        self.layers = Layers(Layer(config) for _ in range(config.layers))
        self.last = PreNorm.last(config.dim, NORM_EPS)

    def embeddings(self) -> dict[Literal["source", "target"], nn.Embedding]:
        return {}  # its inputs are numbers

    def input_vectors(self) -> list[nn.Module]:
        return [self.embed_patches.patches]

    def attentions(self) -> list[AttentionLayer]:
        return [one for at, layer in enumerate(self.layers) for one in self.attention(SELF, at, layer.self_attention)]

    def layer_outputs(self) -> list[LayerOutput]:
        return [self.layer_output("target", at, layer.out) for at, layer in enumerate(self.layers)]

    @property
    def max_length(self) -> int | None:
        grid: PatchGrid = self.config.grid
        return grid.positions

    def fit_pixels(self, counts: Tensor) -> None:
        """Standardize pixels by those of the training images: counts (channels, 256), as in `PatchEmbedding.fit`."""
        self.embed_patches.fit(counts)

    def encode(self, tokens: Tensor, mask: Tensor | None = None, *, segments: Tensor | None = None) -> Tensor:
        """tokens: pixels (rows, height, width, channels), 0 to 255; mask (rows, patches): False for patches that are padding,
        which the data of no task has -> hidden states of [CLS], if there is one, and of the patches, row by row:
        (rows, time, dim). There are no segments."""
        x = self.embed_patches(tokens, mask)  # (rows, patches, dim)
        allowed = self.allowed(x.shape[1], mask)
        if self.cls is not None:
            x = torch.cat((self.cls.to(x.dtype).expand(x.shape[0], 1, -1), x), dim=1)  # (rows, 1 + patches, dim)
        positions = torch.arange(x.shape[1], device=x.device)[None]  # (1, time)
        x = self.dropout(self.position.embed(x, positions))
        for layer in self.layers:
            x = layer(x, allowed)
        hidden: Tensor = self.last(x)
        return hidden

    def allowed(self, patches: int, mask: Tensor | None) -> AttentionBias:
        """The structure of the patches and the mask of padding (rows, patches), with [CLS] if there is one: mask and bias
        (rows or 1, 1, time or 1, time)."""
        before = int(self.cls is not None)
        keys = None if mask is None else functional.pad(mask, (before, 0), value=True)[:, None, None]  # (rows, 1, 1, time)
        own = attention_structure(self.structure, torch.arange(patches, device=self.embed_patches.mean.device)[None])
        if own is None:
            return AttentionBias(keys)
        among = None if own.mask is None else functional.pad(own.mask, (before, 0, before, 0), value=True)
        added = None if own.bias is None else functional.pad(own.bias, (before, 0, before, 0))
        return join(AttentionBias(keys), AttentionBias(among, bias=added))

    def first_state(self, hidden: Tensor) -> Tensor:
        """The vector of each image: the state of [CLS], or the mean of the states of the patches."""
        return hidden.mean(1) if self.cls is None else hidden[:, 0]

    def blocks(self) -> list[nn.Module]:
        return list(self.layers)
