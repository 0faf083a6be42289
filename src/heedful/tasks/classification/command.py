"""`heed classify`: `heed predict` for classification."""

from __future__ import annotations

from heedful.tasks.commands import Command

COMMAND = Command(
    "classify",
    "Predict the label of each line of text.\n\n"
    "A run trained on several texts per example expects them separated by tabs. --json adds the probability of every label.",
    "Text files, plain or .gz; - for standard input. Default: -.",
    search=(),
)
