"""heed search: the best stored answers to a question, and the index of the stored answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.output import Checkpoint, Device, Json, print_json, print_message, print_text, warn_of_unknown
from heedful.cli.predict import Run
from heedful.config.bounds import MAX_SMALL
from heedful.errors import ConfigError
from heedful.tasks.retrieval.command import Match


def search(
    run: Run,
    question: Annotated[
        list[str] | None, typer.Argument(help="A question, or the turns of a dialogue, each in quotes, the question last.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=MAX_SMALL, help="Number of answers.")] = 5,
    match: Annotated[
        Match | None, typer.Option(help="Compare with stored questions, stored answers, or both. Default: as in the run.")
    ] = None,
    build: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Store and index the answers of this file instead: .jsonl with question and answer, or lines of turns and an "
            "answer, separated by tabs.",
        ),
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Index the stored answers again, with this checkpoint.")] = False,
    approximate: Annotated[
        bool,
        typer.Option(
            "--approximate",
            help="With --build or --rebuild: an index whose searches are faster and may miss answers; needs faiss.",
        ),
    ] = False,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Find the best stored answers to a question with a run of task retrieval.

    Stored answers are those of the training data, or of a file given with --build. They are indexed once."""
    from heedful.data.sources import find_path
    from heedful.tasks.retrieval.predictor import RetrievedAnswers, Retriever, answer_table

    if build is not None and rebuild:
        raise ConfigError("given both --build and --rebuild, expected one of them")
    if approximate and build is None and not rebuild:
        raise ConfigError("given --approximate, which has no effect without --build or --rebuild", hint="add --rebuild")
    if not question and build is None and not rebuild:
        raise ConfigError("given no question, expected a text", hint=f'heed search {run} "…"')
    retriever = Retriever.load(run, checkpoint, device)
    about = {}
    if build is not None or rebuild or not retriever.is_indexed:
        print_message("indexing the stored answers")
        count = retriever.build(None if build is None else find_path(str(build)), approximate=approximate)
        print_message(f"{retriever.knowledge_folder}: {count:,} entries")
        about = {"knowledge": str(retriever.knowledge_folder), "indexed": count}
    if not question:
        if json:
            print_json(about)
        return
    answers = retriever.search(question, top, match)
    if json:
        print_json(RetrievedAnswers(tuple(question), answers, True).to_dict() | about)
    else:
        print_text(answer_table(answers))
    warn_of_unknown([word for turn in question for word in retriever.unknown_words(turn)])
