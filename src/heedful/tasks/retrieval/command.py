"""`heed retrieve`: `heed predict` for retrieval; `heed search` is in cli/search.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from heedful.config.bounds import MAX_RESAMPLES, MAX_SMALL
from heedful.tasks.commands import Command, Option

Match = Literal["questions", "answers", "both"]


@dataclass(frozen=True)
class PredictOptions:
    top: Annotated[int, Option("Answers to show for each question, the best first.", minimum=1, maximum=MAX_SMALL)] = 1
    match: Annotated[
        Match | None, Option("Compare with stored questions, stored answers, or both. Default: task.match of the run.")
    ] = None


@dataclass(frozen=True)
class EvaluateOptions:
    bootstrap: Annotated[
        int, Option("Bootstrap resamples for the 95% interval; 0: no interval.", minimum=0, maximum=MAX_RESAMPLES)
    ] = 1000
    baselines: Annotated[bool, Option("Also score BM25, with its settings chosen on valid.")] = False


COMMAND = Command(
    "retrieve",
    "Find the best stored answer to each line of text.\n\n"
    "The turns of a dialogue are separated by tabs, the question last. --top 5 prints several answers with their scores. "
    "`heed search` answers one question and indexes other answers.",
    "Text files, plain or .gz; - for standard input. Default: -.",
    PredictOptions,
    EvaluateOptions,
    search=(),
)
