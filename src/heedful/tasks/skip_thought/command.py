"""`heed encode`: `heed predict` for skip-thought vectors."""

from __future__ import annotations

from heedful.tasks.commands import Command

COMMAND = Command(
    "encode",
    "Encode each line of text as a skip-thought vector of length 1.\n\n"
    "Prints the numbers of a vector, separated by spaces; `heed embed` prints the same.",
    "Text files, plain or .gz; - for standard input. Default: -.",
    search=(),
)
