"""heed new: a folder with a recipe and example data, to start from with one's own."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from heedful.cli.output import Json, print_json, print_message, print_text
from heedful.errors import ConfigError

RECIPE = "recipe.toml"


def new(
    task: Annotated[str, typer.Argument(help="A task, such as classification.")],
    folder: Annotated[Path, typer.Argument(help="Folder to create.")],
    json: Json = False,
) -> None:
    """Create a folder with a recipe and example data of a task.

    Replace the example data by your own, and run the three commands that are printed."""
    from heedful.storage.writing import replace_bytes, replace_text
    from heedful.tasks import find_task
    from heedful.training.readable import list_folder

    starter = find_task(task).starter
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; expected a new folder", hint="choose another name")
    if list_folder(folder):
        raise ConfigError(f"{folder} is not empty; expected a new or an empty folder", hint="choose another name")
    files = {RECIPE: starter.recipe, **starter.files}
    make_folder(folder)
    for name, content in files.items():
        replace_text(folder / name, content)
    binary = starter.binary_files()
    for name, raw in binary.items():
        make_folder((folder / name).parent)
        replace_bytes(folder / name, raw)
    recipe, run = quote(str(folder / RECIPE)), quote(str(folder / "run"))
    example = starter.input.replace("{folder}", str(folder))
    commands = [
        f"heed train {recipe} --run {run}",
        f"echo {quote(example)} | heed predict {run}",
        f"heed evaluate {run}",
    ]
    if json:
        print_json({"folder": str(folder), "files": [*files, *binary], "commands": commands})
        return
    listed = [*files, *dict.fromkeys(f"{Path(name).parts[0]}/" for name in binary)]
    print_message(f"{folder} has {', '.join(listed)}. Replace the example data by your own, then run:")
    print_text("\n".join(commands))


def make_folder(folder: Path) -> None:
    from heedful.storage.writing import write_error

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
