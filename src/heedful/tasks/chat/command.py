"""`heed reply`, and the options of `heed evaluate` for chat; `heed chat` is a conversation (cli/chat.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from heedful.config.bounds import MAX_COUNT
from heedful.tasks.commands import Command, NoOptions, Option


@dataclass(frozen=True)
class EvaluateOptions:
    replies: Annotated[
        int,
        Option("Replies to generate for BLEU, chrF and distinct-n; 0: none, perplexity only.", minimum=0, maximum=MAX_COUNT),
    ] = 500


COMMAND = Command(
    "reply",
    "Reply to dialogues, one per line, with tabs between turns.\n\nWith -s n_best=N each line yields N rows: score TAB text. "
    "heed chat is a conversation.",
    "Files of dialogues, plain or .gz; - for standard input. Default: -.",
    NoOptions,
    EvaluateOptions,
    ensembles=True,
)
