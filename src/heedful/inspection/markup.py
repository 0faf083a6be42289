"""Text in SVG and HTML: the one place where it is made safe.

XML has no way to write most control characters, lone surrogates, U+FFFE and U+FFFF, not even escaped. They become U+FFFD, the
replacement character, so that every file parses.
"""

from __future__ import annotations

import html
import re

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # the production Char of XML 1.0


def escape(text: str) -> str:
    """As text or as an attribute in double quotes."""
    return html.escape(NOT_XML.sub("\ufffd", text))
