"""Text from data on a terminal: whatever could act on the terminal is shown as its code instead.

    "\\x1b]0;title\\x07"  ->  \\u001b]0;title\\u0007

Made visible are control characters (C0, DEL, C1) and the marks that reverse the direction of text; a newline and a tab
stay. The form is that of JSON, so a JSON line stays valid.
"""

from __future__ import annotations

import os
import re
from typing import IO

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with every character that a terminal might act on made visible."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def redirect_to_null(stream: IO[str]) -> bool:
    """Sends whatever is still written to this stream nowhere; False if it is not a file, so that it cannot."""
    try:
        target = stream.fileno()
    except (OSError, ValueError):
        return False
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, target)
    os.close(descriptor)
    return True
