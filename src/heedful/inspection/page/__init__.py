"""The report: one self-contained HTML file with a trace and the scripts that show it; it makes no network requests.

    write_page(title, footer, facts, numbers, sections) -> text

All arrays are stored in one block: for each array all first bytes, then all second bytes and so on (which compresses better),
then deflate and base64. Arrays are float32 in small files; in larger files weights are stored in units of 1/10,000, so four
decimals are exact and the error of a weighted norm is at most half a unit times the norm of its vector.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.inspection.drawing.markup import escape
from heedful.inspection.page.blocks import Block, as_html
from heedful.storage.reading import read_package_text

EXACT = 100_000  # weights up to which all are stored as float32
LEVEL = 9
SURROGATE = re.compile("[\ud800-\udfff]")
SCRIPTS = ("inflate.js", "numbers.js", "drawing.js", "parts.js", "page.js")


class Numbers:
    """The arrays of a page, each referenced by its index."""

    def __init__(self, weights: int) -> None:
        """weights: the total number of attention weights."""
        self.coded = weights > EXACT
        self.arrays: list[tuple[str, Tensor]] = []

    def add(self, array: Tensor, *, exact: bool = False) -> int:
        """Add weights between 0 and 1, or exact values of any size, and return the index."""
        self.arrays.append(("f32" if exact or not self.coded else "u16", array.detach().float().cpu().contiguous()))
        return len(self.arrays) - 1

    @property
    def shapes(self) -> list[list[Any]]:
        return [[coding, *array.shape] for coding, array in self.arrays]

    def pack(self) -> str:
        return base64.b64encode(zlib.compress(b"".join(byte_planes(*one) for one in self.arrays), LEVEL)).decode()


def byte_planes(coding: str, array: Tensor) -> bytes:
    """Return all first bytes of the values (little-endian), then all second bytes, …"""
    values = array.reshape(-1, 1)
    if coding == "u16":
        codes = (values.double() * 10_000).round().long()
        return torch.cat((codes & 255, codes >> 8), dim=1).to(torch.uint8).t().contiguous().numpy().tobytes()
    return values.view(torch.uint8).t().contiguous().numpy().tobytes()


class Section(NamedTuple):
    """A section of the page: the blocks that are shown, and all data by name (texts, numbers, table rows, or nested dicts)."""

    title: str
    blocks: Sequence[Block]
    data: dict[str, Any]


def write_page(title: str, footer: str, facts: dict[str, Any], numbers: Numbers, sections: Sequence[Section] = ()) -> str:
    """Return the page. facts: the content that the scripts show (see `page/trace_content.py`), without arrays and sections."""
    content = facts | {"sections": [section.data for section in sections], "arrays": numbers.shapes, "numbers": numbers.pack()}
    parts = {"title": escape(title), "footer": escape(footer), "data": as_script(content)}
    parts["sections"] = "\n".join(
        f"<section><h2>{escape(section.title)}</h2>{as_html(section.blocks)}</section>" for section in sections
    )
    parts |= {"style": asset("page.css"), "script": "\n".join(asset(name) for name in SCRIPTS)}
    return fill_template(asset("template.html"), parts)


def as_script(content: dict[str, Any]) -> str:
    """Return JSON that is safe inside a script element, whatever its texts contain."""
    text = json.dumps(replace_nonfinite(content), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = SURROGATE.sub(lambda one: f"\\u{ord(one[0]):04x}", text)  # UTF-8 cannot encode it
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028")


def replace_nonfinite(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {name: replace_nonfinite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fill_template(template: str, parts: dict[str, str]) -> str:
    """Replace every @name@ once; inserted values are not searched again."""
    pieces: Sequence[str] = [template]
    for name, value in parts.items():
        index = next(at for at, piece in enumerate(pieces) if f"@{name}@" in piece and at % 2 == 0)
        before, after = pieces[index].split(f"@{name}@")
        pieces = [*pieces[:index], before, value, after, *pieces[index + 1 :]]
    return "".join(pieces)


def asset(name: str) -> str:
    return read_package_text(__name__, name)
