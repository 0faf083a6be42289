"""A language model at work: heedful.load("runs/language-shakespeare-char").generate("ROMEO:", length=200)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heedful.data.corpus_text import open_text, passages
from heedful.errors import ConfigError
from heedful.tasks.language_modelling import judge
from heedful.tasks.writing import continuations, generate
from heedful.worker import Worker


class Writer(Worker):
    def generate(self, prompt: str = "", length: int = 200, **search: Any) -> list[str]:
        """The prompt and `length` more tokens; options of `SearchConfig` may be given by name. n_best: so many samples."""
        return generate(self.system, prompt, length, self.search_by_name(search))

    def score(self, prompt: str, endings: Sequence[str]) -> list[float]:
        """log p of each ending after the prompt: the likeliest answers a question that nobody trained for."""
        return continuations(self.system, prompt, endings)

    def judge(self, split: str = "test", stride: int | None = None) -> dict[str, float]:
        """Loss, perplexity and bits on a split of the run's data; stride: as in [task] unless given."""
        parts = passages(self.run.data, split)
        if not parts:
            raise ConfigError(f"the run has no {split} data", hint="--split valid takes the validation data")
        text = open_text(parts, self.system.target_tokenizer)
        own: int = self.run.task.stride  # type: ignore[union-attr]
        return judge(self.system, text, self.run.data.block, own if stride is None else stride)
