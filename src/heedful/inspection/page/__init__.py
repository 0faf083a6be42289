"""The page of a result: one self-contained HTML file with the script of the studio, which makes no network requests.

    write_page(title, content) -> text

The studio asks a server for the result of an analysis, as /api/inspect/lens answers. In a file it finds the same results in the
file instead, and offers the views that they are enough for. The first of these views, "Results", shows every result as blocks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from heedful.inspection.drawing.markup import escape
from heedful.inspection.page.arrays import Numbers
from heedful.inspection.page.blocks import Block, as_html
from heedful.storage.reading import read_package_text

SURROGATE = re.compile("[\ud800-\udfff]")
RECORDED = "tour"  # id of a model whose replies are recorded; the page offers no input for it
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


class Section(NamedTuple):
    """A result in the page: what is shown of it, and all data by name (texts, numbers, table rows, or nested dicts)."""

    title: str
    blocks: Sequence[Block] | None  # None: another view shows it
    data: dict[str, Any]
    analysis: str = ""  # the data are the reply of /api/inspect/<analysis>
    options: Mapping[str, Any] = {}  # with these options


@dataclass(frozen=True)
class Content:
    """What a page shows."""

    subject: Sequence[str]  # the text and its translation, or the model
    sections: Sequence[Section]
    facts: Sequence[str] = ()  # short facts about the model
    text: str = ""  # the input of the analyses
    attention: Mapping[str, Any] | None = None  # of `trace_content`
    numbers: Numbers = field(default_factory=lambda: Numbers(0))
    replies: Mapping[str, Any] = field(default_factory=dict)  # to further requests of the views, by `request_key`
    selection: Mapping[str, Any] = field(default_factory=dict)  # what the views show first: kind, layer, head
    model: Mapping[str, Any] = field(default_factory=dict)  # what /api/models says of it: task, inputs, search


def write_page(title: str, content: Content) -> str:
    """The page as text."""
    shown = [one for one in content.sections if one.blocks is not None]
    sections = "\n".join(f"<section><h2>{escape(one.title)}</h2>{as_html(one.blocks or ())}</section>" for one in shown)
    script = read_package_text("heedful.studio", "studio.js").replace("</script", "<\\/script")
    style = read_package_text("heedful.studio", "studio.css")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n'
        f'<template id="sections">\n{sections}\n</template>\n'
        f'<script type="application/json" id="recorded">{as_script(recorded(content))}</script>\n'
        f'<div id="app"></div>\n<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def recorded(content: Content) -> dict[str, Any]:
    """The replies of a server that the page needs, as `studio/src/recorded.ts` reads them."""
    kinds = [] if content.attention is None else content.attention["kinds"]
    attention = [
        {"kind": kind["name"], "layers": [{"layer": one["layer"], "heads": one["heads"]} for one in kind["layers"]]}
        for kind in kinds
    ]
    model = {
        "task": "",
        "command": "",
        "languages": None,
        **content.model,
        "id": RECORDED,
        "example": content.text,
        "generates": False,
        "reads_turns": False,
        "translates": any("alignment" in one.data for one in content.sections if one.analysis == "attention"),
        "options": [],
        "attention": attention,
        "analyses": sorted({one.analysis for one in content.sections if one.analysis}),
    }
    return {
        "model": model,
        "text": content.text,
        "subject": list(content.subject),
        "facts": list(content.facts),
        "selection": dict(content.selection),
        "results": [
            {"title": one.title, "analysis": one.analysis, "options": dict(one.options), "shown": one.blocks is not None}
            | {"data": one.data}
            for one in content.sections
        ],
        "attention": content.attention,
        "arrays": content.numbers.shapes,
        "numbers": content.numbers.pack(),
        "replies": dict(content.replies),
    }


def request_key(path: str, body: Mapping[str, Any]) -> str:
    """The name of a recorded reply: the path and the body of its request, without the model, as JavaScript writes it."""
    return f"{path} {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}"


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
