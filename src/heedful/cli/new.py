"""heed new: a folder with a recipe and example data, to start from with one's own."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from heedful.cli.output import Json, print_json, print_message, print_text
from heedful.errors import ConfigError

RECIPE, EXAMPLE = "recipe.toml", "input.jsonl"
LONGEST_EXAMPLE = 400  # characters of an input in a command; a longer one is written to a file


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
    example = starter.input.replace("{folder}", str(folder))
    is_long = len(example) > LONGEST_EXAMPLE
    files = {RECIPE: starter.recipe, **starter.files, **({EXAMPLE: f"{example}\n"} if is_long else {})}
    make_folder(folder)
    for name, content in files.items():
        replace_text(folder / name, content)
    binary = starter.binary_files()
    for name, raw in binary.items():
        make_folder((folder / name).parent)
        replace_bytes(folder / name, raw)
    recipe, run = quote(str(folder / RECIPE)), quote(str(Path("runs") / folder.resolve().name))
    predict = f"heed predict {run} {quote(str(folder / EXAMPLE))}" if is_long else f"echo {quote(example)} | heed predict {run}"
    commands = [
        f"heed train {recipe} --run {run}",
        predict,
        f"heed evaluate {run}",
    ]
    if json:
        print_json({"folder": str(folder), "files": [*files, *binary], "commands": commands})
        return
    roots = (Path(name).parts for name in binary)
    listed = [*files, *dict.fromkeys(parts[0] if len(parts) == 1 else f"{parts[0]}/" for parts in roots)]
    print_message(f"{folder} has {', '.join(listed)}. Replace the example data by your own, then run:")
    print_text("\n".join(commands))


def make_folder(folder: Path) -> None:
    from heedful.storage.writing import write_error

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
