"""A trained language model: heedful.load("runs/language-shakespeare-char").generate("ROMEO:", length=200)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heedful.config.given import OVERRIDE
from heedful.data.corpus_text import open_text, passages
from heedful.errors import ConfigError
from heedful.runs.predictor import Predictor, check_split, missing_split_error
from heedful.search import SearchConfig
from heedful.tasks.generate import generate, score_endings
from heedful.tasks.language_modeling import evaluate_text

# Search options without effect on generation: every text has exactly `length` new tokens, and there is no source.
UNUSED = ("penalty", "length_penalty", "coverage", "min_length", "max_length", "max_extra", "replace_unknown", "dictionary")


class TextGenerator(Predictor):
    """A trained language model."""

    def generate(self, prompt: str = "", length: int = 200, **search: Any) -> list[str]:
        """The prompt and `length` more tokens; options of `SearchConfig` may be given by name. n_best: number of samples."""
        return generate(self.system, prompt, length, self.search_config_from(search))

    def search_config(self, changes: Sequence[str] = (), *, origin: str = OVERRIDE) -> SearchConfig:
        """As in `Predictor`; an option without effect on generation is an error."""
        for name in (change.split("=", 1)[0].strip() for change in changes):
            if name in UNUSED:
                raise ConfigError(f"search.{name} has no effect on a language model, which adds exactly `length` tokens")
        config = super().search_config(changes, origin=origin)
        if config.method != "sample" and config.n_best > 1:
            raise ConfigError(
                f"search.n_best: given {config.n_best}, but {config.method} search generates one text",
                hint="use method=sample to generate several",
            )
        return config

    def score(self, prompt: str, endings: Sequence[str]) -> list[float]:
        """log p of each ending after the prompt; the most probable one is a zero-shot answer."""
        return score_endings(self.system, prompt, endings)

    def evaluate(self, split: str = "test", stride: int | None = None) -> dict[str, float]:
        """Loss, perplexity and bits on a split of the run's data; stride: default: task.stride."""
        check_split(self.run.data, split)
        parts = passages(self.run.data, split)
        if not parts:
            raise missing_split_error(split)
        text = open_text(parts, self.system.target_tokenizer)
        data: Any = self.run.data
        own: int = self.run.task.stride  # type: ignore[union-attr]
        return evaluate_text(self.system, text, data.block, own if stride is None else stride)
