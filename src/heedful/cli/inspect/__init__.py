"""heed inspect: one small command per analysis of `heedful.inspection`. Parse, call, present."""

from __future__ import annotations

import typer

from heedful.cli.inspect import model, sentence

app = typer.Typer(help="Analyze a trained model: attention, heads, positions, cost and more.", no_args_is_help=True)
sentence.mount(app)
model.mount(app)
