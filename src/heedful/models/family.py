"""What every family's config can say of itself besides its sizes, so that a run asks no family what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from heedful.errors import ConfigError
from heedful.schema import Config, Problem


class FamilyConfig(Config):
    reads: ClassVar[bool] = True  # whether there must be a source

    @property
    def heads_by_kind(self) -> dict[str, tuple[int, ...]]:
        """Heads of each layer, by kind, where each layer may have another number of them."""
        raise ConfigError(
            f"heads cannot be taken out of a {type(self).__name__.removesuffix('Config')}, whose config has no number of "
            "heads for each layer; expected a model of family 'transformer'"
        )

    def with_heads(self, left: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
        """What to change in the config of such a family to have so many heads in each layer, by kind."""
        raise NotImplementedError

    def misfits(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        """What does not fit, by the names of this config's fields: with one vocabulary for both sides or with two, and
        with sequences of so many tokens, the start or the end counted; source 0: nothing is read."""
        return []
