"""Tasks, one per file: the data, the loss and the metrics of each."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from heedful.config.base import Untagged
from heedful.tasks.classification import ClassificationConfig, ClassificationTask
from heedful.tasks.language_modeling import LanguageConfig, LanguageModelingTask
from heedful.tasks.translation import TranslationConfig, TranslationTask

TASKS: dict[str, Any] = {"translation": TranslationTask, "language": LanguageModelingTask, "classification": ClassificationTask}
TaskConfig = Annotated[
    TranslationConfig | LanguageConfig | ClassificationConfig,
    Field(discriminator="name"),
    Untagged("name", "translation"),
]

__all__ = ["TASKS", "TaskConfig"]
