"""heed recipes, config, doctor."""

from __future__ import annotations

import shutil
import sys
import textwrap
import typing
from typing import Annotated, Any

import typer

from heedful.cli.output import (
    COMMAND_LINE,
    Json,
    format_bytes,
    format_name,
    print_json,
    print_message,
    print_text,
    table,
)
from heedful.evaluation.tables import WIDTH

if typing.TYPE_CHECKING:
    from heedful.config.read import Settings

app = typer.Typer(help="Show, compare and document configs.", no_args_is_help=True)
Overrides = Annotated[list[str] | None, typer.Argument(help="Options to override: model.dim=256 …")]


def recipes(json: Json = False) -> None:
    """List the built-in recipes and their measured results."""
    from heedful.runs.recipes import all_recipes, read_header

    listed = [{"name": name, **read_header(path)} for name, path in all_recipes().items()]
    if json:
        print_json({"recipes": listed})
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    print_text("\n".join(format_recipe(one | {"result": one["result"] or "not measured yet"}, width) for one in listed))


def format_recipe(one: dict[str, str], width: int) -> str:
    """A recipe's name, and below it its purpose, its result and the machine."""
    minutes = f"{one['minutes']} minutes" if one["minutes"] else ""
    machine = ", ".join(part for part in (one["machine"], minutes, one["date"]) if part)
    wrap = textwrap.TextWrapper(width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join([one["name"], *(wrap.fill(part) for part in (one["purpose"], one["result"], machine) if part)])


@app.command()
def show(
    recipe: Annotated[str, typer.Argument(help="A recipe, a run folder, or `search` for the options of -s.")],
    overrides: Overrides = None,
    json: Json = False,
) -> None:
    """Show every option: value, origin, description and allowed values."""
    from heedful.config.read import show as lines_of

    settings = read_search(overrides) if recipe == "search" else read_config(recipe, overrides)
    if json:
        print_json({"config": settings.config.model_dump(mode="json"), "origins": settings.origins})
    else:
        print_text("\n".join(lines_of(settings, every=recipe == "search")))


@app.command()
def diff(
    first: Annotated[str, typer.Argument(help="A recipe or run folder.")],
    second: Annotated[str, typer.Argument(help="Another recipe or run folder.")],
    json: Json = False,
) -> None:
    """List the options that differ between two configs."""
    from heedful.config.read import difference

    configs = (read_config(name, None).config.model_dump(mode="json", exclude_none=True) for name in (first, second))
    differences = difference(*configs)
    if json:
        rows = [{"key": key, "first": missing_to_none(a), "second": missing_to_none(b)} for key, a, b in differences]
        print_json({"differences": rows})
    elif differences:
        print_text(table([("key", first, second), *((key, format_value(a), format_value(b)) for key, a, b in differences)]))


def missing_to_none(value: Any) -> Any:
    """A value for JSON: None if it is not set."""
    from heedful.config.read import MISSING

    return None if value is MISSING else value


def format_value(value: Any) -> str:
    """A value as TOML."""
    from heedful.config.toml import write_value

    return "(not set)" if missing_to_none(value) is None else write_value(value)


@app.command()
def schema(json: Json = False) -> None:
    """Print the JSON Schema of recipes, for editors."""
    from heedful.config.read import schema_json
    from heedful.runs.config import Run

    print_text(schema_json(Run))


def read_config(name: str, overrides: list[str] | None) -> Settings[Any]:
    from heedful.runs.load import read_recipe
    from heedful.runs.recipes import find_recipe

    warn_if_ambiguous(name)
    return read_recipe(find_recipe(name), overrides or [], origin=COMMAND_LINE)


def read_search(overrides: list[str] | None) -> Settings[Any]:
    """All options of search, including those of other methods than the default."""
    from heedful.config.read import read_settings
    from heedful.search import SearchConfig

    return read_settings(SearchConfig, None, overrides or [], origin=COMMAND_LINE)


def warn_if_ambiguous(name: str) -> None:
    """Report which one is used if a recipe and a file or folder have the same name."""
    from heedful.runs.recipes import shadows_recipe

    if shadows_recipe(name):
        print_message(f"using the recipe {name!r}; write ./{name} for the file or folder in the working directory")


def doctor(json: Json = False) -> None:
    """Report versions, devices, memory, disk space and folders of this machine."""
    from heedful.cli.doctor import examine

    report = examine()
    if json:
        print_json(report)
        return
    texts = {key: format_bytes(value) if key.endswith("_bytes") else str(value) for key, value in report.items()}
    print_text(table([("item", "value"), *((format_name(key), text) for key, text in texts.items())]))
