"""The command line: one small function per command. Results go to stdout, messages to stderr.

A command imports its dependencies inside its function, so that `heed --help` is fast. `process.py` has the exit codes.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

import typer

from heedful.cli import (
    align,
    backtranslate,
    bulk,
    chat,
    configs,
    data,
    demo,
    evaluate,
    explain,
    export,
    inspect,
    new,
    predict,
    prune,
    runs,
    search,
    serve,
    studio,
    train,
    vectors,
)
from heedful.cli.completion import VARIABLE, complete
from heedful.cli.metavars import set_metavars
from heedful.cli.process import ignore_signals, prepare_process, print_text, run_command
from heedful.errors import EXIT_CODES, ConfigError

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer vendors click and does not export this name

app = typer.Typer(
    name="heed",
    help="Train, run, evaluate, inspect and serve sequence models. Every command accepts --json.",
    epilog=f"Exit codes: {', '.join(f'{code} {meaning}' for code, meaning in EXIT_CODES.items())}.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print_text(version("heedful"))
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=show_version, is_eager=True, help="Show version and exit."),
) -> None: ...


app.command()(demo.demo)
app.command()(new.new)
app.command()(train.train)
predict.mount(app)
app.command()(bulk.join)
app.command()(backtranslate.backtranslate)
app.command()(chat.chat)
evaluate.mount(app)
app.command()(search.search)
app.command()(evaluate.score)
app.command()(align.align)
app.command()(explain.explain)
app.add_typer(inspect.app, name="inspect")
app.command()(train.average)
app.command()(train.sweep)
app.command()(prune.prune)
app.command()(export.export)
app.command()(serve.serve)
app.command()(studio.studio)
app.command()(vectors.vectors)
app.command()(vectors.neighbors)
app.add_typer(data.app, name="data")
app.command()(configs.recipes)
app.command()(runs.runs)
app.add_typer(configs.app, name="config")
app.command()(configs.doctor)


def main() -> None:
    """Run a command and exit; every failure is one message and a documented exit code."""
    prepare_process()
    code = run(sys.argv[1:])
    ignore_signals()  # a late signal must not change the exit code
    if "RANK" in os.environ:
        # Threads of gloo may still release their last tensors. If the interpreter is being finalized then, they abort the
        # process (torch 2.13: pybind11 acquires the GIL in a destructor). All streams are flushed and all files are closed.
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code."""
    return run_command(lambda: invoke(arguments), arguments)


@cache
def root_command() -> Any:
    """The command `heed` with its subcommands, built once per process."""
    return set_metavars(typer.main.get_command(app))


def invoke(arguments: list[str]) -> int:
    """Parse and run a command. typer's own `main` is not used because it catches broken pipes and Ctrl-C itself."""
    command = root_command()
    if os.environ.get(VARIABLE):
        return complete(command, os.environ[VARIABLE])
    try:
        with command.make_context("heed", arguments) as context:
            command.invoke(context)
        return 0
    except typer.Exit as done:
        return ConfigError.exit_code if done.exit_code == 1 else done.exit_code  # 1: typer's, for a shell that it does not know
    except UsageError as error:
        message = describe_value(error) or error.format_message()  # type: ignore[attr-defined]
        if not message:  # the help has been shown
            return ConfigError.exit_code
        raise ConfigError(message, hint=usage(error)) from error


def describe_value(error: BaseException) -> str | None:
    """What was given for an option and what was expected; typer's message, which is pydantic's, lacks the first."""
    from pydantic import ValidationError

    parameter = getattr(error, "param", None)
    if parameter is None or not isinstance(error.__cause__, ValidationError):
        return None
    problem = error.__cause__.errors(include_url=False)[0]
    bounds = problem.get("ctx", {})
    expected = {
        "greater_than_equal": f"at least {bounds.get('ge', 0):,}",
        "less_than_equal": f"at most {bounds.get('le', 0):,}",
        "int_parsing": "an integer",
        "int_parsing_size": "an integer of fewer digits",
        "float_parsing": "a number",
    }.get(problem["type"])
    name = max(parameter.opts, key=len) if parameter.opts else parameter.name
    return f"{name}: given {str(problem['input'])!r:.40}, expected {expected}" if expected else None


def usage(error: BaseException) -> str | None:
    context = getattr(error, "ctx", None)
    if context is None:
        return None
    if context.command is not None and context.command.name == "inspect":
        return "see heed inspect --help; heed inspect summary RUN describes a model and lists its analyses"
    return f"see {context.command_path} --help"
