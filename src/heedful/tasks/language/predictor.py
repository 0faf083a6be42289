"""A trained language model: heedful.load("runs/language-shakespeare-char").generate("ROMEO:", length=200)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.config.given import OVERRIDE
from heedful.data.corpus_text import open_text, passages
from heedful.errors import ConfigError
from heedful.search import SearchConfig
from heedful.tasks.batches import Batch
from heedful.tasks.language.command import PredictOptions
from heedful.tasks.language.evaluate import evaluate_text
from heedful.tasks.language.generate import generate, score_endings
from heedful.tasks.objectives import sequence_losses
from heedful.tasks.predictor import (
    LOSS_TOKENS,
    Figures,
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    check_split,
    missing_split_error,
    note_unknown_in_chunks,
)

# Search options without effect on generation: every text has exactly `length` new tokens, and there is no source.
UNUSED = ("penalty", "length_penalty", "coverage", "min_length", "max_length", "max_extra", "replace_unknown", "dictionary")


class Continuation(NamedTuple):
    """The texts that continue a prompt."""

    prompt: str
    texts: list[str]  # prompt included; several samples

    @property
    def text(self) -> str:
        return self.texts[0]

    def rows(self) -> list[str]:
        return ["\n---\n".join(self.texts)]

    def to_dict(self) -> dict[str, Any]:
        return {"prompt": self.prompt, "texts": self.texts}


class TextGenerator(Predictor):
    """A trained language model.

    >>> generator = heedful.TextGenerator.load(language_run)
    >>> text = generator.predict("the cat", length=3)
    >>> text.startswith("the cat")
    True
    """

    def generate(self, prompt: str = "", length: int = 200, **search: Any) -> list[str]:
        """The prompt and `length` more tokens; options of `SearchConfig` may be given by name. n_best: number of samples."""
        return generate(self.system, prompt, length, self.search_config_from(search))

    def predictions(self, texts: Iterable[str], **options: Any) -> Iterator[Continuation]:
        length = options.pop("length", PredictOptions.length)
        config = self.search_config_from(options)
        return (Continuation(text, generate(self.system, text, length, config)) for text in texts)

    def predict_chunks(
        self, chunks: Iterable[Sequence[str]], config: SearchConfig, options: PredictOptions, unknown: dict[str, int]
    ) -> Iterator[Continuation]:
        texts = chain.from_iterable(note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown))
        return (Continuation(text, generate(self.system, text, options.length, config)) for text in texts)

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
        own: int = self.run.task.stride
        return evaluate_text(self.system, text, self.run.data.block, own if stride is None else stride)

    def report(self, split: str | None, options: Any, *, load: Loader, search: Searcher) -> Figures:
        return Figures(split or "test", self.evaluate(split or "test"))

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` blocks of the training text."""
        system, block = self.system, self.run.data.block
        ids = open_text(passages(self.run.data, "train"), system.target_tokenizer).ids[: count * block + 1]
        rows = torch.from_numpy(ids[: (len(ids) - 1) // block * block + 1].astype(np.int64))
        inputs, targets = rows[:-1].view(-1, block), rows[1:].view(-1, block)  # (blocks, block)
        size, pad = max(1, LOSS_TOKENS // block), system.target_tokenizer.specials.pad
        for target_in, target_out in zip(torch.split(inputs, size), torch.split(targets, size), strict=True):
            batch = Batch(target_in[:, :0], None, target_in, target_out, target_out.numel()).to(system.device)
            yield partial(sequence_losses, system.models[0], batch, pad)
