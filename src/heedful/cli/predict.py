"""heed predict, for every task, and its natural names: translate, generate, classify."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.bulk import CommitEvery, Output, ShardOption, bulk_options, run_bulk
from heedful.cli.output import (
    COMMAND_LINE,
    Checkpoint,
    Device,
    Json,
    Precision,
    Search,
    format_json,
    print_json,
    print_message,
    print_text,
    warn_of_unknown,
)
from heedful.cli.task_options import refuse_options_of_others, with_options
from heedful.errors import ConfigError, DataError
from heedful.tasks import TASKS, find_command, find_task

if TYPE_CHECKING:
    from heedful.search import SearchConfig
    from heedful.tasks.predictor import Prediction, Predictor

WHOLE = ("table", "series", "graph", "history")  # inputs that a file may consist of
NUMBERED = re.compile(rf"(text|example|line|question|input|{'|'.join(WHOLE)}) (\d+)")  # the beginning of an error of one input
Run = Annotated[Path, typer.Argument(help="A run folder.")]
Together = Annotated[list[Path] | None, typer.Option("--with", help="More runs, for an ensemble.")]


def predict(
    run: Run,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Text files, plain or .gz; - for standard input. Default: -.")
    ] = None,
    search: Search = None,
    together: Together = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    precision: Precision = "fp32",
    output: Output = None,
    shard: ShardOption = None,
    commit_every: CommitEvery = None,
    json: Json = False,
    *,
    task: str | None = None,
    text: str | None = None,
    options: Mapping[str, Any],
    given: set[str],
) -> None:
    """task: the one that the command is for, None: any; text: the input where no file is given, None: standard input."""
    from heedful.data.input_lines import CHUNK_LINES, chunk_lines, is_interactive, read_available
    from heedful.runs.bulk import BulkJob, render_text
    from heedful.training import retention

    paths = files or [Path("-")]
    refuse_conflicts(paths if files or text is None else [], files, options)
    bulk = bulk_options(output, shard, commit_every)
    predictor = load_run(run, together, checkpoint, device, precision)
    name: str = predictor.run.task.name
    if task is not None:
        predictor, name = predictor_of(task, predictor), task
    refuse_options_of_others(run, name, {other: type(one) for other, one in options.items()}, given)
    refuse_search_options(search, name, "predict")
    own = options[name]
    predictor.check_inputs(paths, own)
    config = search_config(predictor, search)
    if bulk is not None:
        if getattr(own, "picture", None) is not None:
            raise ConfigError("--picture has no effect with --bulk", hint="draw each table by a command of its own")
        render, form = (render_json, "json") if json else (render_text, "text")
        checkpoints = [predictor.checkpoint, *(retention.resolve(other, checkpoint) for other in together or ())]
        run_bulk(bulk, BulkJob(predictor, paths, config, own, render, form, checkpoints, precision))
        return
    prompt = getattr(own, "prompt", None)
    if prompt is None and not files:
        prompt = text
    chunks: Iterable[Sequence[str]]
    counts: list[tuple[Path, int]] = []  # of the inputs of each file; empty: they are not counted
    if prompt is not None:
        chunks = [[prompt]]
    elif any(map(is_interactive, paths)):
        if any(map(is_terminal, paths)):
            print_message("type a sentence and press Enter; end with Ctrl-D")
        lines = (line for file in paths for line in predictor.input_lines(file))
        chunks = predictor.refuse_no_input(predictor.join_lines(read_available(lines, CHUNK_LINES)), "the input")
    else:
        chunks = chunk_lines(count_inputs(predictor.file_inputs(paths), counts))
    picture: Path | None = getattr(own, "picture", None)
    unknown: dict[str, int] = {}  # words outside the vocabulary, and the first line of each
    with name_file(counts):
        for number, prediction in enumerate(predictor.predict_chunks(chunks, config, own, unknown)):
            print_json(prediction.to_dict()) if json else print_rows(prediction.rows())
            if picture is not None:
                draw(prediction, picture, is_first=number == 0)
    warn_of_unknown([f"{word} (line {number})" if prompt is None else word for word, number in unknown.items()])


def count_inputs(inputs: Iterable[tuple[Path, str]], counts: list[tuple[Path, int]]) -> Iterator[str]:
    """Yield the texts, and keep the number of those of each file."""
    for file, text in inputs:
        before = counts.pop()[1] if counts and counts[-1][0] == file else 0
        counts.append((file, before + 1))
        yield text


@contextmanager
def name_file(counts: Sequence[tuple[Path, int]]) -> Iterator[None]:
    """Add the file to errors that name an input by its number alone, which counts those of all files: "text 5 has …" becomes
    "second.txt: text 1 has …", and "table 5 has …", which is all of its file, "second.csv has …". counts: inputs of each file,
    in order."""
    try:
        yield
    except (ConfigError, DataError) as error:
        message = str(error.args[0])
        found = NUMBERED.match(message)
        number = int(found[2]) if found else 0
        for file, count in counts:
            if found and 0 < number <= count and str(file) not in message:
                place = f"{file}" if count == 1 and found[1] in WHOLE else f"{file}: {found[1]} {number}"
                error.args = (f"{place}{message[found.end() :]}", *error.args[1:])
            number -= count
        raise


def predictor_of(task: str, predictor: Predictor) -> Predictor:
    """The predictor for the command of a task; an error for a run that it cannot use."""
    try:
        return find_task(task).predictor.of(predictor)
    except ConfigError as error:
        own = find_command(predictor.run.task.name).name
        raise ConfigError(str(error.args[0]), hint=f"use heed {own} or heed predict") from error


def draw(prediction: Any, picture: Path, *, is_first: bool) -> None:
    """Write the figure of a prediction; of several, there is no place for more than one."""
    from heedful.inspection import ForecastResult

    if not is_first:
        raise ConfigError("--picture: given a second table, expected one", hint="draw each table by a command of its own")
    print_message(f"written: {ForecastResult(prediction).save(picture)}")


def print_rows(rows: Sequence[str]) -> None:
    for row in rows:
        print_text(row)


def render_json(prediction: Prediction) -> str:
    return f"{format_json(prediction.to_dict())}\n"


def refuse_conflicts(paths: Sequence[Path], files: Sequence[Path] | None, options: Mapping[str, Any]) -> None:
    """Raise an error where an input is given twice: standard input, or a prompt beside files."""
    from heedful.data.input_lines import refuse_two_readers

    others = [value for one in options.values() for field in fields(one) if isinstance(value := getattr(one, field.name), Path)]
    refuse_two_readers([*paths, *others])
    if files and any(getattr(one, "prompt", None) is not None for one in options.values()):
        raise ConfigError("given both --prompt and a file of prompts, expected one of them")


def refuse_search_options(search: list[str] | None, task: str, command: str) -> None:
    """Raise an error for search options of a command that does not search."""
    if search and command not in find_command(task).search:
        raise ConfigError(f"--search has no effect on heed {command} with a run of task {task!r}", hint="remove -s")


def search_config(predictor: Predictor, search: list[str] | None) -> SearchConfig:
    """The run's search config with the options of -s; reports a method implied by an option, as sampling by temperature=2."""
    config = predictor.search_config(search or [], origin=COMMAND_LINE)
    is_explicit = any(option.partition("=")[0].strip() == "method" for option in search or [])
    default = predictor.run.search.method
    if config.method != default and not is_explicit:
        print_message(f"search method: {config.method}, implied by {', '.join(search or [])} (default of the run: {default})")
    return config


