"""Escaping of text for SVG and HTML.

XML cannot represent most control characters, lone surrogates, U+FFFE and U+FFFF, not even escaped. They are replaced by U+FFFD,
so that every file parses.
"""

from __future__ import annotations

import html
import re

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # the production Char of XML 1.0


def escape(text: str) -> str:
    """Escape for use as text or as an attribute in double quotes."""
    return html.escape(NOT_XML.sub("\ufffd", text))


def escape_document(text: str) -> str:
    """Escape a document for use as an attribute in single quotes, which are rare in it; with double quotes it would grow."""
    return text.replace("&", "&amp;").replace("'", "&#39;")
