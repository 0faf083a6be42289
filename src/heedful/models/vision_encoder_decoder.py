"""An image encoder and a text decoder that attends to the patches of the image.

    start    pixels -> patches -> Vision Transformer, or residual convolutional network -> keys and values for every decoder
             layer, once per image
    step     tokens + cache -> decoder layers of a Transformer, pre-norm -> hidden states

    p(text | image) = prod_t p(y_t | y_<t, image)

As in Show, Attend and Tell (Xu et al., 2015), the cross-attention of a step shows which part of the image a word depends on.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn

from heedful.config.base import Probability, Problem, Size, SmallCount, ZeroOrSmallCount, refuse, unused
from heedful.models.family import Architecture, FamilyConfig, ImageShape, PositionName, head_problems
from heedful.models.resnet import ResNet, ResNetConfig
from heedful.models.transformer import DecoderLayer, TransformerConfig, make_position
from heedful.models.vit import PatchPosition, Stem, Vit, VitConfig, patch_problems
from heedful.nn.attention import AttentionBias
from heedful.nn.blocks import PreNorm
from heedful.nn.decoder_state import State, Step
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import Embeddings
from heedful.nn.layers import Layers
from heedful.nn.model import CROSS, DECODER, ENCODER, AttentionLayer, LayerOutput, SequenceModel
from heedful.nn.step_context import StepContext, next_tokens, whole_sequence


class VisionEncoderDecoderConfig(FamilyConfig):
    """The encoder has no [CLS]; the decoder is that of a Transformer, with GELU and pre-norm."""

    architecture: ClassVar[Architecture] = "image-to-text"
    family: Literal["vision_encoder_decoder"] = "vision_encoder_decoder"
    """Model family."""
    dim: Size = 512
    """Size of embeddings and hidden states."""
    image_encoder: Literal["vit", "resnet"] = "vit"
    """Encoder of the image: a Vision Transformer, or a residual convolutional network."""
    layers: ZeroOrSmallCount = 6
    """Encoder layers, or residual blocks; 0: none, so that the decoder attends to the vectors of single patches."""
    decoder_layers: SmallCount | None = None
    """Decoder layers; default: as many as `layers`."""
    heads: SmallCount = 8
    """Attention heads of every layer."""
    feed_forward: Size | None = None
    """Hidden size of feed-forward layers; default: 4 x dim."""
    image_size: tuple[Size, Size] = (224, 224)
    """Height and width of the images in pixels."""
    channels: Literal[1, 3] = 3
    """1: grayscale, 3: RGB."""
    patch: Size = 16
    """Height and width of a patch in pixels; divides both sizes of the images."""
    stem: Stem = "linear"
    """How a patch becomes a vector in a ViT: a linear map, or convolutions, which also read the pixels around it."""
    patch_position: PatchPosition = "learned"
    """Positional encoding of patches; sinusoidal: of the row and the column of a patch."""
    position: PositionName = "sinusoidal"
    """Positional encoding of the text."""
    max_positions: Size = 1024
    """Number of learned positions of the text."""
    relative_clip: Size = 16
    """Maximum distance that relative positions distinguish."""
    tie: Literal["output", "none"] = "output"
    """Shared weights: embedding and output, none."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of every sub-layer's output."""
    attention_dropout: Probability = 0.0
    """Dropout of attention weights."""

    @property
    def image_shape(self) -> ImageShape:
        return ImageShape(*self.image_size, self.channels)

    @model_validator(mode="after")
    def _fits_together(self) -> VisionEncoderDecoderConfig:
        problems = patch_problems(self, self.stem if self.image_encoder == "vit" else "convolution")
        problems += head_problems((self.heads,), layers=1, dim=self.dim, head_dim=None, position=self.position)
        if not self.layers and self.decoder_layers is None:
            problems.append(Problem("decoder_layers", "missing; expected a number, since model.layers is 0"))
        if self.position == "sinusoidal" and self.dim % 2:
            problems.append(Problem("dim", f"given {self.dim}, expected an even number for sinusoidal positions"))
        if self.patch_position == "sinusoidal" and self.dim % 4:
            problems.append(Problem("dim", f"given {self.dim}, expected a multiple of 4 for sinusoidal positions of patches"))
        reasons = {}
        if self.image_encoder != "vit":
            reasons["stem"] = f"image_encoder {self.image_encoder!r} has convolutions for each patch"
        if self.position != "learned":
            reasons["max_positions"] = f"only learned positions have a limit, not {self.position!r}"
        if self.position != "relative":
            reasons["relative_clip"] = f"only relative positions are clipped, not {self.position!r}"
        refuse([*problems, *unused(self, reasons)])
        return self

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        if self.position != "learned" or self.max_positions >= target:
            return []
        return [
            Problem("max_positions", f"given {self.max_positions}, expected more than data.max_length, which is {target - 1}")
        ]

    @property
    def encoder(self) -> VitConfig | ResNetConfig:
        if self.image_encoder == "resnet":
            return ResNetConfig(
                dim=self.dim,
                layers=self.layers,
                image_size=self.image_size,
                channels=self.channels,
                patch=self.patch,
                position=self.patch_position,
                dropout=self.dropout,
            )
        return VitConfig(
            dim=self.dim,
            layers=self.layers,
            heads=self.heads,
            feed_forward=self.feed_forward,
            image_size=self.image_size,
            channels=self.channels,
            patch=self.patch,
            stem=self.stem,
            position=self.patch_position,
            pooling="mean",
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )

    @property
    def decoder(self) -> TransformerConfig:
        own: dict[str, Any] = {"max_positions": self.max_positions} if self.position == "learned" else {}
        own |= {"relative_clip": self.relative_clip} if self.position == "relative" else {}
        return TransformerConfig(
            dim=self.dim,
            layers=self.decoder_layers or self.layers,
            heads=self.heads,
            feed_forward=self.feed_forward or 4 * self.dim,
            activation="gelu",
            norm="pre",
            position=self.position,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            **own,
        )


