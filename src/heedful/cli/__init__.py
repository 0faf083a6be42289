"""The command line: one small function a verb. Data goes to stdout, talk to stderr.

Only what a verb needs is imported, inside the verb: `heed --help` must answer at once.

    0 done   1 a bug of ours   2 usage or config   3 data   4 checkpoint   5 diverged   75 interrupted, run it again
"""

from __future__ import annotations

import json
import os
import sys
import traceback

import typer

from heedful.cli import (
    aligning,
    configs,
    corpora,
    demo,
    explain,
    exporting,
    inference,
    inspect,
    pruning,
    training,
    vectors,
    writing,
)
from heedful.cli.naming import name_plainly
from heedful.errors import HeedfulError, Interrupted, MemoryFull

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer brings its own click, whose names it does not all pass on

app = typer.Typer(
    name="heed",
    help="Train, run, score and look into sequence models. Every verb takes --json.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("heedful"))
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", callback=show_version, is_eager=True, help="Say the version and leave."),
) -> None: ...


app.command()(demo.demo)
app.command()(training.train)
app.command()(inference.translate)
app.command()(inference.evaluate)
app.command()(inference.score)
app.command()(aligning.align)
app.command()(writing.generate)
app.command()(explain.explain)
app.command()(inspect.inspect)
app.command()(training.average)
app.command()(training.sweep)
app.command()(pruning.prune)
app.command()(exporting.export)
app.command()(vectors.vectors)
app.command()(vectors.neighbours)
app.add_typer(corpora.app, name="data")
app.command()(configs.recipes)
app.add_typer(configs.app, name="config")
app.command()(configs.doctor)


def main() -> None:
    """Run a verb; whatever goes wrong becomes one message and the documented exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    try:
        code = name_plainly(typer.main.get_command(app))(arguments, standalone_mode=False) or 0
        sys.stdout.flush()
        return code
    except HeedfulError as error:
        return complain(str(error.args[0]), error.hint, error.exit_code, arguments)
    except UsageError as error:
        return complain(error.format_message(), usage(error), 2, arguments)  # type: ignore[attr-defined]
    except (KeyboardInterrupt, typer.Abort):
        return complain("interrupted", None, Interrupted.exit_code, arguments)
    except BrokenPipeError:  # whoever read our output has gone; that is their right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if full := memory_full(error):
            return complain(str(full.args[0]), full.hint, full.exit_code, arguments)
        traceback.print_exc()
        return complain("this is a bug in heedful, not in what you did", "please report it with the lines above", 1, arguments)


def memory_full(error: Exception) -> MemoryFull | None:
    """What to say where memory ran out. torch is not asked by name: verbs that do without it start sooner."""
    if type(error).__name__ == "OutOfMemoryError":
        said = str(error).removeprefix("CUDA out of memory. ").split(". ")[0]
        return MemoryFull(
            f"the GPU's memory is full: {said}",
            hint="nvidia-smi shows who else is on it; a smaller data.batch_tokens or training.recompute=true needs less",
        )
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return MemoryFull("the machine's memory is full", hint="a smaller data.batch_tokens or model needs less")
    return None


def usage(error: BaseException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context is not None else None


def complain(message: str, hint: str | None, code: int, arguments: list[str]) -> int:
    if not message:  # the help was shown already
        return code
    print(f"{'stopped' if code == Interrupted.exit_code else 'error'}: {message}", file=sys.stderr)
    if hint:
        print(f"\nhint: {hint}", file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": message, "hint": hint, "exit_code": code}, ensure_ascii=False))
    return code
