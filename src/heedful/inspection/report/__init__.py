"""The report: one HTML file that holds a trace and the page to read it with, and asks the network for nothing.

    write_page(title, footer, facts, numbers, sections) -> text

The numbers go into one packed block: for each array all first bytes, then all second bytes and so on, which packs better,
then deflate and base64. They are float32 as long as the file stays small enough to be mailed, else weights are
ten-thousandths: then four decimals are exact, and a norm is known to within half of one times its vector's length.
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

from heedful.inspection.markup import escape
from heedful.inspection.report.blocks import Block, as_html
from heedful.storage.reading import read_package_text

EXACT = 100_000  # weights that are kept as float32
LEVEL = 9
SURROGATE = re.compile("[\ud800-\udfff]")
SCRIPTS = ("inflate.js", "numbers.js", "drawing.js", "parts.js", "page.js")


class Numbers:
    """The arrays of a page, each known by its place."""

    def __init__(self, weights: int) -> None:
        """weights: how many there will be."""
        self.coded = weights > EXACT
        self.arrays: list[tuple[str, Tensor]] = []

    def add(self, array: Tensor, *, exact: bool = False) -> int:
        """Weights from 0 to 1, or exact numbers of any size -> the place."""
        self.arrays.append(("f32" if exact or not self.coded else "u16", array.detach().float().cpu().contiguous()))
        return len(self.arrays) - 1

    @property
    def shapes(self) -> list[list[Any]]:
        return [[coding, *array.shape] for coding, array in self.arrays]

    def packed(self) -> str:
        return base64.b64encode(zlib.compress(b"".join(planes(*one) for one in self.arrays), LEVEL)).decode()


def planes(coding: str, array: Tensor) -> bytes:
    """All first bytes of the numbers, little end first, then all second ones, …"""
    numbers = array.reshape(-1, 1)
    if coding == "u16":
        codes = (numbers.double() * 10_000).round().long()
        return torch.cat((codes & 255, codes >> 8), dim=1).to(torch.uint8).t().contiguous().numpy().tobytes()
    return numbers.view(torch.uint8).t().contiguous().numpy().tobytes()


class Section(NamedTuple):
    """What another part found: as it is shown, and all of it by name: texts, numbers, rows of a table, or parts of parts."""

    title: str
    blocks: Sequence[Block]
    found: dict[str, Any]


def write_page(title: str, footer: str, facts: dict[str, Any], numbers: Numbers, sections: Sequence[Section] = ()) -> str:
    """facts: what the scripts know (see `studies/reporting.py`); the numbers and what sections found are added here."""
    content = facts | {"sections": [one.found for one in sections], "arrays": numbers.shapes, "numbers": numbers.packed()}
    parts = {"title": escape(title), "footer": escape(footer), "data": as_script(content)}
    parts["sections"] = "\n".join(f"<section><h2>{escape(one.title)}</h2>{as_html(one.blocks)}</section>" for one in sections)
    parts |= {"style": asset("page.css"), "script": "\n".join(asset(name) for name in SCRIPTS)}
    return filled(asset("template.html"), parts)


def as_script(content: dict[str, Any]) -> str:
    """JSON that ends no element, whatever its texts say."""
    text = json.dumps(finite(content), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = SURROGATE.sub(lambda one: f"\\u{ord(one[0]):04x}", text)  # UTF-8 cannot hold it
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028")


def finite(value: Any) -> Any:
    """As JSON knows it: no number is without end, and none is not a number."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def filled(template: str, parts: dict[str, str]) -> str:
    """Every @name@ once; what is put in is not looked at again."""
    pieces: Sequence[str] = [template]
    for name, value in parts.items():
        place = next(at for at, piece in enumerate(pieces) if f"@{name}@" in piece and at % 2 == 0)
        before, after = pieces[place].split(f"@{name}@")
        pieces = [*pieces[:place], before, value, after, *pieces[place + 1 :]]
    return "".join(pieces)


def asset(name: str) -> str:
    return read_package_text(__name__, name)
