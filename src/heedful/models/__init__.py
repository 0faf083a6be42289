"""Model families, one per file. A model is two functions: `start` encodes the source, `step` predicts the next token.

The forward pass in training is `step(target, start(source))`; search calls `step` with one token at a time. A contract test
verifies for every family that both give the same result. Encoder-only models, of texts or images, have one function, `encode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union, get_type_hints

from pydantic import Field

from heedful.config.base import Untagged
from heedful.errors import lookup
from heedful.models.bahdanau import Bahdanau
from heedful.models.bert import Bert
from heedful.models.bytenet import ByteNet
from heedful.models.convs2s import ConvS2S
from heedful.models.deep_att import DeepAtt
from heedful.models.encoder import Encoder
from heedful.models.family import FamilyConfig
from heedful.models.gnmt import GNMT
from heedful.models.gpt import GPT
from heedful.models.han import Han
from heedful.models.hran import Hran
from heedful.models.luong import Luong
from heedful.models.mixed import Mixed
from heedful.models.resnet import ResNet
from heedful.models.sutskever import Sutskever
from heedful.models.transformer import Transformer
from heedful.models.vision_encoder_decoder import VisionEncoderDecoder
from heedful.models.vit import Vit
from heedful.nn.model import Model

MODELS: dict[str, Any] = {  # family -> class, called with its config, the source and the target vocabulary size
    "transformer": Transformer,
    "sutskever": Sutskever,
    "bahdanau": Bahdanau,
    "luong": Luong,
    "gnmt": GNMT,
    "deep_att": DeepAtt,
    "hran": Hran,
    "convs2s": ConvS2S,
    "bytenet": ByteNet,
    "mixed": Mixed,
    "gpt": GPT,
}

ENCODERS: dict[str, Any] = {  # encoder-only family -> class, called with its config and the vocabulary size
    "bert": Bert,
    "encoder": Encoder,
    "han": Han,
}

IMAGE_ENCODERS: dict[str, Any] = {  # family that encodes images -> class, called with its config
    "vit": Vit,
    "resnet": ResNet,
}

IMAGE_TO_TEXT: dict[str, Any] = {  # family that decodes a text from an image -> class, called as those of MODELS
    "vision_encoder_decoder": VisionEncoderDecoder,
}
FAMILIES = MODELS | ENCODERS | IMAGE_ENCODERS | IMAGE_TO_TEXT


def config_of(model: type) -> type[FamilyConfig]:
    """The config class of a family: the type of `config` in its constructor."""
    config: type[FamilyConfig] = get_type_hints(model.__init__)["config"]  # type: ignore[misc]
    return config


if TYPE_CHECKING:
    ModelConfig = FamilyConfig
else:
    configs = tuple(map(config_of, FAMILIES.values()))
    ModelConfig = Annotated[Union[configs], Field(discriminator="family"), Untagged("family", "transformer")]  # noqa: UP007


def make_family(config: FamilyConfig, source_vocab: int, target_vocab: int) -> Model:
    """The model of a config with initial weights; an encoder-only model has the target's vocabulary, one of images none."""
    if config.architecture == "encoder":
        encoder: Model = lookup(config.family, ENCODERS, "model family")(config, target_vocab)
        return encoder
    if config.architecture == "image-encoder":
        images: Model = lookup(config.family, IMAGE_ENCODERS, "model family")(config)
        return images
    model: Model = lookup(config.family, MODELS | IMAGE_TO_TEXT, "model family")(config, source_vocab, target_vocab)
    return model


__all__ = ["ENCODERS", "FAMILIES", "IMAGE_ENCODERS", "IMAGE_TO_TEXT", "MODELS", "ModelConfig", "config_of", "make_family"]
