"""heed recipes, config, doctor."""

from __future__ import annotations

import shutil
import sys
import textwrap
import typing
from typing import Annotated, Any

import typer

from heedful.cli.output import COMMAND_LINE, WIDTH, Json, bytes_in_words, label, print_json, print_message, print_text, table

if typing.TYPE_CHECKING:
    from heedful.settings import Settings

app = typer.Typer(help="Look at configs: with origins, side by side, or as a schema.", no_args_is_help=True)
Overrides = Annotated[list[str] | None, typer.Argument(help="model.dim=256 …")]


def recipes(json: Json = False) -> None:
    """The recipes that come with the toolkit, and what they reached."""
    from heedful.recipe_files import all_recipes, read_header

    found = [{"name": name, **read_header(path)} for name, path in all_recipes().items()]
    if json:
        print_json({"recipes": found})
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    print_text("\n".join(entry(one | {"result": one["result"] or "not measured yet"}, width) for one in found))


def entry(one: dict[str, str], width: int) -> str:
    """A recipe: its name, and below it what it is for, what it reached, where, and with which options."""
    minutes = f"{one['minutes']} minutes" if one["minutes"] else ""
    where = ", ".join(part for part in (one["machine"], minutes, one["date"]) if part)
    options = f"with {one['options']}" if one["options"] else ""
    wrap = textwrap.TextWrapper(width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join([one["name"], *(wrap.fill(part) for part in (one["purpose"], one["result"], where, options) if part)])


@app.command()
def show(
    recipe: Annotated[str, typer.Argument(help="A recipe, a run folder, or the word search for the options of -s.")],
    overrides: Overrides = None,
    json: Json = False,
) -> None:
    """Every option with its value, where it comes from, what it means and which values it takes."""
    from heedful.settings import show as lines_of

    settings = read_search(overrides) if recipe == "search" else read(recipe, overrides)
    if json:
        print_json({"config": settings.config.model_dump(mode="json"), "origins": settings.origins})
    else:
        print_text("\n".join(lines_of(settings, every=recipe == "search")))


@app.command()
def diff(
    first: Annotated[str, typer.Argument(help="A recipe or run folder.")],
    second: Annotated[str, typer.Argument(help="Another.")],
    json: Json = False,
) -> None:
    """What differs between two configs."""
    from heedful.settings import difference

    one, other = (read(name, None).config.model_dump(mode="json", exclude_none=True) for name in (first, second))
    found = difference(one, other)
    if json:
        rows = [{"key": key, "first": known(a), "second": known(b)} for key, a, b in found]
        print_json({"differences": rows})
    elif found:
        print_text(table([("key", first, second), *((key, spell(a), spell(b)) for key, a, b in found)]))


def known(value: Any) -> Any:
    """A value for JSON; what is not set is null."""
    from heedful.settings import MISSING

    return None if value is MISSING else value


def spell(value: Any) -> str:
    """A value as a recipe would have it."""
    from heedful.settings.toml import write_value

    return "(not set)" if known(value) is None else write_value(value)


@app.command()
def schema(json: Json = False) -> None:
    """The JSON Schema of a recipe, for editors."""
    from heedful.config import Run
    from heedful.settings import schema_json

    print_text(schema_json(Run))


def read(name: str, overrides: list[str] | None) -> Settings[Any]:
    from heedful.config import read_run
    from heedful.recipe_files import find_recipe

    warn_of_two_meanings(name)
    return read_run(find_recipe(name), overrides or [], origin=COMMAND_LINE)


def read_search(overrides: list[str] | None) -> Settings[Any]:
    """The options of search by themselves; all of them, also those of other methods than the default."""
    from heedful.search import SearchConfig
    from heedful.settings import read_settings

    return read_settings(SearchConfig, None, overrides or [], origin=COMMAND_LINE)


def warn_of_two_meanings(name: str) -> None:
    """Say which is taken where a recipe and a file or folder have the same name."""
    from heedful.recipe_files import shadows_recipe

    if shadows_recipe(name):
        print_message(f"{name!r} is taken as the recipe of that name; write ./{name} for the one in the working directory")


def doctor(json: Json = False) -> None:
    """What this machine offers, and what may be in the way."""
    from heedful.cli.doctor import examine

    found = examine()
    if json:
        print_json(found)
        return
    said = {key: bytes_in_words(value) if key.endswith("_bytes") else str(value) for key, value in found.items()}
    print_text(table([("what", "found"), *((label(key), value) for key, value in said.items())]))
