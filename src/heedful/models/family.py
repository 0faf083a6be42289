"""Base class of model configs: what other packages need to know about a family, so that none of them checks its type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from heedful.config.base import Config, Problem, Size, SmallCount, ZeroOrSmallCount
from heedful.errors import ConfigError
from heedful.nn.structure import StructureConfig

PerLayer = SmallCount | tuple[ZeroOrSmallCount, ...]  # number of heads of all layers, or of each layer
PositionName = Literal["none", "sinusoidal", "learned", "relative", "t5", "rotary", "alibi"]
PER_HEAD_POSITIONS = ("t5", "alibi")  # positional encodings that differ between heads


def per_layer(heads: PerLayer, layers: int) -> tuple[int, ...]:
    return (heads,) * layers if isinstance(heads, int) else heads


def refuse_pruned_positions(position: str, before: Sequence[tuple[int, ...]], left: Sequence[tuple[int, ...]]) -> None:
    """Raise if heads are pruned from self-attention whose positional encoding depends on the index of a head."""
    if position in PER_HEAD_POSITIONS and list(before) != list(left):
        sentence = f"position {position!r} depends on the index of a head, so self-attention cannot be pruned"
        raise ConfigError(sentence, hint="train with another model.position, or prune cross-attention only")


def head_problems(counts: tuple[int, ...], *, layers: int, dim: int, head_dim: int | None, position: str) -> list[Problem]:
    """Problems with the heads of each layer, and with a positional encoding that they do not fit."""
    if len(counts) != layers:
        return [Problem("heads", f"given {list(counts)!r}, expected one number or one for each of {layers} layers")]
    most = max(counts)
    if head_dim is None and not most:
        return [Problem("head_dim", "missing; expected a size, since no layer has heads to derive it from")]
    if head_dim is None and dim % most:
        return [Problem("heads", f"given {most}, which does not divide dim {dim}; choose a divisor or set model.head_dim")]
    size = head_dim or dim // most
    if position == "rotary" and size % 2:
        return [Problem("position", f"given 'rotary', which requires an even head_dim, but it is {size}")]
    return []


def tying_problems(tie: str, *, shared: bool) -> list[Problem]:
    """Problems with shared embeddings where source and target have separate vocabularies."""
    if tie != "all" or shared:
        return []
    expected = "expected 'output' or 'none' with tokenizer.shared = false"
    return [Problem("tie", f"given 'all', but the vocabularies are separate; {expected}")]


Architecture = Literal["encoder-decoder", "decoder", "encoder", "image-encoder", "image-to-text"]


class SentenceGrid(NamedTuple):
    """Maximum size of a document."""

    sentences: int
    words: int  # of a sentence


class ImageShape(NamedTuple):
    """Size of an image in pixels."""

    height: int
    width: int
    channels: int  # 1: grayscale, 3: RGB


class FamilyConfig(Config):
    architecture: ClassVar[Architecture] = "encoder-decoder"  # a decoder has no source, an encoder no output tokens
    # and an image-encoder reads pixels; image-to-text is an encoder-decoder whose source is pixels
    family: str
    """Model family."""
    dim: Size
    """Size of embeddings and hidden states."""

    @property
    def reads_spelling(self) -> bool:
        """Whether `encode` is given the spelling of the words."""
        return False

    @property
    def numeric_inputs(self) -> int:
        """Size of the vectors that are its inputs; 0: its inputs are tokens."""
        return 0

    @property
    def heads_by_kind(self) -> dict[str, tuple[int, ...]]:
        """Number of heads of each layer by kind of attention, for families that support pruning."""
        raise ConfigError(
            f"heads of family {self.family!r} cannot be pruned, since its config has no number of heads per layer; "
            "expected family 'transformer' or 'gpt'"
        )

    def with_heads(self, left: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        """Config fields to change for the given numbers of heads in each layer, by kind of attention."""
        raise NotImplementedError

    @property
    def structures(self) -> dict[str, StructureConfig]:
        """The structures of its attention: the option, which is also the name in the model -> its config."""
        return {}

    @property
    def sentence_grid(self) -> SentenceGrid | None:
        """Maximum size of a document, for families whose segments are its sentences; None: segments are texts."""
        return None

    @property
    def image_shape(self) -> ImageShape | None:
        """Shape of the images that it reads; None: it reads none."""
        return None

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        """Problems of this config with the data. shared: one vocabulary for source and target; source, target: maximum
        lengths in tokens including start or end token; source 0: no source."""
        return []
