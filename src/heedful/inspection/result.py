"""The result of an analysis: numbers, with a text, a figure and a page.

result = heedful.inspection.heads(predictor)
result.to_dict()              plain numbers and texts, as `--json` prints them
result.text()                 for a terminal
result.svg()                  a static figure
result.html()                 a self-contained page
result.save("heads.png")      by suffix: .json, .txt, .svg, .png, .pdf, .html
result                        the page, in a notebook
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError
from heedful.inspection.drawing.figure import Figure
from heedful.inspection.drawing.markup import escape
from heedful.inspection.drawing.plots import save as save_figure
from heedful.inspection.drawing.svg import as_svg
from heedful.inspection.report import Numbers, Section, write_page
from heedful.inspection.report.blocks import Block
from heedful.storage.writing import output_bytes

FOOTER = "Written by heedful. This file is self-contained and makes no network requests."
EMPTY_PAGE: dict[str, Any] = {"source": None, "target": None, "marks": [], "labels": [], "kinds": [], "words": None}


class Result:
    """Base class of results; subclasses are frozen dataclasses."""

    @property
    def title(self) -> str:
        """Title of the figure, of the page and of its section in a report."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts, lists and dictionaries."""
        raise NotImplementedError

    def text(self) -> str:
        """The result for a terminal."""
        raise NotImplementedError

    def blocks(self) -> list[Block]:
        """The result as a section of a report."""
        raise NotImplementedError

    def figure(self) -> Figure:
        """The result as a drawing."""
        raise ConfigError(f"{type(self).__name__} has no figure", hint="use text() or html()")

    def section(self) -> Section:
        return Section(self.title, self.blocks(), self.to_dict())

    def svg(self) -> str:
        return as_svg(self.figure())

    def html(self) -> str:
        content = EMPTY_PAGE | {"title": [self.title], "facts": []}
        return write_page(f"Model inspection: {self.title}", FOOTER, content, Numbers(0), (self.section(),))

    def save(self, path: str | Path) -> Path:
        """Write the result in the format of the file's suffix."""
        path = Path(path)
        if path.suffix in (".svg", ".png", ".pdf"):
            save_figure(self.figure(), path)
            return path
        formats = {".json": lambda: json.dumps(self.to_dict(), ensure_ascii=False), ".txt": self.text, ".html": self.html}
        if path.suffix not in formats:
            expected = ", ".join([*formats, ".svg", ".png", ".pdf"])
            raise ConfigError(f"given {path.name!r}, expected a file name that ends in one of: {expected}")
        with output_bytes(path) as file:
            file.write(formats[path.suffix]().encode())
        return path

    def _repr_html_(self) -> str:
        """The page in an iframe, which separates its styles from those of the notebook."""
        return (
            f'<iframe srcdoc="{escape(self.html())}" title="{escape(self.title)}" '
            'style="width:100%;height:900px;border:0" sandbox="allow-scripts"></iframe>'
        )
