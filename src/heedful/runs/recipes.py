"""Recipes: small TOML files with a header that states their purpose and the measured result.

# purpose: Multi30k image descriptions, English to German
# result: 39.91 BLEU, mean of 3 seeds
# machine: … minutes: … date: … signature: …        one line each
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heedful.config.toml import parse_toml
from heedful.errors import CheckpointError, ConfigError, MissingFile, nearest
from heedful.storage.reading import read_bytes
from heedful.training.facts import CONFIG, RESTORE
from heedful.training.facts import NAME as FACTS

MEASURED = ("result", "machine", "minutes", "date", "signature")
FIELDS = ("purpose", *MEASURED)


def recipe_folder() -> Path:
    """The folder of recipes: in the installed package, or at the root of a source tree."""
    inside = Path(__file__).parents[1] / "recipes"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "recipes"


def all_recipes() -> dict[str, Path]:
    """Recipes by name: "multi30k-en-de"."""
    return {path.stem: path for path in sorted(recipe_folder().rglob("*.toml"))}


def find_recipe(name: str) -> Path:
    """The recipe of this name, else the recipe file or the config of the run folder at this path."""
    known = all_recipes()
    if name in known:
        return known[name]
    if (path := find_file(name)) is not None:
        return path
    close = nearest(Path(name).stem, known)
    what = f"there is no recipe, file or run folder {name!r}; the recipes are: {', '.join(sorted(known))}"
    if "/" in name or name.endswith(".toml"):
        what = f"there is no file or run folder {name!r}; expected one of them, or the name of a recipe"
    raise ConfigError(
        what,
        hint=f"did you mean {close!r}?" if close else "list the recipes with `heed recipes`",
    )


def cpu_recipe(recipe: Path) -> str | None:
    """The name of the variant of a recipe for a CPU; None if there is none."""
    name = f"{recipe.stem}-cpu"
    return name if name in all_recipes() else None


def find_file(name: str) -> Path | None:
    """The recipe file at this path, or the config of the run folder there."""
    if Path(name).exists() and not Path(name).is_file() and not Path(name).is_dir():
        raise ConfigError(f"{name} is a pipe or a device; expected a recipe file", hint="save the recipe to a file first")
    file = next((path for path in (Path(name), Path(name) / CONFIG) if path.is_file()), None)
    if file is None and (Path(name) / FACTS).is_file():
        raise CheckpointError(f"run folder {name} is damaged: {CONFIG} is missing", hint=RESTORE)
    return file


def own_folder(path: Path) -> Path | None:
    """The folder that the paths in a recipe are relative to; None for a recipe of ours and for the config of a run folder."""
    is_ours = path.resolve().is_relative_to(recipe_folder().resolve())
    is_run = path.name == CONFIG and path.with_name(FACTS).exists()
    return None if is_ours or is_run else path.parent


@contextmanager
def naming_folder(recipe: Path | None) -> Iterator[None]:
    """Add the folder of the recipe to the error of a file that was found nowhere."""
    try:
        yield
    except MissingFile as error:
        folder = None if recipe is None else own_folder(recipe)
        if folder is None or error.path.is_absolute() or folder.resolve() == Path.cwd():
            raise
        where = f"{error.args[0]}; {folder}, the folder of the recipe, does not have it either"
        raise MissingFile(where, error.path, error.hint) from error


def shadows_recipe(name: str) -> bool:
    """Whether this is both the name of a recipe and a path; the recipe takes precedence."""
    return name in all_recipes() and find_file(name) is not None


def read_header(path: Path) -> dict[str, str]:
    """Read the "# purpose: …" lines at the top of the file."""
    fields = dict.fromkeys(FIELDS, "")
    for line in read_bytes(path).decode().splitlines():
        if not line.startswith("#"):
            break
        name, colon, text = line.lstrip("# ").partition(":")
        if colon and name.lower() in fields:
            fields[name.lower()] = text.strip()
    return fields


def settings_digest(path: Path) -> str:
    """SHA-256 of the settings of a recipe, without comments: a measured result is valid while it is unchanged."""
    settings = parse_toml(read_bytes(path).decode())
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
