"""What every family's config can say of itself besides its sizes, so that a run asks no family what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from heedful.errors import ConfigError
from heedful.schema import Config, Problem, SmallCount, ZeroOrSmallCount

PerLayer = SmallCount | tuple[ZeroOrSmallCount, ...]  # one number of heads for all layers, or one for each
PositionName = Literal["none", "sinusoidal", "learned", "relative", "t5", "rotary", "alibi"]
PER_HEAD_POSITIONS = ("t5", "alibi")  # positions that are not the same for every head


def per_layer(heads: PerLayer, layers: int) -> tuple[int, ...]:
    return (heads,) * layers if isinstance(heads, int) else heads


def refuse_pruned_positions(position: str, before: Sequence[tuple[int, ...]], left: Sequence[tuple[int, ...]]) -> None:
    """Refuse to take heads out of self-attention whose positions know them by their numbers."""
    if position in PER_HEAD_POSITIONS and list(before) != list(left):
        sentence = f"position {position!r} tells heads apart by their number, so none can go from self-attention"
        raise ConfigError(sentence, hint="train with another model.position, or take heads of cross-attention alone")


def tying_problems(tie: str, *, shared: bool) -> list[Problem]:
    """What is wrong with one matrix for both sides, where each has a vocabulary of its own."""
    if tie != "all" or shared:
        return []
    expected = "expected 'output' or 'none' with tokenizer.shared = false"
    return [Problem("tie", f"given 'all', but the vocabularies are separate; {expected}")]


class FamilyConfig(Config):
    reads: ClassVar[bool] = True  # whether there must be a source

    @property
    def heads_by_kind(self) -> dict[str, tuple[int, ...]]:
        """Heads of each layer, by kind, where each layer may have another number of them."""
        family = type(self).model_fields["family"].default
        raise ConfigError(
            f"heads cannot be taken out of a model of family {family!r}, whose config has no number of heads for each layer; "
            "expected family 'transformer' or 'gpt'"
        )

    def with_heads(self, left: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        """What to change in the config of such a family to have so many heads in each layer, by kind."""
        raise NotImplementedError

    def problems_with(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        """What does not fit, by the names of this config's fields: with one vocabulary for both sides or with two, and
        with sequences of so many tokens, the start or the end counted; source 0: nothing is read."""
        return []
