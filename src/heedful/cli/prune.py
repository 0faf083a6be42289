"""heed prune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.output import Device, Json, print_json, print_message, print_text, table
from heedful.config.bounds import MAX_COUNT

if TYPE_CHECKING:
    from heedful.runs.prune import Pruned


def prune(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option(help="Run folder of the pruned model.")],
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="Heads to keep for each type of attention: encoder=6, decoder=8, cross=8; for a gpt: within=8. "
            "Default: heads whose gates are open."
        ),
    ] = None,
    by: Annotated[str, typer.Option(help="With --keep: rank heads by gradient or ablation.")] = "gradient",
    sentences: Annotated[
        int, typer.Option(min=1, max=MAX_COUNT, help="Training sentences, text blocks or examples for the ranking.")
    ] = 1000,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="best, last, average or step-N. Default: last for a run with gates, otherwise best."),
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Remove attention heads from a model and write a smaller run."""
    from heedful.runs.prune import HeadSelection, prune

    result = prune(run, out, HeadSelection(parse_counts(keep or []), by, sentences), checkpoint=checkpoint, device=device)
    if json:
        print_json(result._asdict() | {"run": str(result.run)})
        return
    rows = [
        (kind, str(sum(layers)), str(sum(result.heads[kind])), " ".join(map(str, result.heads[kind])))
        for kind, layers in result.heads_before.items()
    ]
    print_text(table([("heads", "before", "after", "per layer"), *rows]))
    print_text(
        f"parameters {result.parameters:,} of {result.parameters_before:,} ({result.parameters / result.parameters_before:.1%})"
    )
    print_text("valid  " + "  ".join(f"{name} {value:.4g}" for name, value in result.figures.items()) + format_counts(result))
    print_message(f"run folder: {result.run}")


def format_counts(result: Pruned) -> str:
    """The number of sentences behind the figures."""
    if result.sentences is None:
        return ""
    if not result.translated or result.translated == result.sentences:
        return f"  ({result.sentences:,} sentences)"
    names = " and ".join(name for name in result.figures if name not in ("loss", "perplexity"))
    return f"  ({result.sentences:,} sentences, of which the first {result.translated:,} were translated for {names})"


def parse_counts(given: list[str]) -> dict[str, int]:
    from heedful.errors import ConfigError

    """["encoder=6"] -> {"encoder": 6}"""
    counts: dict[str, int] = {}
    for one in given:
        kind, _, number = one.partition("=")
        if not number.isdecimal():
            raise ConfigError(f"--keep: given {one!r}, expected kind=number, as in encoder=6")
        if kind in counts:
            raise ConfigError(f"--keep: given {kind}={counts[kind]} and {one}, expected one number for each kind")
        counts[kind] = int(number)
    return counts