IMAGE_ENCODERS: dict[str, Any] = {"vit": Vit, "resnet": ResNet}


class VisionEncoderDecoder(SequenceModel):
    """The source is pixels (images, height, width, channels), 0 to 255; its positions are the patches, row by row."""

    def __init__(self, config: VisionEncoderDecoderConfig, source_vocab: int, target_vocab: int) -> None:
        super().__init__()
        self.config = config
        decoder = config.decoder
        (heads, *_) = decoder.head_counts
        tie: Literal["all", "inputs"] = "all" if config.tie == "output" else "inputs"  # there is no table of source tokens
        scale = math.sqrt(config.dim)
        self.embedding = Embeddings(0, target_vocab, config.dim, tie=tie, scale=scale, output_dim=config.dim)
        self.dropout = Dropout(config.dropout)
        self.encoder: Vit | ResNet = IMAGE_ENCODERS[config.image_encoder](config.encoder)
        self.position = make_position(decoder, heads, reads_ahead=False)
        self.decoder = Layers(DecoderLayer(decoder, config.heads, config.heads) for _ in heads)
        self.last = PreNorm.last(config.dim)

    def embeddings(self) -> dict[Literal["source", "target"], nn.Embedding]:
        return {"target": self.embedding.table("target")}

    def input_vectors(self) -> list[nn.Module]:
        return [*self.encoder.input_vectors(), self.embedding.table("target")]

    def attentions(self) -> list[AttentionLayer]:
        source = [one for own in self.encoder.attentions() for one in self.attention(ENCODER, own.layer, own.module)]
        for at, layer in enumerate(self.decoder):
            source += [*self.attention(DECODER, at, layer.self_attention), *self.attention(CROSS, at, layer.cross_attention)]
        return source

    def layer_outputs(self) -> list[LayerOutput]:
        source = [LayerOutput("source", one.layer, f"encoder.{one.name}") for one in self.encoder.layer_outputs()]
        return source + [self.layer_output("target", at, layer.out) for at, layer in enumerate(self.decoder)]

    @property
    def max_length(self) -> int | None:
        return self.position.limit

    def fit_pixels(self, counts: Tensor) -> None:
        """Standardize pixels by those of the training images: counts (channels, 256), as in `PatchEmbedding.fit`."""
        self.encoder.fit_pixels(counts)

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        """source: pixels (images, height, width, channels); source_mask (images, patches): False for padding."""
        x = self.encoder.encode(source, source_mask)  # (images, patches, dim)
        memory = {
            "layers": [layer.cross_attention.project_memory(x) for layer in self.decoder],
            "mask": None if source_mask is None else source_mask[:, None, None, :],  # (images, 1, 1, patches)
        }
        if not room:
            return State(memory, row_state=None)
        shape = (x.shape[0], room, self.config.heads, self.config.dim // self.config.heads)
        kv_cache = {
            "layers": [(x.new_zeros(shape), x.new_zeros(shape)) for _ in self.decoder],
            "positions": torch.zeros(x.shape[0], room, dtype=torch.long, device=x.device),
        }
        return State(memory, None, kv_cache, torch.zeros(x.shape[0], room, dtype=torch.bool, device=x.device))

    def step(self, tokens: Tensor, state: State, mask: Tensor | None = None) -> Step:
        assert state.kv_cache is not None or state.filled == 0, "decoding by steps requires `room` in `start`"
        step = self.step_context(state, tokens, mask)
        x = self.embedding.embed("target", tokens.view(step.sources, -1))  # (images, new, dim)
        x = self.dropout(self.position.embed(x, step.query_positions))
        buffers = [None] * len(self.decoder) if state.kv_cache is None else state.kv_cache["layers"]
        visible = AttentionBias(state.memory["mask"])
        for layer, (key, value), kv_cache in zip(self.decoder, state.memory["layers"], buffers, strict=True):
            x = layer(x, (key, value, visible), kv_cache, self.position, step, None)
        hidden = self.last(x).view(*tokens.shape, -1)
        filled = state.filled + tokens.numel() // step.sources
        return Step(hidden, state._replace(owned_slots=step.owned_slots, filled=filled), {})

    def step_context(self, state: State, tokens: Tensor, mask: Tensor | None) -> StepContext:
        sources = state.memory["layers"][0][0].shape[0]
        if state.kv_cache is None and tokens.shape[0] == sources and mask is None:  # the whole target at once
            self.position.check_length(tokens.shape[1])
            return whole_sequence(tokens)
        step = next_tokens(state, tokens, mask, sources=sources, limit=self.position.limit)
        if self.max_length is not None and isinstance(state.filled, int) and not tokens.is_meta:
            self.position.check_length(int(step.query_positions.max()) + 1)
        return step

    def project(self, hidden: Tensor) -> Tensor:
        return self.embedding.project(hidden)

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Of black images, one for each row of the target."""
        return self.forced_logits(target.new_zeros(target.shape[0], *self.config.image_shape), None, target)

    def blocks(self) -> list[nn.Module]:
        return [*self.encoder.blocks(), *self.decoder]
