"""The option at a dotted path of a config: its type, and its description, which is the docstring below the field.

    window: ZeroOrSize = 0
    \"\"\"Restricted self-attention: number of tokens attended to; 0: all.\"\"\"

`heed config show` prints both; pydantic adds them to the JSON Schema.
"""

from __future__ import annotations

from typing import Any, Literal

from heedful.config import kinds
from heedful.config.base import Config


def description_of(config: object, parts: tuple[str, ...]) -> str | None:
    owner = owner_of(config, parts)
    field = type(owner).model_fields.get(parts[-1]) if owner else None
    return field.description if field else None


def kind_of(config: object, parts: tuple[str, ...]) -> Any:
    """The type of the option at this path; for the tag of a union of tables, the tags of all of them."""
    owner = owner_of(config, parts)
    kind = kinds.fields(type(owner)).get(parts[-1]) if owner else None
    if len(parts) < 2 or len(kinds.choices(kind)) != 1:
        return kind
    tables = kinds.branches(kind_of(config, parts[:-1]))
    tags = tuple(tag for table in tables for tag in kinds.choices(kinds.fields(table).get(parts[-1])))
    return Literal[tags] if tags else kind


def owner_of(config: object, parts: tuple[str, ...]) -> Config | None:
    """The config that has the option at this path."""
    for part in parts[:-1]:
        config = config[int(part)] if isinstance(config, list | tuple) else getattr(config, part, None)
    return config if isinstance(config, Config) else None
