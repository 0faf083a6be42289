"""heed generate: continue a prompt with a language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.output import (
    COMMAND_LINE,
    Checkpoint,
    Device,
    Json,
    Precision,
    Search,
    print_json,
    print_text,
    table,
    warn_of_unknown,
)
from heedful.config.bounds import MAX_SIZE

if TYPE_CHECKING:
    from heedful.runs.classifier import Classifier
    from heedful.runs.text_generator import TextGenerator


def generate(
    run: Annotated[Path, typer.Argument(help="The run folder of a language model.")],
    prompt: Annotated[str, typer.Option(help="Beginning of the text.")] = "",
    length: Annotated[int, typer.Option(min=1, max=MAX_SIZE, help="Tokens to generate.")] = 200,
    search: Search = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    precision: Precision = "fp32",
    json: Json = False,
) -> None:
    """Generate text from a prompt with a language model.

    The search method is that of the run; change it with -s, as in -s method=greedy."""
    from heedful.errors import ConfigError
    from heedful.runs.build import load
    from heedful.tasks.generate import generate as generate_texts

    generator = load(run, checkpoint, device, precision)
    if generator.run.task.name != "language":
        raise ConfigError(f"{run} is a run of task {generator.run.task.name!r}, expected a run of task 'language'")
    texts = generate_texts(generator.system, prompt, length, generator.search_config(search or [], origin=COMMAND_LINE))
    warn_of_unknown(generator.system.target_tokenizer.unknown_words(prompt))
    if json:
        print_json({"prompt": prompt, "texts": texts, "checkpoint": str(generator.checkpoint), "precision": precision})
    else:
        print_text("\n---\n".join(texts))


def print_evaluation(worker: TextGenerator | Classifier, split: str, precision: str, json: bool) -> None:
    """Print the result of `heed evaluate` for a language model or a classifier."""
    figures = worker.evaluate(split)
    if json:
        about = {"tokenizer": worker.system.target_tokenizer.description, "checkpoint": str(worker.checkpoint)}
        print_json({"split": split, "figures": figures, **about, "precision": precision})
    else:
        print_text(table([("figure", split), *((name.replace("_", " "), f"{value:.4g}") for name, value in figures.items())]))
