"""Shell completion: commands and options by typer, recipe names and run folders here.

    heed --install-completion        then, in a new shell: heed train multi<TAB>

The shell calls `heed` with the command line so far in environment variables and _HEED_COMPLETE = complete_<shell>.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

VARIABLE = "_HEED_COMPLETE"
RUNS = Path("runs")


def complete(command: Any, instruction: str) -> int:
    """Print the completions for a shell and return the exit code; instruction: the value of the environment variable."""
    from typer.completion import shell_complete

    set_completions(command)
    return shell_complete(command, {}, "heed", VARIABLE, instruction)


def set_completions(command: Any) -> None:
    """Set the completions of the arguments and options of all commands, by their names."""
    for parameter in command.params:
        for name in (parameter.name, f"{command.name}.{parameter.name}"):
            if name in COMPLETIONS:
                parameter._custom_shell_complete = matching(COMPLETIONS[name])
    for subcommand in getattr(command, "commands", {}).values():
        set_completions(subcommand)


def matching(values: Callable[[str], Iterable[str]]) -> Callable[[Any, Any, str], list[str]]:
    """A function as click calls it: the values that start with what was typed. If there are none, the shell completes files."""
    return lambda context, parameter, typed: sorted(value for value in values(typed) if value.startswith(typed))


def recipes(typed: str) -> Iterable[str]:
    from heedful.runs.recipes import all_recipes

    return all_recipes()


def runs(typed: str) -> Iterable[str]:
    """The run folders in runs, in a folder of a sweep there, and in the folder typed so far."""
    sweeps = [path for path in RUNS.iterdir() if path.is_dir()] if RUNS.is_dir() else []
    parents = {RUNS, *sweeps, Path(typed) if typed.endswith("/") else Path(typed).parent}
    folders = [path for parent in parents if parent.is_dir() for path in parent.iterdir()]
    return {str(path) for path in folders if (path / "run.json").is_file()}


def recipes_and_runs(typed: str) -> Iterable[str]:
    return {*recipes(typed), *runs(typed)}


# The arguments and options with completions of their own, by name; those of one command as command.name.
COMPLETIONS: dict[str, Callable[[str], Iterable[str]]] = {
    "recipe": recipes_and_runs,
    "check.files": recipes_and_runs,
    "first": recipes_and_runs,
    "second": recipes_and_runs,
    "run": runs,
    "runs": runs,
    "topic_or_run": runs,
    "folders": runs,
    "together": runs,
    "against": runs,
    "reverse": runs,
    "tokenizer": runs,
}
