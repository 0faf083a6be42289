"""Paths of a settings file, relative to its folder: whatever exists beside the file is replaced by its absolute path.

    file = "reviews.csv"     in /home/me/shop/recipe.toml, beside /home/me/shop/reviews.csv, is that file from any folder

Only options of the type `PathName` are paths. A path that does not exist there is left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.config.base import IsPath
from heedful.config.kinds import branches, fields, is_list, member, unwrap
from heedful.storage.tables import is_pattern


def resolve_beside(kinds: Sequence[Any], value: object, folder: Path) -> object:
    """The value with paths resolved against the folder; kinds: its possible types."""
    types = [branch for kind in kinds for branch in branches(kind)]
    if isinstance(value, str):
        is_path = any(isinstance(rule, IsPath) for kind in types for rule in unwrap(kind)[1])
        return find_beside(value, folder) if is_path else value
    if isinstance(value, Mapping):
        items = [member(kind, 0) for kind in types if is_list(kind)]  # one table, which the schema accepts as a list of one
        tables = [fields(branch) for kind in (*types, *items) for branch in branches(kind)]
        return {
            key: resolve_beside([table[key] for table in tables if key in table], inner, folder) for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            resolve_beside([kind for each in types if (kind := member(each, at)) is not None], inner, folder)
            for at, inner in enumerate(value)
        ]
    return value


def find_beside(name: str, folder: Path) -> str:
    """The absolute path of a relative one, if it exists in the folder."""
    path = Path(os.path.abspath(folder / name))  # noqa: PTH100 - a link keeps its name, whose suffix is the format
    if not name or name == "-" or Path(name).expanduser().is_absolute():
        return name
    found = any(path.parent.glob(path.name)) if is_pattern(path) else path.exists()
    return str(path) if found else name
