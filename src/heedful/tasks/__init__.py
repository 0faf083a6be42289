"""Tasks, one a file: what is read, what is minimised, how it is judged."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from heedful.schema import Untagged
from heedful.tasks.classification import Classification, ClassificationConfig
from heedful.tasks.language_modelling import Language, LanguageConfig
from heedful.tasks.translation import Translation, TranslationConfig

TASKS: dict[str, Any] = {"translation": Translation, "language": Language, "classification": Classification}
TaskConfig = Annotated[
    TranslationConfig | LanguageConfig | ClassificationConfig,
    Field(discriminator="name"),
    Untagged("name", "translation"),
]

__all__ = ["TASKS", "TaskConfig"]
