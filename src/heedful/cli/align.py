"""heed align: word alignments by attention, in the Pharaoh format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from heedful.cli.output import Checkpoint, Device, Json, check_finite, print_json, print_message, print_text
from heedful.cli.task_options import is_given
from heedful.storage.writing import output_file

if TYPE_CHECKING:
    from heedful.tasks.predictor import Predictor

Method = Literal["soft", "grow-diag-final-and", "grow-diag", "intersection", "union"]
Source = Annotated[Path | None, typer.Option(help="Source sentences, one per line. Default: the run's test data.")]
Target = Annotated[Path | None, typer.Option(help="Translations of --source, one per line.")]
ChooseOn = Annotated[
    tuple[Path, Path, Path] | None,
    typer.Option(help="Source, target and gold files on which to select heads and thresholds."),
]
Reverse = Annotated[Path | None, typer.Option(help="Run of the opposite direction, to align in both directions.")]
Symmetrize = Annotated[
    Method | None, typer.Option(help="With --reverse: average heads of both runs (soft), or combine their links.")
]
SETTINGS = ("heads", "moment", "row", "column", "cover")  # options that select an aligner


def threshold(word: str) -> typer.models.OptionInfo:
    """An option for a threshold relative to the largest weight of a word."""
    option: typer.models.OptionInfo = typer.Option(
        min=0,
        max=1,
        callback=check_finite,
        help=f"Minimum weight of a link, as a share of the {word} word's largest weight.",
    )
    return option


def align(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    source: Source = None,
    target: Target = None,
    out: Annotated[Path | None, typer.Option(help="Write links to this file. Default: standard output.")] = None,
    heads: Annotated[
        str | None, typer.Option(help="Heads, layer.head, or layers, from 0: 0.3,1.5,back.0.2 or 1. Default: all.")
    ] = None,
    moment: Annotated[
        Literal["predict", "consume"],
        typer.Option(help="Attention from the step that predicts the target word, or that consumes it."),
    ] = "predict",
    row: Annotated[float, threshold("target")] = 1.0,
    column: Annotated[float, threshold("source")] = 0.0,
    cover: Annotated[
        Literal["none", "target", "both"],
        typer.Option(help="Words that get at least one link: none, all target words, or all words."),
    ] = "none",
    choose_on: ChooseOn = None,
    reverse: Reverse = None,
    symmetrize: Symmetrize = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Align the words of sentence pairs by attention.

    Prints one line of links per pair: 0-0 1-2. `heed inspect alignment` computes error rates."""
    from heedful.data.gold import read_gold, read_words
    from heedful.inspection import alignment
    from heedful.inspection.analyses.alignment import find_heads
    from heedful.inspection.measures.alignment_heads import Aligner
    from heedful.inspection.measures.alignment_links import LinkRule
    from heedful.tasks.translation.predictor import Translator

    check_files(source, target, choose_on, symmetrize, reverse)
    translator, back = Translator.load(run, checkpoint, device), load_reverse(reverse, checkpoint, device)
    pairs = None if source is None or target is None else read_words(source, target)
    aligner = None
    if any(is_given(context, name) for name in SETTINGS):
        joined = back if symmetrize in (None, "soft") else None
        aligner = Aligner(find_heads(translator, heads, joined), moment, LinkRule(row, column, cover))
    with output_file(out or Path(os.devnull)) as file:  # opened before the work, so that errors come early
        result = alignment(
            translator,
            pairs,
            aligner=aligner,
            choose_on=read_gold(*choose_on) if choose_on else None,
            reverse=back,
            symmetrize=symmetrize or "soft",
            bootstrap=0,
        )
        file.writelines(f"{line}\n" for line in result.pharaoh())
    if result.origin != "given":
        print_message(result.settings)
    if json:
        print_json(result.to_dict())
    elif out is None:
        for line in result.pharaoh():
            print_text(line)
    else:
        print_text(result.header()[0])


def check_files(
    source: Path | None,
    target: Path | None,
    choose_on: tuple[Path, Path, Path] | None,
    symmetrize: str | None,
    reverse: Path | None,
    gold: Path | None = None,
) -> None:
    """Raise an error for options that require others, before any work."""
    from heedful.data.input_lines import refuse_two_readers
    from heedful.errors import ConfigError

    if symmetrize is not None and reverse is None:
        raise ConfigError(f"--symmetrize {symmetrize} combines two runs and has no effect without --reverse")
    refuse_two_readers([source, target, gold, *(choose_on or ())])
    if (source is None) != (target is None):
        raise ConfigError("--source and --target require each other", hint="give both, or neither for the run's test data")
    if gold is not None and source is None:
        raise ConfigError("--gold requires --source and --target")


def load_reverse(run: Path | None, checkpoint: str | None, device: str | None) -> Predictor | None:
    from heedful.tasks.translation.predictor import Translator

    return None if run is None else Translator.load(run, checkpoint, device)
