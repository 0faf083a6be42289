"""Trained skip-thought vectors: heedful.Embedder.load("runs/mine").encode(["a cat", "a dog"]) -> (2, dim)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar, cast

from torch import Tensor

from heedful.config.given import ARGUMENT
from heedful.data.corpus_text import passages
from heedful.data.text_store import open_text
from heedful.errors import ConfigError
from heedful.search import SearchConfig
from heedful.tasks.commands import NoOptions
from heedful.tasks.embedding.predictor import EmbeddedText, Embedder
from heedful.tasks.predictor import (
    Figures,
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    check_split,
    missing_split_error,
    note_unknown_in_chunks,
)
from heedful.tasks.skip_thought.data import Sentences, SkipThoughtData, find_sentences
from heedful.tasks.skip_thought.evaluate import evaluate
from heedful.tasks.skip_thought.model import Neighbors, SkipThoughtModel, neighbor_loss


class SkipThought(Predictor):
    """Skip-thought vectors of sentences; `heedful.Embedder.load` has the functions that all embeddings share."""

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")

    @property
    def skip_thought(self) -> SkipThoughtModel:
        return cast(SkipThoughtModel, cast(object, self.model))

    @cached_property
    def embedder(self) -> Embedder:
        """The encoder without its decoders."""
        return Embedder.of(self)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """The vectors of texts, of length 1: (texts, dim), on the CPU."""
        return self.embedder.encode(texts)

    def predictions(self, texts: Iterable[str], **options: Any) -> Iterator[EmbeddedText]:
        """Yield the vector of each text."""
        if options:
            raise ConfigError(f"{ARGUMENT}: given {next(iter(options))!r}, but task 'skip_thought' has no options")
        return self.embedder.predictions(texts)

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: NoOptions,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[EmbeddedText]:
        noted = note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown, first)
        return self.embedder.embed(noted, None, first)

    def sentences(self, split: str) -> Sentences:
        """The sentences of a split of the run's data."""
        check_split(self.run.data, split)
        parts = passages(self.run.data, split)
        if not parts:
            raise missing_split_error(split)
        tokenizer = self.system.target_tokenizer
        return find_sentences([open_text(parts, tokenizer).ids], tokenizer.specials.end)

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss and perplexity of the neighbors of all sentences of a split of the run's data."""
        return evaluate(self.skip_thought, self.system, SkipThoughtData(self.run), self.sentences(split))

    def report(self, split: str | None, options: Any, *, load: Loader, search: Searcher) -> Figures:
        return Figures(split or "test", self.evaluate(split or "test"))

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the neighbors of the first `count` sentences of the training data."""
        data, sentences, marks = SkipThoughtData(self.run), self.sentences("train"), self.system.target_tokenizer.specials
        for row in sentences.rows[:count]:
            batch = data.collate(sentences, row[None], marks).to(self.system.device)
            yield partial(row_loss, self.skip_thought, batch, marks.pad)


def row_loss(model: SkipThoughtModel, batch: Neighbors, padding: int) -> Tensor:
    """The loss of a batch of one sentence, (1,)."""
    return neighbor_loss(model, batch, padding).total[None]
