"""Present the result of an analysis: text or JSON on standard output, a figure or a page in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.output import print_json, print_message, print_text, require_suffix

if TYPE_CHECKING:
    from heedful.inspection.result import Result


Run = Annotated[Path, typer.Argument(help="A run folder.")]
Picture = Annotated[
    Path | None,
    typer.Option(help="Draw the result to this .svg, .png or .pdf file.", callback=require_suffix(".svg", ".png", ".pdf")),
]
Html = Annotated[
    Path | None, typer.Option(help="Write the result as one self-contained HTML file.", callback=require_suffix(".html"))
]


def present(result: Result, *, json: bool, picture: Path | None = None, html: Path | None = None) -> None:
    """Write the requested files, then print the result."""
    paths = [path for path in (picture, html) if path is not None]
    for path in paths:
        result.save(path)
    print_json(result.to_dict()) if json else print_text(result.text())
    for path in paths:
        print_message(f"wrote {path}")
