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

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from heedful.errors import ConfigError
from heedful.inspection.drawing.figure import Figure
from heedful.inspection.drawing.markup import escape, escape_document
from heedful.inspection.drawing.plots import replace_missing_glyphs
from heedful.inspection.drawing.plots import save as save_figure
from heedful.inspection.drawing.svg import as_svg
from heedful.inspection.page import Content, Section, write_page
from heedful.inspection.page.blocks import Block
from heedful.storage.writing import output_bytes

FIGURES = (".svg", ".png", ".pdf")


class Result:
    """Base class of results; subclasses are frozen dataclasses.

    >>> result = heedful.inspection.lens(translator, "w1 w2")
    >>> [result.save(f"lens{suffix}").name for suffix in (".json", ".txt", ".svg", ".html")]
    ['lens.json', 'lens.txt', 'lens.svg', 'lens.html']
    """

    analysis: ClassVar[str] = ""  # its name at /api/inspect, where a view of the studio shows such a result

    @property
    def title(self) -> str:
        """Title of the figure, of the page and of its section in a report."""
        raise NotImplementedError

    @property
    def subject(self) -> Sequence[str]:
        """What was analyzed, at the top of the page: a text and its translation, or the model."""
        return [self.title]

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

    def options(self) -> dict[str, Any]:
        """The options with which a view of the studio asks for this result, besides the number of sentences."""
        return {}

    def section(self) -> Section:
        return Section(self.title, self.blocks(), self.to_dict(), self.analysis, self.options())

    def svg(self) -> str:
        return as_svg(self.figure())

    def html(self) -> str:
        content = Content(self.subject, [self.section()], text=self.subject[0])
        return write_page(f"Model inspection: {self.title}", content)

    def contents(self) -> dict[str, Callable[[], str | bytes]]:
        """The content of a file by its suffix, besides figures."""
        return {".json": lambda: to_json(self.to_dict()), ".txt": self.text, ".html": self.html}

    def save(self, path: str | Path) -> Path:
        """Write the result in the format of the file's suffix."""
        path, contents = Path(path), self.contents()
        if path.suffix in FIGURES:
            shown = self if path.suffix == ".svg" else map_texts(self, replace_missing_glyphs)
            save_figure(shown.figure(), path)
            return path
        if path.suffix not in contents:
            expected = ", ".join([*contents, *FIGURES])
            raise ConfigError(f"given {path.name!r}, expected a file name that ends in one of: {expected}")
        content = contents[path.suffix]()
        with output_bytes(path) as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def _repr_html_(self) -> str:
        """The page in an iframe, which separates its styles from those of the notebook."""
        return (
            f"<iframe srcdoc='{escape_document(self.html())}' "
            f'title="{escape(self.title)}" style="width:100%;height:900px;border:0" sandbox="allow-scripts"></iframe>'
        )


def to_json(value: Any) -> str:
    """One line of JSON; non-finite numbers become null, because JSON does not have them."""
    return json.dumps(replace_non_finite(value), ensure_ascii=False, allow_nan=False)


def replace_non_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in value.items()}
    return [replace_non_finite(item) for item in value] if isinstance(value, list | tuple) else value


def map_texts(value: Any, function: Callable[[str], str]) -> Any:
    """A copy with the function applied to every text in fields, lists and values of dictionaries."""
    if isinstance(value, str):
        return function(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        mapped = {field.name: map_texts(getattr(value, field.name), function) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **mapped)
    if isinstance(value, dict):
        return {key: map_texts(item, function) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [map_texts(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
