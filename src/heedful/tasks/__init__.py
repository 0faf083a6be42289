"""Tasks, one per folder: a task owns its config, data, objective, metrics, predictor and commands.

TASKS maps the name of a task to its folder. Two modules of the folder are imported by name, on first use, so that
`heed --help` is fast:

    task.py       TASK, a `TaskDefinition` (see base.py)
    command.py    COMMAND, a `Command` (see commands.py): its natural name and its options, without torch
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from heedful.errors import lookup

if TYPE_CHECKING:
    from heedful.tasks.base import TaskDefinition
    from heedful.tasks.commands import Command

TASKS = {
    "translation": "heedful.tasks.translation",
    "language": "heedful.tasks.language",
    "classification": "heedful.tasks.classification",
    "masked": "heedful.tasks.masked",
    "tagging": "heedful.tasks.tagging",
    "embedding": "heedful.tasks.embedding",
    "span": "heedful.tasks.span",
    "chat": "heedful.tasks.chat",
    "retrieval": "heedful.tasks.retrieval",
    "skip_thought": "heedful.tasks.skip_thought",
    "forecasting": "heedful.tasks.forecasting",
    "image_classification": "heedful.tasks.image_classification",
    "series_classification": "heedful.tasks.series_classification",
    "captioning": "heedful.tasks.captioning",
    "node_classification": "heedful.tasks.node_classification",
    "decisions": "heedful.tasks.decisions",
}


def find_task(name: str) -> TaskDefinition:
    definition: TaskDefinition = import_module(f"{lookup(name, TASKS, 'task')}.task").TASK
    return definition


def find_command(name: str) -> Command:
    command: Command = import_module(f"{lookup(name, TASKS, 'task')}.command").COMMAND
    return command


__all__ = ["TASKS", "find_command", "find_task"]