def is_terminal(path: Path) -> bool:
    from heedful.data.input_lines import STDIN_NAMES

    return str(path) in STDIN_NAMES and sys.stdin is not None and sys.stdin.isatty()


def load_run(
    run: Path, together: list[Path] | None, checkpoint: str | None, device: str | None, precision: str | None = None
) -> Predictor:
    """Load a run, or an ensemble of several."""
    from heedful.runs.load import load

    predictor = load(run, checkpoint, device, precision)
    return predictor.join([load(other, checkpoint, device, precision) for other in together]) if together else predictor


def mount(app: typer.Typer) -> None:
    """Add `predict` and the natural name of every task."""
    commands = {name: find_command(name) for name in TASKS}
    for task, one in commands.items():
        extra: dict[str, Any] = {"task": task, "text": one.text}
        extra |= ({} if "predict" in one.search else {"search": None}) | ({} if one.ensembles else {"together": None})
        app.command(one.name, help=one.help)(with_options(predict, {task: one.predict}, {"files": one.argument}, **extra))
    general = (
        "Predict with a run of any task: translations, continued texts, labels.\n\n"
        "Reads one input per line. --json prints one object per line, with scores or probabilities."
    )
    every = with_options(predict, {task: one.predict for task, one in commands.items()}, task=None, text=None)
    app.command("predict", help=general)(every)
