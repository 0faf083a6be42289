"""heed prune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.bounds import MAX_COUNT
from heedful.cli.output import Device, Json, print_json, print_message, print_text, table

if TYPE_CHECKING:
    from heedful.pruning import Pruned


def prune(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option(help="The folder of the smaller run.")],
    keep: Annotated[
        list[str] | None,
        typer.Option(help="encoder=6, decoder=8, cross=8; of a gpt within=8. Without it, what gates have closed goes."),
    ] = None,
    by: Annotated[str, typer.Option(help="With --keep, what ranks the heads: gradient or ablation.")] = "gradient",
    sentences: Annotated[
        int, typer.Option(min=1, max=MAX_COUNT, help="Training sentences, blocks of text or examples to rank them by.")
    ] = 1000,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="best, last, average or step-N; unless said, the last of a run with gates, else the best."),
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Take heads out of a model for good: a smaller run folder that says the same without them."""
    from heedful.pruning import HeadSelection, prune

    made = prune(run, out, HeadSelection(counts(keep or []), by, sentences), checkpoint=checkpoint, device=device)
    if json:
        print_json(made._asdict() | {"run": str(made.run)})
        return
    rows = [
        (kind, str(sum(layers)), str(sum(made.heads[kind])), " ".join(map(str, made.heads[kind])))
        for kind, layers in made.heads_before.items()
    ]
    print_text(table([("heads", "before", "left", "in each layer"), *rows]))
    print_text(f"parameters {made.parameters:,} of {made.parameters_before:,} ({made.parameters / made.parameters_before:.1%})")
    print_text("valid  " + "  ".join(f"{name} {value:.4g}" for name, value in made.figures.items()) + judged_by(made))
    print_message(f"run folder: {made.run}")


def judged_by(made: Pruned) -> str:
    """How many sentences stand behind the figures."""
    if made.sentences is None:
        return ""
    if not made.translated or made.translated == made.sentences:
        return f"  ({made.sentences:,} sentences)"
    names = " and ".join(name for name in made.figures if name not in ("loss", "perplexity"))
    return f"  ({made.sentences:,} sentences, of which the first {made.translated:,} were translated for {names})"


def counts(given: list[str]) -> dict[str, int]:
    from heedful.errors import ConfigError

    found: dict[str, int] = {}
    for one in given:
        kind, _, number = one.partition("=")
        if not number.isdecimal():
            raise ConfigError(f"--keep: given {one!r}, expected a kind and how many of its heads stay, as in encoder=6")
        if kind in found:
            raise ConfigError(f"--keep: given {kind}={found[kind]} and {one}, expected one number for each kind")
        found[kind] = int(number)
    return found
