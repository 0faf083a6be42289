"""`heed answer`: `heed predict` for span extraction."""

from __future__ import annotations

from heedful.tasks.commands import Command

COMMAND = Command(
    "answer",
    "Answer questions by a part of a given text.\n\n"
    "Each line is a question, a tab and the text that contains the answer. --json adds the probability of the answer and its "
    "character offsets in the text.",
    "Text files, plain or .gz; - for standard input. Default: -.",
    search=(),
)
