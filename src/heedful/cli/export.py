"""heed export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.bounds import MAX_COUNT
from heedful.cli.output import Json, print_json, print_message, print_text, table


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    form: Annotated[str, typer.Option("--to", help="What to make of it: onnx.")] = "onnx",
    sentences: Annotated[
        int, typer.Option(min=1, max=MAX_COUNT, help="Validation sentences on which both are compared.")
    ] = 100,
    checkpoint: Annotated[str | None, typer.Option(help="best, last, average or step-N.")] = None,
    json: Json = False,
) -> None:
    """Write a model for other runtimes, with what it needs to translate; compared with the run before it is handed over."""
    from heedful.exchange import export

    made = export(run, out, form, checkpoint=checkpoint, sentences=sentences, report=print_message)
    found = made.parity
    if json:
        print_json(made._asdict() | {"folder": str(made.folder), "parity": found._asdict()})
        return
    print_text(table([("file", "MB"), *((name, f"{size / 1e6:.2f}") for name, size in made.files.items())]))
    print_text(f"logits differ by {found.logits:.1e} at most, over {found.tokens:,} tokens")
    print_text(f"{found.same} of {found.sentences} validation sentences are translated alike")
    print_text(f"seconds for them: {found.seconds:.2f}, in torch {found.seconds_before:.2f}")
    print_message(f"folder: {made.folder}")
