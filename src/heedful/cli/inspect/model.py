"""heed inspect: analyses of a model over a corpus, or of the model itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.align import ChooseOn, Reverse, Source, Symmetrize, Target, check_files, load_reverse
from heedful.cli.inspect.present import Html, Picture, Run, present
from heedful.cli.output import Checkpoint, Device, Json, progress
from heedful.cli.task_options import is_given
from heedful.config.bounds import MAX_COUNT, MAX_RESAMPLES, MAX_SIZE
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.tasks.predictor import Predictor

Sentences = Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Sentences of the validation data.")]


def load(run: Path, checkpoint: str | None, device: str | None) -> Predictor:
    from heedful.runs.load import load

    return load(run, checkpoint, device)


def heads(
    run: Run,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Sentences in the format of the task: source TAB target TAB alignment, lines of text, or labeled texts."
        ),
    ] = None,
    conllu: Annotated[Path | None, typer.Option(help="Sentences with dependency trees, as CoNLL-U.")] = None,
    sentences: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Sentences to analyze, at most.")] = 200,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Role and importance of each attention head, over a corpus. Default: the validation data."""
    from heedful import inspection

    predictor = load(run, checkpoint, device)
    with progress(f"heads, {sentences:,} sentences", quiet=json) as advance:
        result = inspection.heads(predictor, data, conllu, sentences, advance)
    present(result, json=json, picture=picture, html=html)


def positions(
    run: Run,
    sentences: Annotated[
        int | None, typer.Option(min=1, max=MAX_COUNT, help="Translation: sentences of the validation data. Default: 200.")
    ] = None,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Positional encodings: similarity by distance, probes, shifts, and loss beyond the training lengths."""
    from heedful import inspection

    present(inspection.positions(load(run, checkpoint, device), sentences), json=json, picture=picture, html=html)


def cost(
    run: Run,
    rows: Annotated[int, typer.Option(min=1, max=MAX_SIZE, help="Batch size.")] = 32,
    tokens: Annotated[int, typer.Option(min=1, max=MAX_SIZE, help="Tokens per sentence.")] = 32,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Parameters, FLOP, bytes moved and memory of every part of the model."""
    from heedful import inspection

    present(inspection.cost(load(run, checkpoint, device), rows, tokens), json=json, picture=picture, html=html)


def experts(
    run: Run,
    sentences: Sentences = 200,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Expert utilization of a mixture of experts."""
    from heedful import inspection

    present(inspection.experts(load(run, checkpoint, device), sentences), json=json, picture=picture, html=html)


def alignment(
    context: typer.Context,
    run: Run,
    source: Source = None,
    target: Target = None,
    gold: Annotated[
        Path | None, typer.Option(help="Gold links, i-j sure and i?j possible: report the alignment error rate.")
    ] = None,
    choose_on: ChooseOn = None,
    reverse: Reverse = None,
    symmetrize: Symmetrize = None,
    bootstrap: Annotated[
        int, typer.Option(min=0, max=MAX_RESAMPLES, help="Bootstrap resamples for the 95% interval; 0: no interval.")
    ] = 1000,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Word alignment by attention: the selected heads and, given gold links, the error rate of each layer and head."""
    from heedful import inspection
    from heedful.data.gold import Gold, SentencePair, read_gold, read_words

    check_files(source, target, choose_on, symmetrize, reverse, gold)
    translator = load(run, checkpoint, device)
    data: Gold | list[SentencePair] | None = None
    if source is not None and target is not None:
        data = read_words(source, target) if gold is None else read_gold(source, target, gold)
    result = inspection.alignment(
        translator,
        data,
        choose_on=read_gold(*choose_on) if choose_on else None,
        reverse=load_reverse(reverse, checkpoint, device),
        symmetrize=symmetrize or "soft",
        bootstrap=bootstrap,
    )
    if result.scores is None and is_given(context, "bootstrap"):
        raise ConfigError("--bootstrap has no effect without gold links", hint="remove --bootstrap, or add --gold")
    present(result, json=json, picture=picture, html=html)


def pruning(
    run: Run,
    keep: Annotated[
        list[int] | None,
        typer.Option(min=0, max=MAX_COUNT, help="Number of heads to keep. Default: all, 3/4, 1/2, 1/4 and 1/8 of them."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Ablate only heads of this kind: encoder, decoder or cross; of a GPT: within.")
    ] = None,
    sentences: Annotated[
        int, typer.Option(min=1, max=MAX_COUNT, help="Training sentences, text blocks or examples for the ranking.")
    ] = 1000,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Loss and metrics on the validation data against the number of heads kept, without training."""
    from heedful import inspection

    predictor = load(run, checkpoint, device)
    with progress("pruning curve", quiet=json) as advance:
        result = inspection.pruning_curve(predictor, keep, kind=kind, sentences=sentences, progress=advance)
    present(result, json=json, picture=picture, html=html)


def returns(
    run: Run,
    desired: Annotated[
        list[float] | None,
        typer.Option(min=-MAX_SIZE, max=MAX_SIZE, help="Desired return; may be repeated. Default: quantiles of the data."),
    ] = None,
    episodes: Annotated[int, typer.Option(min=2, max=MAX_SIZE, help="Episodes for each desired return.")] = 100,
    against: Annotated[Path | None, typer.Option(help="Compare with another run, such as one without desired returns.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Take the most probable actions. Default: they are drawn.")] = False,
    picture: Picture = None,
    html: Html = None,
    checkpoint: Checkpoint = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Returns that a run of task "decisions" reaches in its grid world, against the desired ones."""
    from heedful import inspection

    other = None if against is None else load(against, checkpoint, device)
    result = inspection.returns(load(run, checkpoint, device), desired, episodes, against=other, greedy=greedy)
    present(result, json=json, picture=picture, html=html)


def mount(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (alignment, cost, experts, heads, positions, pruning, returns):
        app.command()(command)
