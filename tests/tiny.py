"""Tiny models of every family in `MODELS`, in all variants, and a batch of pairs.

A new family is covered once it is registered: its config class is the type of `config` in its constructor, sizes are small
where it has these options, and it is varied along the axes that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations, cycle, product
from typing import Any, NamedTuple, TypeVar, get_origin

import pytest
import torch
from groups import Group
from pydantic import ValidationError
from torch import Tensor, nn

from heedful.config.base import Config
from heedful.models import ENCODERS, IMAGE_TO_TEXT, MODELS, config_of
from heedful.models.vision_encoder_decoder import VisionEncoderDecoder
from heedful.nn.blocks import NORMS
from heedful.nn.decoder_state import State
from heedful.nn.model import EncoderModel, SequenceModel
from heedful.nn.positions import EMBEDDED, POSITIONS
from heedful.nn.scores import SCOPES, SCORES
from heedful.nn.sequence_layers import SEQUENCE_LAYERS
from heedful.nn.source_attention import source_weights
from heedful.nn.structure import CausalStructureConfig, CrossStructureConfig
from heedful.tasks.encoded_example import Forward

AnyModule = TypeVar("AnyModule", bound=nn.Module)

PAD, START, END = 0, 1, 2
WORDS = range(4, 11)
VOCAB = 11

SMALL: dict[str, Any] = {
    "dim": 16,
    "layers": 2,
    "heads": 2,
    "feed_forward": 32,
    "channels": 16,
    "sets": 1,
    "embedding": 16,
    "readout": 8,
    "encoder": ("lstm", "self-attention"),
    "decoder": ("self-attention", "convolution"),
}
POSITION_OPTIONS: dict[str, dict[str, Any]] = {"relative": {"relative_clip": 2}, "learned": {"max_positions": 32}}
UNEVEN: dict[str, Any] = {"heads": (2, 1), "decoder_heads": (1, 2), "cross_heads": (4, 2)}
NO_HEADS: dict[str, Any] = {"heads": (2, 0), "decoder_heads": (1, 0), "cross_heads": (0, 2)}
Choice = dict[str, Any]  # options that are set together
# Every two compatible choices of different axes occur together in some variant.
AXES: dict[str, list[Choice]] = {
    "position": [{"position": name} for name in POSITIONS],
    "norm": [{"norm": name} for name in NORMS],
    "window": [{"window": 0}, {"window": 3}],
    "heads": [
        {},
        UNEVEN,
        NO_HEADS,
        {"layers": 3, "heads": (1, 0, 2)},
    ],
    "reach": [{"reach": ("full",)}, {"reach": ("local", "compressed"), "block": 4}],
}
OTHER_CHOICES: list[dict[str, Any]] = [
    *({"position": name, "position_join": "concatenate"} for name in EMBEDDED),
    {"heads": (0, 1), "reach": ("local", "full"), "block": 4, "norm": "post"},
    *({"position": name, "head_dim": 6, "norm": "pre"} for name in ("relative", "rotary")),
    {"layers": 1, "decoder_layers": 3, "activation": "gelu", "tie": "output"},
    {"activation": "swiglu", "tie": "none", "scale_embeddings": False, "norm": "pre"},
    *({"experts": 4, "norm": name} for name in NORMS),
    {"experts": 5, "experts_used": 3, "activation": "gelu", "window": 3},
    {"channels": (16, 24), "kernel": (4, 1), "out_dim": 8, "dim": 12},
    {"channels": 8, "layers": 1, "decoder_layers": 3, "tie": "all"},
    {"reach": ("compressed", "local"), "stride": 2, "block": 3, "tie": False, "norm": "post"},
    {"sets": 2, "dilations": (1, 2), "kernel": 2, "unfold": 1.0, "tie": "output"},
    {"cell": "gru", "reverse": True, "embedding": 12, "layers": 1},
    {"cell": "lstm", "reverse": False, "layers": 3},
    {"readout": 12, "embedding": 12, "tie": "all"},
    *({"score": score, "scope": scope, "radius": 2} for score in SCORES for scope in SCOPES),
    *({"score": score, "feed": False} for score in SCORES),
    *({"score": "location", "places": 4, "scope": scope} for scope in ("global", *SCOPES)),
    {"scope": "local-m", "radius": 1, "feed": False},
    {"scope": "local-p", "radius": 3, "feed": False, "tie": "all"},
    {"residual": False, "layers": 1, "decoder_layers": 3},
    {"residual": True, "layers": 4, "decoder_layers": 1, "tie": "output"},
    {"straight": False, "columns": 1, "layers": 1, "decoder_layers": 3, "tie": "output"},
    {"straight": True, "columns": 3, "layers": 4, "embedding": 12},
    *({"encoder": (kind,), "decoder": ("lstm", kind)} for kind in SEQUENCE_LAYERS),
    *({"encoder": ("self-attention",), "decoder": (kind,), "bridge": "vector"} for kind in SEQUENCE_LAYERS),
    {"encoder": ("restricted", "gru"), "decoder": ("gru", "restricted"), "window": 3, "norm": "pre", "tie": "output"},
    {"encoder": ("dilated",), "decoder": ("dilated", "lstm"), "kernel": 2, "dilation": 3, "tie": "none"},
    {"residual": True, "layers": 3, "experts": 4, "experts_size": 24},
    {"residual": False, "layers": 2, "experts": 5, "experts_used": 3, "experts_size": 16},
    {"segments": 0, "activation": "swiglu"},
    *({"layers": (kind,)} for kind in SEQUENCE_LAYERS),
    {"layers": ("lstm", "self-attention"), "feed_forward": 24, "position": "learned", "max_positions": 16},
    {"patch_position": "sinusoidal", "decoder_layers": 1, "tie": "none"},
    {"image_encoder": "resnet"},
    *({"norm": "layer"} | changes for changes in ({}, {"cell": "lstm"}, {"cell": "gru"}, {"feed": False})),
    *({"recurrent_norm": "layer", "layers": (kind,)} for kind in ("lstm", "gru")),
    {"recurrent_norm": "layer", "encoder": ("lstm", "gru"), "decoder": ("gru", "lstm")},
    {"structure": CausalStructureConfig(kind="window", radius=4)},
    {"structure": CausalStructureConfig(kind="distance"), "position": "relative"},
    {
        "decoder_structure": CausalStructureConfig(kind="window", radius=2),
        "cross_structure": CrossStructureConfig(kind="distance", slope=0.5),
    },
    {
        "decoder_structure": CausalStructureConfig(kind="distance"),
        "cross_structure": CrossStructureConfig(kind="window", radius=3),
        "position": "rotary",
        "window": 3,
    },
]


class RowOfPixels(VisionEncoderDecoder):
    """Reads the tokens of a source as an image of one row, with a patch for each pixel, so that all contracts apply."""

    def start(self, source: Tensor, source_mask: Tensor | None, *, room: int) -> State:
        colors = torch.stack((23 * source, 255 - 23 * source, 7 * source**2 % 256), dim=-1)  # (sources, time, 3)
        return super().start(colors[:, None], source_mask, room=room)

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        return self.forced_logits(source, None, target)


TOKEN_READERS: dict[str, Any] = MODELS | {"vision_encoder_decoder": RowOfPixels}
assert TOKEN_READERS.keys() == MODELS.keys() | IMAGE_TO_TEXT.keys()
ROW_OF_PIXELS: dict[str, Any] = {"image_size": (1, 16), "channels": 3, "patch": 1}


class Variant(NamedTuple):
    family: str
    changes: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return "-".join([self.family, *(f"{name}={value}" for name, value in self.changes)])


def config_class(family: str) -> type[Config]:
    return config_of((MODELS | ENCODERS | IMAGE_TO_TEXT)[family])


def fits(family: str, changes: Mapping[str, Any]) -> bool:
    """Whether the family has these options and accepts them together."""
    if not changes.keys() <= config_class(family).model_fields.keys():
        return False
    try:
        tiny_config(family, changes)
    except ValidationError:
        return False
    return True


def covering_array(axes: Sequence[Sequence[Choice]], fits: Callable[[Choice], bool]) -> list[Choice]:
    """A covering array of strength 2: every two compatible choices of different axes occur together in some row.

    Each row starts with a missing pair; on every other axis the choice that covers most missing pairs is added."""
    pairs = [
        ((first, i), (second, j))
        for first, second in combinations(range(len(axes)), 2)
        for i, j in product(range(len(axes[first])), range(len(axes[second])))
        if fits(axes[first][i] | axes[second][j])
    ]
    missing, rows = dict.fromkeys(pairs), []
    while missing:
        chosen = dict(next(iter(missing)))
        for axis in range(len(axes)):
            if axis in chosen:
                continue
            row = merge(axes, chosen)
            possible = [i for i, choice in enumerate(axes[axis]) if fits(row | choice)]
            gains = {i: sum(pair in missing for pair in pairs_with(chosen, axis, i)) for i in possible}
            if gains:
                chosen[axis] = max(gains, key=lambda i: gains[i])
        for axis, i in chosen.items():
            for pair in pairs_with(chosen, axis, i):
                missing.pop(pair, None)
        rows.append(merge(axes, chosen))
    return rows


def pairs_with(chosen: Mapping[int, int], axis: int, i: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return [
        ((axis, i), (other, j)) if axis < other else ((other, j), (axis, i)) for other, j in chosen.items() if other != axis
    ]


def merge(axes: Sequence[Sequence[Choice]], chosen: Mapping[int, int]) -> Choice:
    return {name: value for axis in sorted(chosen) for name, value in axes[axis][chosen[axis]].items()}


def variants(family: str) -> list[Variant]:
    """A covering array over the axes of the family, and one variant for each of the other choices."""
    axes = [[choice for choice in choices if fits(family, choice)] for choices in AXES.values()]
    axes = [choices for choices in axes if choices != [{}] and choices]
    rows = (
        covering_array(axes, lambda choice: fits(family, choice))
        if len(axes) > 1
        else [row for choices in axes for row in choices]
    )
    others = [changes for changes in OTHER_CHOICES if fits(family, changes)]
    return [Variant(family, tuple(changes.items())) for changes in [*(rows or [{}]), *others]]


def tiny_config(family: str, changes: Mapping[str, Any]) -> Config:
    config = config_class(family)
    small = {name: value for name, value in SMALL.items() if name in config.model_fields}
    if get_origin(getattr(config.model_fields.get("layers"), "annotation", None)) is tuple:  # kinds, not a number
        small = {"dim": small["dim"]}
    if "image_size" in config.model_fields:
        small |= ROW_OF_PIXELS
    return config(**(small | POSITION_OPTIONS.get(changes.get("position", ""), {}) | dict(changes)))


FAMILIES = [name for name, family in MODELS.items() if issubclass(family, SequenceModel)]
CONTRACT_FAMILIES = [*FAMILIES, *IMAGE_TO_TEXT]  # of tests/contracts; other tests are about texts
VARIANTS = [variant for family in FAMILIES for variant in variants(family)]
IMAGE_VARIANTS = [variant for family in IMAGE_TO_TEXT for variant in variants(family)]
# Each positional encoding once, with alternating norms: for tests that take long.
PLAIN = [
    Variant(family, tuple(changes.items()))
    for family in FAMILIES
    for changes in [{"position": position, "norm": norm} for position, norm in zip(POSITIONS, cycle(NORMS), strict=False)]
    if fits(family, changes)
] + [Variant(family, ()) for family in FAMILIES if not fits(family, {"position": "none", "norm": "pre"})]


def each_value_once(variants: Sequence[Variant]) -> list[Variant]:
    """Enough of the variants for every family and every choice to occur."""
    seen: set[Any] = set()
    kept = []
    for variant in variants:
        values = {variant.family, *variant.changes}
        if values - seen:
            kept.append(variant)
            seen |= values
    return kept


@cache
def tiny_model(variant: Variant) -> SequenceModel:
    torch.manual_seed(1)
    with torch.inference_mode(False):  # later tests of the same model may need gradients
        model: SequenceModel = TOKEN_READERS[variant.family](tiny_config(variant.family, dict(variant.changes)), VOCAB, VOCAB)
        model.set_turns(WORDS[1], 2)
        return perturb(model).eval()


ENCODER_VARIANTS = [variant for family in ENCODERS for variant in variants(family)]


@cache
def tiny_encoder(variant: Variant) -> EncoderModel:
    torch.manual_seed(1)
    with torch.inference_mode(False):
        model: EncoderModel = ENCODERS[variant.family](tiny_config(variant.family, dict(variant.changes)), VOCAB)
        return perturb(model).eval()


def by_family(variants: Sequence[Variant], make: Callable[[Variant], Any] = lambda variant: variant) -> list[Any]:
    """The variants of each family as one parameter: thousands of tests would spend more time in pytest than in the models."""
    families = dict.fromkeys(variant.family for variant in variants)
    return [Group(name, tuple(one for one in variants if one.family == name), make) for name in families]


def perturb(model: AnyModule) -> AnyModule:
    """Add noise to every parameter, so that no bias is zero and no gain is one."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


