"""Figures and pages are well-formed for any text."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import torch
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.inspection.drawing.figure import TokenCell, add_caption, heatmap, lines, words
from heedful.inspection.drawing.markup import escape
from heedful.inspection.drawing.svg import as_svg, inline
from heedful.inspection.page import as_script

SVG = "{http://www.w3.org/2000/svg}"
ANY = st.text(st.characters(exclude_categories=[]), max_size=12)  # including lone surrogates and unassigned characters
WORST = "".join(map(chr, [*range(0x20), 0x7F, 0x85, 0xD800, 0xDFFF, 0xFDD0, 0xFFFE, 0xFFFF, 0x1FFFE])) + "\"'<&>]]>"


@given(text=ANY)
def test_escaped_text_parses_back_except_characters_that_xml_cannot_represent(text: str) -> None:
    root = ElementTree.fromstring(f'<a b="{escape(text)}">{escape(text)}</a>'.encode())
    expected = "".join(one if escape(one) != "\ufffd" else "\ufffd" for one in text)
    assert (root.text or "") == expected.replace("\r\n", "\n").replace("\r", "\n")
    assert len(root.attrib["b"]) == len(root.text or "")


@given(tokens=st.lists(ANY, min_size=1, max_size=4), title=ANY)
def test_every_figure_is_well_formed(tokens: list[str], title: str) -> None:
    tokens = [*tokens, WORST]
    weights = torch.full((len(tokens), len(tokens)), 0.5)
    grid = [[TokenCell(token, 0.5) for token in tokens]]
    for figure in (
        add_caption(heatmap(weights, tokens, tokens, title), [title, WORST]),
        lines(weights, tokens, tokens, title),
        words(grid, [title], tokens, title),
    ):
        for text in (as_svg(figure), inline(figure)):
            assert ElementTree.fromstring(text.encode()).tag.endswith("svg")


def test_any_text_can_be_written_as_script_data() -> None:
    assert as_script({"text": WORST}).encode()


def test_no_other_module_escapes_text() -> None:
    root = Path(heedful.__file__).parent
    own = re.compile(r"^(from|import) (html|xml\.sax)\b", re.MULTILINE)
    found = {path.stem for path in root.rglob("*.py") if own.search(path.read_text())}
    assert found == {"html_text", "markup"}  # translations of HTML, and everything that is drawn
