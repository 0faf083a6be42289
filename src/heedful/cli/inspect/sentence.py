"""heed inspect: analyses of one text."""

from __future__ import annotations

import typer


def mount(app: typer.Typer) -> None:
    """Add the commands of this module."""