class Pairs(NamedTuple):
    """Three pairs; the sources are of lengths 6, 3 and 4."""

    source: Tensor  # (3, 6)
    mask: Tensor  # (3, 6)
    target: Tensor  # (3, 7)


def make_pairs() -> Pairs:
    draws = torch.Generator().manual_seed(7)
    source = torch.randint(WORDS.start, WORDS.stop, (3, 6), generator=draws)
    mask = torch.arange(6) < torch.tensor([6, 3, 4])[:, None]
    target = torch.randint(WORDS.start, WORDS.stop, (3, 7), generator=draws)
    return Pairs(source.masked_fill(~mask, PAD), mask, target)


def forward_of(source: Tensor, target_in: Tensor) -> Forward:
    """The pass over copies of one pair, as `EncodedExample.forward`."""
    return lambda model, rows: model.forced(source.repeat_interleave(rows, 0), None, target_in.repeat_interleave(rows, 0))


def logits_of(model: SequenceModel, pairs: Pairs) -> Tensor:
    """Teacher-forced logits: (rows, time, vocab)."""
    return model.forced_logits(pairs.source, pairs.mask, pairs.target)


def source_maps(model: SequenceModel, source: Tensor, target_in: Tensor) -> list[Tensor]:
    """Attention weights on the source of every layer, for one pair: source (1, source time), target_in (1, target time)
    -> (heads, target time, source time) each."""
    return [weights[0] for weights in source_weights(model, source, None, target_in).values()]


def forced_log_probability(model: SequenceModel, source: Tensor, tokens: list[int]) -> float:
    """Log-probability of tokens and end token in one teacher-forced pass; source (1, time) without padding."""
    scores = model.forced_logits(source, None, torch.tensor([[START, *tokens]]))[0].log_softmax(-1)  # (time, vocab)
    return float(scores.gather(-1, torch.tensor([*tokens, END])[:, None]).sum())


def config_problems(config: type[Config], **given: Any) -> dict[str, str]:
    """The problems of a config with these values: path of the option -> sentence."""
    with pytest.raises(ValidationError) as raised:
        config(**given)
    problems: dict[str, str] = {}
    for error in raised.value.errors():
        cause = error.get("ctx", {}).get("error")
        ours = getattr(cause, "problems", [(".".join(map(str, error["loc"])), error["msg"])])
        problems |= {path: sentence for path, sentence, *_ in ours}
    return problems


# Former names, until tests/tasks has the new ones.
SPEAKING, unsettle, refused = FAMILIES, perturb, config_problems
Speaker = SequenceModel
