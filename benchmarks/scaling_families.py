"""A training step of whole models against the length of sentences, with as many tokens in every batch.

Twice the length is half the rows. A recurrent model walks twice as far, each time with half as much to do at once; one that
sees all positions of a batch together has the same work, and only attention grows, by what a token more sees.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from scaling_meter import Meter
from scaling_steps import model_step, powers

from heedful.models import ModelConfig

MIXED = {"encoder": ["convolution", "self-attention"], "decoder": ["self-attention", "lstm"]}  # one of each sort


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
    """Every family, two layers a side where it has layers: those of GNMT need a third to have residuals, a decoder alone has
    both sides' layers, and convolutions need more to see as far."""
    plain: dict[str, Any] = {"dim": dim, "dropout": 0.0, "tie": "none"}
    layered = plain | {"layers": 2}
    attention = layered | {"heads": max(dim // 64, 2), "feed_forward": 4 * dim}
    given: dict[str, dict[str, Any]] = {
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
    return {name: read.validate_python({"family": name, **settings}) for name, settings in given.items()}


def against_sentences(shapes: FamilyShapes, meter: Meter) -> dict[str, Any]:
    """Every family, at one length after the other, in turns."""
    print(f"families: {shapes.tokens:,} tokens a batch, in rows of so many", file=sys.stderr)
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
