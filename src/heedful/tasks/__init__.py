"""Tasks, one a file: what is read, what is minimised, how it is judged."""

from __future__ import annotations

from heedful.tasks.translation import Translation, TranslationConfig

TASKS = {"translation": Translation}
TaskConfig = TranslationConfig

__all__ = ["TASKS", "TaskConfig"]
