"""Commands whose options depend on the task: the fields of a task's option classes (tasks/commands.py) become typer options.

    command = with_options(function, {"language": PredictOptions, …})

calls `function(…, options={"language": PredictOptions(…), …}, given={"length"})`: the options of every task, and the names of
those that the user has set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from heedful.cli.output import require_suffix
from heedful.errors import ConfigError
from heedful.tasks.commands import Option


def typer_options(options: type[Any], panel: str | None = None) -> dict[str, tuple[Any, Any]]:
    """The (annotation, default) of each field of an option class, as typer reads them; panel: where the help lists them."""
    hints = get_type_hints(options, include_extras=True)
    found = {}
    for field in fields(options):
        kind, option = get_args(hints[field.name])
        assert isinstance(option, Option), f"{options.__name__}.{field.name} is declared with an Option"
        assert field.default is not MISSING, f"{options.__name__}.{field.name} has a default"
        flag = option.flag or f"--{field.name.replace('_', '-')}"
        check = require_suffix(*option.suffixes) if option.suffixes else None
        declared = typer.Option(
            flag, help=option.help, min=option.minimum, max=option.maximum, callback=check, rich_help_panel=panel
        )
        found[field.name] = Annotated[kind, declared], field.default
    return found


def with_options(
    function: Callable[..., None], classes: Mapping[str, type[Any]], arguments: Mapping[str, str] | None = None, **extra: Any
) -> Callable[..., None]:
    """A command with the parameters of `function`, except options, given and those in `extra`, and with all options;
    arguments: other help texts of its arguments."""
    hints = get_type_hints(function, include_extras=True)
    for name, text in (arguments or {}).items():
        hints[name] = Annotated[get_args(hints[name])[0], typer.Argument(help=text)]
    own = [p for p in signature(function).parameters.values() if p.name not in ("options", "given", *extra)]
    parameters = {p.name: p.replace(annotation=hints[p.name]) for p in own}
    added: dict[str, tuple[Any, Any]] = {}
    for task, options in classes.items():
        panel = f"Options for runs of task {task!r}" if len(classes) > 1 else None
        for name, declaration in typer_options(options, panel).items():
            assert name not in parameters and added.get(name, declaration)[1] == declaration[1], f"{name} has one meaning"
            added.setdefault(name, declaration)
    for name, (annotation, default) in added.items():
        parameters[name] = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    ordered = sorted(parameters.values(), key=lambda p: p.name == "json")  # --json comes last in the help
    parameters = {p.name: p.replace(kind=Parameter.KEYWORD_ONLY) for p in ordered}

    def command(context: typer.Context, **values: Any) -> None:
        chosen = {name: values.pop(name) for name in added}
        made = {
            task: options(**{field.name: chosen[field.name] for field in fields(options)}) for task, options in classes.items()
        }
        given = {name for name in (*chosen, *values) if is_given(context, name)}
        function(**values, **extra, options=made, given=given)

    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    command.__signature__ = Signature([context, *parameters.values()])  # type: ignore[attr-defined]
    command.__annotations__ = {"context": typer.Context} | {name: p.annotation for name, p in parameters.items()}
    return command


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the option was given on the command line."""
    origin = context.get_parameter_source(name)
    return origin is not None and origin.name == "COMMANDLINE"


def refuse_options_of_others(run: Path, task: str, classes: Mapping[str, type[Any]], given: set[str]) -> None:
    """Raise an error for options that the task of the run does not have."""
    owned = {other: {field.name for field in fields(options)} for other, options in classes.items()}
    owners = {name: [other for other, names in owned.items() if name in names] for name in given}
    wrong = [name for name, tasks in owners.items() if tasks and task not in tasks]
    if wrong:
        tasks = " or ".join(repr(other) for other in owners[wrong[0]])
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(wrong))
        raise ConfigError(f"{flags}: expected a run of task {tasks}, but {run} is a run of task {task!r}")
