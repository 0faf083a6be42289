"""heed evaluate, for every task, and heed score."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.output import Checkpoint, Device, Json, Precision, Search, print_json, print_message, print_text
from heedful.cli.predict import Run, Together, load_run, refuse_search_options, search_config
from heedful.cli.task_options import refuse_options_of_others, with_options
from heedful.tasks import TASKS, find_command

if TYPE_CHECKING:
    from heedful.tasks.predictor import Predictor


def evaluate(
    run: Run,
    split: Annotated[str, typer.Option(help="Split of the run's data: test, valid or train.")] = "test",
    search: Search = None,
    together: Together = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    precision: Precision = "fp32",
    json: Json = False,
    *,
    options: Mapping[str, Any],
    given: set[str],
) -> None:
    predictor = load_run(run, together, checkpoint, device, precision)
    name: str = predictor.run.task.name
    refuse_options_of_others(run, name, {other: type(one) for other, one in options.items()}, given)
    refuse_search_options(search, name, "evaluate")

    def load(path: Path) -> Predictor:
        return load_run(path, None, checkpoint, device, precision)

    chosen = split if "split" in given else None
    report = predictor.report(chosen, options[name], load=load, search=lambda one: search_config(one, search))
    for warning in report.warnings:
        print_message(warning)
    if json:
        about = {"tokenizer": predictor.system.target_tokenizer.description, "checkpoint": str(predictor.checkpoint)}
        print_json(report.to_dict() | about | {"precision": precision})
    else:
        print_text(report.text())


def mount(app: typer.Typer) -> None:
    text = (
        "Evaluate a run on its test data.\n\n"
        "Reports loss and perplexity or accuracy; for translation also sacreBLEU metrics with confidence intervals."
    )
    app.command("evaluate", help=text)(with_options(evaluate, {name: find_command(name).evaluate for name in TASKS}))


def score(
    run: Run,
    source: Annotated[Path, typer.Option(help="Source sentences, one per line.")],
    target: Annotated[Path, typer.Option(help="Translations of --source, one per line.")],
    together: Together = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Compute the log-probabilities of given translations.

    Prints one line per pair: log-probability TAB number of tokens."""
    from heedful.data.input_lines import read_texts, refuse_two_readers
    from heedful.evaluation.metrics import perplexity
    from heedful.tasks.translation.predictor import Translator

    refuse_two_readers([source, target])
    translator = Translator.of(load_run(run, together, checkpoint, device))
    scored = translator.score(list(read_texts(source)), list(read_texts(target)))
    known = [one for one in scored if one is not None]
    total, count = sum(one.log_probability for one in known), sum(one.tokens for one in known)
    if json:
        pairs = [None if one is None else one._asdict() for one in scored]
        print_json({"pairs": pairs, "tokens": count, "perplexity": perplexity(-total, count).value})
        return
    for one in scored:
        print_text("too long" if one is None else f"{one.log_probability:.6f}\t{one.tokens}")
    print_message(f"perplexity {perplexity(-total, count).value:.4g} over {count:,} tokens")
