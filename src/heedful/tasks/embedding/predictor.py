"""Trained sentence embeddings: heedful.Embedder.load("runs/mine").encode(["a cat", "a dog"]) -> (2, dim)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, cast

from torch import Tensor

from heedful.config.given import ARGUMENT
from heedful.data.input_lines import CHUNK_LINES, checked_chunks, refuse_too_long
from heedful.data.row_files import RowFile, find_split_file, scan_file
from heedful.data.rows import format_of
from heedful.data.samples import Sample
from heedful.data.similar import SimilarTexts, similar_form
from heedful.errors import ConfigError, lookup
from heedful.nn import masks
from heedful.search import SearchConfig
from heedful.tasks.base import input_problems
from heedful.tasks.embedding.command import PredictOptions
from heedful.tasks.embedding.config import EmbeddingConfig
from heedful.tasks.embedding.data import SimilarBatch, SimilarData, SimilarRow, encode_texts, widest
from heedful.tasks.embedding.evaluate import encode_ids, evaluate
from heedful.tasks.embedding.forced import Candidates, make_candidates
from heedful.tasks.embedding.model import POOLINGS, EmbeddingModel, PoolingName, contrastive_losses
from heedful.tasks.embedding.nearest_text import NearestTextPredictor
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
from heedful.training.ranks import Ranks


class EmbeddedText(NamedTuple):
    """A text and its vector."""

    given: str
    vector: list[float]

    @property
    def text(self) -> str:
        return " ".join(f"{value:.6g}" for value in self.vector)

    def rows(self) -> list[str]:
        return [self.text]

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.given, "vector": self.vector}


class Embedder(NearestTextPredictor):
    """Sentence embeddings: of a run of task embedding, or the pooled hidden states of any other run of an encoder.

    >>> embedder = heedful.Embedder.load(embedding_run)
    >>> embedder.encode(["the cat sees", "a dog runs"]).shape
    torch.Size([2, 16])
    >>> heedful.Embedder.load(masked_run).similarity(["the cat"], ["the cat", "a dog"]).shape
    torch.Size([1, 2])
    """

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")

    @classmethod
    def of(cls, predictor: Predictor) -> Self:
        """The predictor itself, or one that computes pooled hidden states of its encoder; an error if it has none."""
        family = predictor.run.model
        if isinstance(predictor, cls) or family.architecture != "encoder" or input_problems(family, ""):
            return super().of(predictor)
        own: Any = predictor.model
        model: Any = own if isinstance(own, EmbeddingModel) else EmbeddingModel(own.base_model, "mean").eval()
        return cls(predictor.run, replace(predictor.loaded, models=[model]), predictor.checkpoint)

    @property
    def embedder(self) -> EmbeddingModel:
        """The encoder with its pooling."""
        return cast(EmbeddingModel, cast(object, self.model))

    @property
    def similar(self) -> SimilarData:
        """The data of the run."""
        if not isinstance(self.run.task, EmbeddingConfig):
            raise ConfigError(
                f"a run of task {self.run.task.name!r} has no pairs of similar texts to evaluate embeddings with; expected a "
                "run of task 'embedding'"
            )
        return SimilarData(self.run)

    def encode(self, texts: Sequence[str], pooling: PoolingName | None = None) -> Tensor:
        """The vectors of texts, of length 1: (texts, dim), on the CPU. pooling: mean or cls, default: that of the run, and mean
        for a run of another task."""
        if isinstance(texts, str):
            raise ConfigError(
                f"one text was given, {texts!r:.40}; expected a list of texts", hint="put it into brackets: [text]"
            )
        if pooling is not None:
            lookup(pooling, dict.fromkeys(map(str, POOLINGS)), "pooling")
        texts = [text_from(text, number) for number, text in enumerate(texts, start=1)]
        most = min(self.system.max_length, self.embedder.body.max_length or self.system.max_length)
        ids = encode_texts(texts, self.system.target_tokenizer, most)
        return encode_ids(self.embedder, self.system, ids, pooling).cpu()

    def similarity(self, texts: Sequence[str], others: Sequence[str]) -> Tensor:
        """The cosine similarity of each text with each of the others: (texts, others)."""
        return self.encode(texts) @ self.encode(others).T

    def predictions(self, texts: Iterable[str], **options: Any) -> Iterator[EmbeddedText]:
        """Yield the vector of each text; pooling as in `encode`."""
        pooling = options.pop("pooling", None)
        if options:
            raise ConfigError(f"{ARGUMENT}: given {next(iter(options))!r}, but task 'embedding' has one option: pooling")
        remaining = iter(texts)
        return self.embed(iter(lambda: list(islice(remaining, CHUNK_LINES)), []), pooling)

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: PredictOptions,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[EmbeddedText]:
        noted = note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown, first)
        return self.embed(noted, options.pooling, first)

    def embed(self, chunks: Iterable[Sequence[str]], pooling: PoolingName | None, first: int = 1) -> Iterator[EmbeddedText]:
        for _, chunk in checked_chunks(chunks, text_from, first):
            for text, vector in zip(chunk, self.encode(chunk, pooling).tolist(), strict=True):
                yield EmbeddedText(text, vector)

    def rows(self, split: str) -> list[SimilarRow]:
        """The encoded pairs of a split of the run's data."""
        data = self.similar
        check_split(data.data, split)
        examples = data.examples(split)
        if examples is None:
            raise missing_split_error(split)
        return data.encode(examples, self.system.target_tokenizer)

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss and retrieval metrics on a split of the run's data."""
        return evaluate(self.embedder, self.system, self.rows(split), self.similar.config.temperature)

    def report(self, split: str | None, options: Any, *, load: Loader, search: Searcher) -> Figures:
        return Figures(split or "test", self.evaluate(split or "test"))

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` rows of the training data, compared within batches."""
        data, rows = self.similar, self.rows("train")[:count]
        for at in range(0, len(rows), data.data.batch):
            chosen = rows[at : at + data.data.batch]
            batch = data.collate(chosen, widest(chosen), self.system.target_tokenizer.specials.pad)
            yield partial(row_losses, self.embedder, batch.to(self.system.device), data.config.temperature)

    def examples_of(self, file: RowFile) -> list[SimilarTexts]:
        data = self.similar.data
        return scan_file(data, file, similar_form(data)).examples

    def sample_texts(self, split: str) -> Iterator[Sample]:
        file = find_split_file(self.similar.data, split)
        return iter(()) if file is None else self.samples_of(file)

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """Pairs in the columns of the run's data."""
        return self.samples_of(RowFile(path, format_of(path.name) or self.similar.data.train.kind))

    def samples_of(self, file: RowFile) -> Iterator[Sample]:
        return (Sample(None, pair.anchor, label=pair.positive) for pair in self.examples_of(file))

    @property
    def temperature(self) -> float:
        return self.similar.config.temperature

    def candidates(self, pairs: Sequence[SimilarTexts] = ()) -> Candidates:
        """Those of the validation data, and of further pairs."""
        known = self.similar.examples("valid") or []
        return make_candidates(self.embedder, self.system, [*known, *pairs], self.system.max_length)


def text_from(given: Any, number: int) -> str:
    """An input as a text; an error if it is none, or too long."""
    if not isinstance(given, str):
        raise ConfigError(f"text {number} is {given!r:.60}; expected a text")
    refuse_too_long(given, f"text {number}")
    return given


def row_losses(model: EmbeddingModel, batch: SimilarBatch, temperature: float, ranks: Ranks | None = None) -> Tensor:
    """The loss of each row of a batch, (rows,); ranks: the processes that have a share of the batch each."""
    mask = masks.padding(batch.lengths.flatten().clamp_min(1), batch.tokens.shape[-1])  # a row needs a token to attend to
    vectors = model(batch.tokens.flatten(0, 1), mask).view(*batch.tokens.shape[:2], -1)  # (rows, 2 + negatives, dim)
    candidates = (ranks or Ranks()).gather_rows(vectors[:, 1:], batch.allowed.shape[1])
    return contrastive_losses(vectors[:, 0], candidates, batch.allowed, batch.place, temperature)
