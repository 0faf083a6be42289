"""Sphinx builds the documentation: `make docs`. The pages of docs/reference are generated from the code at each build."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

project = "Heedful"
copyright = "Heedful contributors"
release = version = installed_version("heedful")
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Heedful {release}"
html_static_path: list[str] = []
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
suppress_warnings = ["misc.highlighting_failure"]  # formulas in code blocks


def generate(app: Any) -> None:
    from generate_reference import write_reference

    write_reference(Path(__file__).parent / "reference")


def setup(app: Any) -> None:
    app.connect("builder-inited", generate)
