"""heed inspect: analyses of a model over a corpus, or of the model itself."""

from __future__ import annotations

import typer


def mount(app: typer.Typer) -> None:
    """Add the commands of this module."""
