"""Write the reference pages from the code: the public Python API, the commands, and the options of configs.

python docs/generate_reference.py          writes docs/reference/{api,commands,config}.md
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import heedful
from heedful import inspection
from heedful.cli import app
from heedful.config import kinds
from heedful.models import IMAGE_ENCODERS, IMAGE_TO_TEXT, MODELS, config_of
from heedful.search import SearchConfig
from heedful.tasks import TASKS, find_task
from heedful.text.tokenizer import TokenizerConfig
from heedful.training.config import TrainingConfig


def write_reference(folder: Path) -> None:
    pages = {"api": api_page(), "commands": commands_page(), "config": config_page()}
    folder.mkdir(exist_ok=True)  # a clone has none
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def api_page() -> str:
    parts = ["# Python API", "Names of the package `heedful`. `heedful.inspection` has one function for each analysis."]
    for module in (heedful, inspection):
        parts.append(f"## `{module.__name__}`")
        for name in module.__all__:
            parts += describe(f"{module.__name__}.{name}", getattr(module, name))
    return "\n\n".join(parts) + "\n"


def describe(name: str, thing: Any) -> Iterator[str]:
    """The heading, signature and docstring of a function or class, and of the public methods of a class."""
    yield f"### `{name}`"
    yield f"```python\n{'class ' if inspect.isclass(thing) else ''}{name}{signature(thing)}\n```"
    yield prose(inspect.getdoc(thing) or "")
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        for method, function in sorted(vars(thing).items()):
            plain = function.__func__ if isinstance(function, classmethod | staticmethod) else function
            if not method.startswith("_") and inspect.isfunction(plain) and inspect.getdoc(getattr(thing, method)):
                yield f"#### `{thing.__name__}.{method}`"
                yield f"```python\n{method}{signature(plain)}\n```"
                yield prose(inspect.getdoc(getattr(thing, method)) or "")


def signature(thing: Any) -> str:
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations are stored as text


def prose(docstring: str) -> str:
    """A docstring as Markdown: indented parts and examples are code."""
    lines, code = [], False
    for line in docstring.splitlines():
        is_code = line.startswith(("    ", ">>>", "...")) or (code and bool(line.strip()) and lines[-1] != "")
        if is_code != code:
            lines.append("```text" if is_code else "```")
            code = is_code
        lines.append(line)
    return "\n".join([*lines, "```"] if code else lines)


def commands_page() -> str:
    parts = ["# Commands", "Every command accepts `--json` and `--help`."]
    root = typer.main.get_command(app)
    for path, command in walk(root, ()):
        help_text = inspect.cleandoc(command.help or "")
        arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        usage = " ".join(["heed", *path, *(argument.name.upper() for argument in arguments)])
        rows = [
            f"| `{', '.join(parameter.opts)}` | {cell(parameter.help)} | {default_of(parameter)} |"
            for parameter in command.params
            if parameter.param_type_name == "option"
        ]
        table = "\n".join(["| option | description | default |", "|---|---|---|", *rows]) if rows else ""
        inputs = "\n".join(f"- `{argument.name.upper()}`: {cell(argument.help)}" for argument in arguments)
        parts += [f"## `heed {' '.join(path)}`", help_text, f"```text\n{usage}\n```", inputs, table]
    return "\n\n".join(part for part in parts if part) + "\n"


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below, with its path."""
    for name, sub in getattr(command, "commands", {}).items():
        if hasattr(sub, "commands"):
            yield from walk(sub, (*path, name))
        else:
            yield (*path, name), sub


def default_of(parameter: Any) -> str:
    value = parameter.default
    shown = value not in (None, False, ()) and not callable(value)
    return f"`{value}`" if shown else ""


def cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def config_page() -> str:
    """A table of options for each config class; `heed config show RECIPE` prints the values of a recipe."""
    parts = ["# Options of configs", "A recipe is a TOML file with these tables; `heed config show RECIPE` prints its values."]
    tasks = {name: find_task(name) for name in TASKS}
    sections = {
        f"[model] family = {name!r}": config_of(model) for name, model in (MODELS | IMAGE_ENCODERS | IMAGE_TO_TEXT).items()
    }
    sections |= {f"[task] name = {name!r}": task.config for name, task in tasks.items()}
    sections |= {f"[data] of task {name!r}": task.data_config for name, task in tasks.items()}
    sections |= {"[tokenizer]": TokenizerConfig, "[training]": TrainingConfig, "[search]": SearchConfig}
    for title, config in sections.items():
        rows = [f"| `{path}` | {cell(text)} | {value} |" for path, text, value in options(config)]
        parts += [f"## {title}", "\n".join(["| option | description | default |", "|---|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def options(config: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(name, description, default) of every option, those of nested tables with dotted names."""
    for name, field in config.model_fields.items():
        bare, _ = kinds.unwrap(field.annotation)
        if kinds.is_config(bare):
            yield from options(bare, f"{prefix}{name}.")
            continue
        values = kinds.describe(Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation)
        text = " ".join(part for part in (field.description, f"({values})") if part)
        default = "required" if field.is_required() else f"`{field.get_default()!r}`".replace("|", "\\|")
        yield f"{prefix}{name}", text, default


if __name__ == "__main__":
    write_reference(Path(__file__).parent / "reference")
