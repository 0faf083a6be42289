"""heed backtranslate: synthetic pairs from monolingual text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.bulk import CommitEvery, ShardOption, bulk_options, run_bulk
from heedful.cli.output import Checkpoint, Device, Json, Precision, Search, print_json, print_message, print_text
from heedful.cli.predict import Together, load_run, search_config


def backtranslate(
    run: Annotated[Path, typer.Argument(help="A run that translates from the language of the text: the reverse direction.")],
    files: Annotated[list[Path], typer.Argument(help="Monolingual text of the target language, one sentence per line.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="JSON lines of pairs, for data.train.")],
    search: Search = None,
    together: Together = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    precision: Precision = "fp32",
    shard: ShardOption = None,
    commit_every: CommitEvery = None,
    json: Json = False,
) -> None:
    """Translate monolingual text into the source language, and write the pairs as further training data.

    -s method=sample samples the translations instead of searching for the best. If the process is killed, the same command
    continues. Prints the lines that add the pairs to a recipe, with a tag as the first source token."""
    from heedful.evaluation.tables import counted
    from heedful.runs.bulk import BulkJob
    from heedful.storage.parts import load_parts
    from heedful.tasks.translation.backtranslation import TAG, render_pairs
    from heedful.tasks.translation.command import PredictOptions
    from heedful.tasks.translation.predictor import Translator
    from heedful.training import retention

    bulk = bulk_options(output, shard, commit_every)
    assert bulk is not None, "an output is given"
    translator = Translator.of(load_run(run, together, checkpoint, device, precision))
    checkpoints = [translator.checkpoint, *(retention.resolve(other, checkpoint) for other in together or ())]
    config = search_config(translator, search)
    joined = run_bulk(bulk, BulkJob(translator, files, config, PredictOptions(), render_pairs, "pairs", checkpoints, precision))
    if json:
        print_json({"output": str(output), "pairs": None if joined is None else joined.lines, "tag": TAG})
    elif joined is not None:
        missing = load_parts(output).inputs * config.n_best - joined.lines
        left_out = f"; {missing:,} with an empty side left out" if missing else ""
        print_message(f"{counted(joined.lines, 'pairs')}{left_out}")
    if not json:
        print_text(f'[[data.train]]\njsonl = "{output}"\ntag = "{TAG}"')
