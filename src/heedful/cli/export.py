"""heed export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.output import Json, print_json, print_message, print_text, table
from heedful.config.bounds import MAX_COUNT


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option(help="Output folder.")],
    form: Annotated[str, typer.Option("--to", help="Format: onnx.")] = "onnx",
    sentences: Annotated[
        int, typer.Option(min=1, max=MAX_COUNT, help="Validation sentences, or images, for the comparison.")
    ] = 100,
    checkpoint: Annotated[str | None, typer.Option(help="best, last, average or step-N. Default: best.")] = None,
    json: Json = False,
) -> None:
    """Export a translator or a captioner with its tokenizers for other runtimes, and compare its output with the run."""
    from heedful.exchange import export

    result = export(run, out, form, checkpoint=checkpoint, sentences=sentences, report=print_message)
    parity = result.parity
    if json:
        print_json(result._asdict() | {"folder": str(result.folder), "parity": parity._asdict()})
        return
    print_text(table([("file", "MB"), *((name, f"{size / 1e6:.2f}") for name, size in result.files.items())]))
    print_text(f"maximum difference of logits {parity.logits:.1e} over {parity.tokens:,} tokens")
    print_text(f"{parity.same} of {parity.sentences} validation outputs are the same")
    print_text(f"time {parity.seconds:.2f} s, in torch {parity.seconds_before:.2f} s")
    print_message(f"folder: {result.folder}")
