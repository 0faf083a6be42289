"""Recipes: small TOML files whose header says what they are for and, once it was measured, what they reached and where.

# purpose: Multi30k image descriptions, English to German
# result: 39.91 BLEU, mean of 3 seeds
# machine: … minutes: … date: … options: … signature: …        a line each
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from heedful.errors import ConfigError, nearest
from heedful.settings.toml import parse_toml
from heedful.storage.reading import read_bytes

MEASURED = ("result", "machine", "minutes", "date", "options", "signature")  # options: what was added to the recipe
FIELDS = ("purpose", *MEASURED)


def recipe_folder() -> Path:
    """Inside the installed package, or at the root of a source tree."""
    inside = Path(__file__).parent / "recipes"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "recipes"


def all_recipes() -> dict[str, Path]:
    """Recipes by name: "multi30k-en-de"."""
    return {path.stem: path for path in sorted(recipe_folder().rglob("*.toml"))}


def find_recipe(name: str) -> Path:
    """The recipe of that name; else a recipe file, or the config of a run folder. A path is written with a slash or .toml."""
    known = all_recipes()
    if name in known:
        return known[name]
    if (path := file_of(name)) is not None:
        return path
    close = nearest(Path(name).stem, known)
    raise ConfigError(
        f"there is no recipe file {name!r}, nor a recipe of that name; there are: {', '.join(known)}",
        hint=f"did you mean {close!r}?" if close else "`heed recipes` lists them",
    )


def file_of(name: str) -> Path | None:
    """The recipe file at this path, or the config of the run folder there."""
    if Path(name).exists() and not Path(name).is_file() and not Path(name).is_dir():
        raise ConfigError(f"{name} is a pipe or a device; expected a recipe file", hint="save the recipe to a file first")
    return next((path for path in (Path(name), Path(name) / "config.toml") if path.is_file()), None)


def shadows_recipe(name: str) -> bool:
    """Whether a recipe of this name is taken although there is also a file or run folder."""
    return name in all_recipes() and file_of(name) is not None


def header(path: Path) -> dict[str, str]:
    """ "# purpose: …" lines at the top of the file."""
    found = dict.fromkeys(FIELDS, "")
    for line in read_bytes(path).decode().splitlines():
        if not line.startswith("#"):
            break
        name, colon, text = line.lstrip("# ").partition(":")
        if colon and name.lower() in found:
            found[name.lower()] = text.strip()
    return found


def settings_digest(path: Path) -> str:
    """SHA-256 of what a recipe sets, comments aside: a result belongs to a recipe as long as this stays the same."""
    settings = parse_toml(read_bytes(path).decode())
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
