"""What every family's config can say of itself besides its sizes, so that a run asks no family what it is."""

from __future__ import annotations

from typing import ClassVar

from heedful.schema import Config, Problem


class FamilyConfig(Config):
    reads: ClassVar[bool] = True  # whether there must be a source

    def misfits(self, *, shared: bool, source: int, target: int) -> list[Problem]:
        """What does not fit, by the names of this config's fields: with one vocabulary for both sides or with two, and
        with sequences of so many tokens, the start or the end counted; source 0: nothing is read."""
        return []
