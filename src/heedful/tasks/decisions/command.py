"""`heed decide`, and the options of `heed evaluate` for decisions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.config.bounds import MAX_SIZE
from heedful.tasks.commands import Command, NoOptions, Option


@dataclass(frozen=True)
class EvaluateOptions:
    episodes: Annotated[int, Option("Episodes to roll out for each desired return.", minimum=2, maximum=MAX_SIZE)] = 100
    desired: Annotated[
        list[float] | None,
        Option(
            "Desired return of the roll-outs; may be repeated. Default: quantiles of the training data.",
            minimum=-MAX_SIZE,
            maximum=MAX_SIZE,
        ),
    ] = None
    against: Annotated[Path | None, Option("Compare with another run, such as one without desired returns.")] = None
    baselines: Annotated[bool, Option("Also show the returns of the recorded episodes of the split.")] = False
    greedy: Annotated[bool, Option("Take the most probable action. Default: actions are drawn by their probability.")] = False


COMMAND = Command(
    "decide",
    "Predict the next action of each episode.\n\n"
    'Each line is a JSON object with the history: {"desired": 9, "states": ["a1", "a2"], "actions": ["down"], "rewards": '
    "[-0.2]}: the desired return from the first step on, all states up to now, and the actions and rewards before now. Prints "
    "the action and its probability; --json prints those of all actions.",
    "Files with lines of JSON, plain or .gz; - for standard input. Default: -.",
    NoOptions,
    EvaluateOptions,
    search=(),
)
