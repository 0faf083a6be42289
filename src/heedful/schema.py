"""The base of every config: frozen, an unknown key is refused rather than ignored, and all problems are said at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Problem = tuple[str, str]  # the dotted path from this config, and what is wrong there


class Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)


class Problems(ValueError):
    """Several problems of one config, raised by its own check."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(f"{path}: {sentence}" for path, sentence in problems))
        self.problems = list(problems)


def check(problems: Sequence[Problem]) -> None:
    if problems:
        raise Problems(problems)


def unused(config: Config, reasons: Mapping[str, str]) -> list[Problem]:
    """A problem for each of these options that was set, and to something else than it would be anyhow."""
    return [
        (name, f"given {getattr(config, name)!r}, but it has no effect because {why}; remove it")
        for name, why in reasons.items()
        if name in config.model_fields_set and getattr(config, name) != type(config).model_fields[name].default
    ]


def refuse_unused(config: Config, reasons: Mapping[str, str]) -> None:
    check(unused(config, reasons))
