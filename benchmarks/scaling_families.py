"""A training step of complete models against sentence length, with a fixed number of tokens per batch.

Twice the length means half the rows. A recurrent model then takes twice as many sequential steps with half the work each; a
model that processes all positions in parallel has the same work, except for attention, whose cost per token grows.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from scaling_meter import Meter
from scaling_steps import model_step, powers

from heedful.models import ModelConfig

MIXED = {"encoder": ["convolution", "self-attention"], "decoder": ["self-attention", "lstm"]}  # one of each kind


class FamilyShapes(NamedTuple):
    tokens: int  # of a batch, on each side
    lengths: tuple[int, ...]
    dim: int
    vocab: int


FAMILY_SHAPES = {
    "cpu": FamilyShapes(tokens=2048, lengths=powers(8, 512), dim=256, vocab=1000),
    "cuda": FamilyShapes(tokens=16_384, lengths=powers(8, 1024), dim=512, vocab=8000),
    "quick": FamilyShapes(tokens=32, lengths=powers(4, 16), dim=16, vocab=50),
}


def configs(dim: int, longest: int) -> dict[str, ModelConfig]:
    """The families with two layers per side: GNMT needs a third for its residual connections, a decoder-only model has the
    layers of both sides, and convolutions need more for the same receptive field."""
    plain: dict[str, Any] = {"dim": dim, "dropout": 0.0, "tie": "none"}
    layered = plain | {"layers": 2}
    attention = layered | {"heads": max(dim // 64, 2), "feed_forward": 4 * dim}
    settings_of: dict[str, dict[str, Any]] = {
        "transformer": attention,
        "gpt": attention | {"layers": 4, "position": "rotary", "tie": False},
        "sutskever": layered,
        "bahdanau": plain | {"embedding": dim, "readout": dim},
        "luong": layered,
        "gnmt": layered | {"layers": 3},
        "deep_att": layered | {"decoder_layers": 2, "columns": 1},
        "convs2s": layered | {"layers": 4, "channels": dim, "max_positions": longest},
        "bytenet": plain | {"dim": dim // 2, "sets": 1},
        "mixed": plain | MIXED | {"heads": max(dim // 64, 2), "feed_forward": 4 * dim},
    }
    read: TypeAdapter[ModelConfig] = TypeAdapter(ModelConfig)
    return {name: read.validate_python({"family": name, **settings}) for name, settings in settings_of.items()}


def against_sentences(shapes: FamilyShapes, meter: Meter) -> dict[str, Any]:
    """All families at each length, alternating."""
    print(f"families: {shapes.tokens:,} tokens per batch, by row length", file=sys.stderr)
    kinds = meter.grow_together(
        {
            name: [
                (length, partial(model_step, config, shapes.vocab, (shapes.tokens // length, length), meter))
                for length in shapes.lengths
            ]
            for name, config in configs(shapes.dim, max(shapes.lengths)).items()
        }
    )
    return {**shapes._asdict(), "kinds": kinds}
