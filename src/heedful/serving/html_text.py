"""HTML for translation: its texts are taken out, and their translations put back between the same tags.

    page = parse_html('I am <b onclick="x()">trendy</b> &amp; new')
    page.texts                                  ['I am', 'trendy', '& new']
    page.join(['Io sono', 'alla moda', '& nuovo'])
                                                'Io sono <b>alla moda</b> &amp; nuovo'

Tags are written again from what was parsed, so that the output is well-formed whatever the input was. Event handlers and
javascript: links are left out. A translation is always escaped: text that looks like a tag stays text. The content of scripts,
styles and code, and of elements with translate="no", is not translated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from html.parser import HTMLParser

RAW = {"script", "style"}  # their content is not text
UNTRANSLATED = {*RAW, "code", "pre", "textarea"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
TAG = re.compile(r"[a-z][a-z0-9:-]*")
ATTRIBUTE = re.compile(r"[a-z_:@][a-z0-9_:.@-]*")
LINKS = {"href", "src", "action", "formaction", "xlink:href", "data", "poster"}
SCRIPT_LINK = re.compile(r"(javascript|vbscript|data):")


class Page(HTMLParser):
    """The parts of a page: markup as text, and places of texts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str | int] = []  # markup, or the index of a text
        self.texts: list[str] = []
        self.kept: list[str] = []  # the open elements since the one whose content is not translated

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.start(tag, attrs)
        if tag not in VOID and (self.kept or tag in UNTRANSLATED or ("translate", "no") in attrs):
            self.kept.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.start(tag, attrs, end=" /")

    def start(self, tag: str, attrs: list[tuple[str, str | None]], end: str = "") -> None:
        if TAG.fullmatch(tag):
            self.parts.append(f"<{tag}{''.join(attribute(name, value) for name, value in attrs)}{end}>")
        else:
            self.parts.append(escape(self.get_starttag_text() or "", quote=False))

    def handle_endtag(self, tag: str) -> None:
        if tag in self.kept:
            del self.kept[len(self.kept) - 1 - self.kept[::-1].index(tag) :]
        if TAG.fullmatch(tag):
            self.parts.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if self.kept:
            self.parts.append(data if self.kept[-1] in RAW else escape(data, quote=False))
            return
        before, text, after = split_space(data)
        self.parts.append(before)
        if any(character.isalpha() for character in text):
            self.parts.append(len(self.texts))
            self.texts.append(text)
        else:
            self.parts.append(escape(text, quote=False))
        self.parts.append(after)

    def handle_comment(self, data: str) -> None:
        if not ("--" in data or data.startswith((">", "->")) or data.endswith("-")):
            self.parts.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        if re.fullmatch(r"doctype html", decl, re.IGNORECASE):
            self.parts.append(f"<!{decl}>")

    def join(self, texts: Sequence[str]) -> str:
        """The page with these texts in the place of its own."""
        return "".join(escape(texts[part], quote=False) if isinstance(part, int) else part for part in self.parts)


def parse_html(text: str) -> Page:
    page = Page()
    page.feed(text)
    page.close()
    return page


def split_space(text: str) -> tuple[str, str, str]:
    """White space before a text, the text, and white space after it."""
    core = text.strip()
    at = text.index(core)
    return text[:at], core, text[at + len(core) :]


def attribute(name: str, value: str | None) -> str:
    """An attribute as it is written in a tag; nothing for one that runs a script."""
    if not ATTRIBUTE.fullmatch(name) or name.startswith("on") or name == "srcdoc":
        return ""
    if value is None:
        return f" {name}"
    link = re.sub(r"[\s\x00-\x1f]", "", value).lower()
    if name in LINKS and SCRIPT_LINK.match(link) and not link.startswith("data:image/"):
        return ""
    return f' {name}="{escape(value)}"'
