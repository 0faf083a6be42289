"""Escaping of text from data: control characters are printed as their codes, so that they cannot control the terminal.

    "\\x1b]0;title\\x07"  ->  \\u001b]0;title\\u0007

Escaped are control characters (C0, DEL, C1) and the marks that change the direction of text; newline and tab stay. The
escapes are those of JSON, so a JSON line stays valid.
"""

from __future__ import annotations

import os
import re
from typing import IO

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff]")


def printable(text: str) -> str:
    """Escape every character that could control a terminal."""
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def redirect_to_null(stream: IO[str]) -> bool:
    """Discard further output of this stream; return False if it is not a file."""
    try:
        target = stream.fileno()
    except (OSError, ValueError):
        return False
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, target)
    os.close(descriptor)
    return True
