"""Trained sentence embeddings: heedful.Embedder.load("runs/mine").encode(["a cat", "a dog"]) -> (2, dim)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, cast

import torch
from torch import Tensor

from heedful.config.given import ARGUMENT
from heedful.data.input_lines import CHUNK_LINES, checked_chunks, refuse_too_long
from heedful.data.row_files import RowFile, find_split_file, scan_file
from heedful.data.rows import format_of
from heedful.data.samples import Sample
from heedful.data.similar import SimilarTexts, similar_form
from heedful.errors import ConfigError, lookup
from heedful.nn import masks
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.tasks.base import input_problems
from heedful.tasks.embedding.command import PredictOptions
from heedful.tasks.embedding.config import EmbeddingConfig
from heedful.tasks.embedding.data import Ids, SimilarBatch, SimilarData, SimilarRow, encode_texts, widest
from heedful.tasks.embedding.evaluate import encode_ids, evaluate
from heedful.tasks.embedding.forced import Candidates, encode_row, make_candidates, similar_batches
from heedful.tasks.embedding.model import POOLINGS, EmbeddingModel, PoolingName, contrastive_losses
from heedful.tasks.encoded_example import Decoded, EncodedExample
from heedful.tasks.forced import EncodedSample, ForcedBatch, pieces_of
from heedful.tasks.predictor import (
    Figures,
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    check_split,
    missing_split_error,
    note_unknown_in_chunks,
    refuse_empty,
)


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


class Embedder(Predictor):
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
        model: Any = EmbeddingModel(cast(Any, predictor.model.base_model), "mean").eval()
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
        self, chunks: Iterable[Sequence[str]], config: SearchConfig, options: PredictOptions, unknown: dict[str, int]
    ) -> Iterator[EmbeddedText]:
        return self.embed(note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown), options.pooling)

    def embed(self, chunks: Iterable[Sequence[str]], pooling: PoolingName | None) -> Iterator[EmbeddedText]:
        for _, chunk in checked_chunks(chunks, text_from):
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

    def candidates(self, pairs: Sequence[SimilarTexts] = ()) -> Candidates:
        """Those of the validation data, and of further pairs."""
        known = self.similar.examples("valid") or []
        return make_candidates(self.embedder, self.system, [*known, *pairs], self.system.max_length)

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """The text with its most similar candidate; target: a text to compare it with instead."""
        refuse_empty(text, target)
        if config is not None:
            raise ConfigError("search options have no effect on embeddings, which decode no text", hint="remove them")
        candidates = self.candidates([] if target is None else [SimilarTexts(text, target)])
        row, *other = encode_texts([text, *([] if target is None else [target])], self.input_tokenizer, self.system.max_length)
        positive = candidates.places[other[0]] if other else self.nearest(row, candidates)
        return encode_row(row, text, positive, candidates, self.system, self.similar.config.temperature)

    def nearest(self, row: Ids, candidates: Candidates) -> int:
        """The index of the candidate that is most similar to a text, other than itself."""
        scores = candidates.vectors @ encode_ids(self.embedder, self.system, [row])[0]
        others = [at != candidates.places.get(row) for at in range(len(scores))]
        return int(scores.masked_fill(~torch.tensor(others, device=scores.device), -math.inf).argmax())

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The most similar candidate."""
        if prefix:
            raise ConfigError("embeddings decode no text, so no token can be forced", hint="compare the similarities")
        with inference_context(self.embedder):
            logs = example.logits(self.embedder, example.forward(self.embedder).hidden)[0, 0].log_softmax(-1)
        best = int(logs.argmax())
        return Decoded(example.outputs.spell([best])[0], [best], float(logs[best]), float(logs[best]))

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        return self.encode_example(text, example.outputs.pieces[0])

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        """Truncated texts are left out; a missing positive is the most similar candidate."""
        tokenizer, most = self.input_tokenizer, self.system.max_length
        found = [(sample, pieces_of(tokenizer, sample.target or "", sample.target_arcs, most - 1)) for sample in samples]
        pairs = [SimilarTexts(sample.target or "", sample.label) for sample, _ in found if sample.label is not None]
        candidates, rows = self.candidates(pairs), []
        names = list(candidates.places)
        for sample, pieces in found:
            if pieces is not None:
                text = (tokenizer.specials.start, *pieces.ids, tokenizer.specials.end)
                known = None if sample.label is None else encode_texts([sample.label], tokenizer, most)[0]
                rows.append((EncodedSample(None, pieces), known or names[self.nearest(text, candidates)]))
        return similar_batches(self.embedder, self.system, rows, candidates, self.similar.config.temperature)


def text_from(given: Any, number: int) -> str:
    """An input as a text; an error if it is none, or too long."""
    if not isinstance(given, str):
        raise ConfigError(f"text {number} is {given!r:.60}; expected a text")
    refuse_too_long(given, f"text {number}")
    return given


def row_losses(model: EmbeddingModel, batch: SimilarBatch, temperature: float) -> Tensor:
    """The loss of each row of a batch, (rows,)."""
    mask = masks.padding(batch.lengths.flatten().clamp_min(1), batch.tokens.shape[-1])  # a row needs a token to attend to
    vectors = model(batch.tokens.flatten(0, 1), mask).view(*batch.tokens.shape[:2], -1)  # (rows, 2 + negatives, dim)
    return contrastive_losses(vectors[:, 0], vectors[:, 1:], batch.allowed, temperature)
