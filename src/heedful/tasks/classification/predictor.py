"""A trained classifier: heedful.load("runs/classification-sst2-gpt1").predict("a charming film")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, cast, overload

import torch
from torch import Tensor
from torch.nn import functional

from heedful.data.input_lines import refuse_too_long
from heedful.data.labeled import Example, find_split_file
from heedful.errors import ConfigError
from heedful.search import SearchConfig
from heedful.tasks.classification.data import LabeledBatch, LabeledData
from heedful.tasks.classification.evaluate import evaluate
from heedful.tasks.classification.model import ClassificationModel
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

Input = str | Sequence[str]  # one text, or as many as the run was trained on (`data.texts`)


class LabelPrediction(NamedTuple):
    """The probability of each label of an example."""

    texts: tuple[str, ...]
    probabilities: dict[str, float]

    @property
    def text(self) -> str:
        return max(self.probabilities, key=lambda label: self.probabilities[label])

    def rows(self) -> list[str]:
        return [self.text]

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.text, "probabilities": self.probabilities, "texts": list(self.texts)}


class Classifier(Predictor):
    """A trained classification model.

    >>> classifier = heedful.Classifier.load(classification_run)
    >>> (probabilities,) = classifier.predict_proba(["the cat sees"])
    >>> classifier.predict("the cat sees") == max(probabilities, key=probabilities.get)
    True
    """

    @property
    def classifier(self) -> ClassificationModel:
        """The model with its head."""
        return cast(ClassificationModel, self.model)

    @property
    def labeled(self) -> LabeledData:
        return LabeledData(self.run)

    @overload
    def predict(self, inputs: str, **options: Any) -> str: ...
    @overload
    def predict(self, inputs: Sequence[Input], **options: Any) -> list[str]: ...
    def predict(self, inputs: Sequence[Input], **options: Any) -> str | list[str]:
        """The most probable label of one text, or of each of several examples: texts, or tuples of texts."""
        examples = [inputs] if isinstance(inputs, str) else inputs
        outputs = [prediction.text for prediction in self.predictions(examples, **options)]
        return outputs[0] if isinstance(inputs, str) else outputs

    def predict_proba(self, inputs: Sequence[Input]) -> list[dict[str, float]]:
        """The probability of each label, for each example."""
        if isinstance(inputs, str):
            raise ConfigError(
                f"one text was given, {inputs!r:.40}; expected a list of examples", hint="put it into brackets: [text]"
            )
        return [prediction.probabilities for prediction in self.predictions(inputs)]

    def predictions(self, texts: Iterable[Input], **options: Any) -> Iterator[LabelPrediction]:
        if options:
            raise ConfigError(f"given {next(iter(options))!r}, but classification has no options")
        labeled, labels, pad = self.labeled, self.run.task.labels, self.system.target_tokenizer.specials.pad
        for number, given in enumerate(texts, start=1):
            example = self.example_from(given, number)
            batch = labeled.collate(labeled.encode([Example(labels[0], example)], self.system.target_tokenizer), [0], pad)
            batch = batch.to(self.system.device)
            with torch.inference_mode():
                logits = self.classifier(batch.tokens, batch.last, len(batch.tokens))[0][0].float()
                probabilities = logits.softmax(-1)
            if not bool(probabilities.isfinite().all()):
                raise self.system.nonfinite_error(f"example {number}")
            yield LabelPrediction(example, dict(zip(labels, probabilities.tolist(), strict=True)))

    def predict_chunks(
        self, chunks: Iterable[Sequence[str]], config: SearchConfig, options: Any, unknown: dict[str, int]
    ) -> Iterator[LabelPrediction]:
        several = len(self.run.data.texts) > 1
        lines = chain.from_iterable(note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown))
        return self.predictions(line.split("\t") if several else line for line in lines)

    def example_from(self, given: Input, number: int) -> tuple[str, ...]:
        """An example as a tuple of texts; an error if it has not as many texts as the run's data."""
        count = len(self.run.data.texts)
        example = (given,) if isinstance(given, str) else tuple(given)
        if len(example) != count or not all(isinstance(text, str) for text in example):
            expected = f"{count} texts, in Python as a tuple, in a line separated by tabs" if count > 1 else "a text"
            raise ConfigError(f"example {number} is {given!r:.60}; expected {expected}")
        for text in example:
            refuse_too_long(text, f"example {number}")
        return example

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss and accuracy on a split of the run's data."""
        check_split(self.run.data, split)
        path = find_split_file(self.run.data, split)
        if path is None:
            raise missing_split_error(split)
        encoded = self.labeled.encode(self.labeled.examples(path), self.system.target_tokenizer)
        return evaluate(self.classifier, self.system, self.labeled, encoded)

    def report(self, split: str | None, options: Any, *, load: Loader, search: Searcher) -> Figures:
        return Figures(split or "test", self.evaluate(split or "test"))

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` examples of the training data."""
        labeled, path = self.labeled, find_split_file(self.run.data, "train")
        assert path is not None, "a run has training data"
        encoded = labeled.encode(list(islice(labeled.examples(path), count)), self.system.target_tokenizer)
        size, pad = self.run.data.batch, self.system.target_tokenizer.specials.pad
        for at in range(0, len(encoded.labels), size):
            chosen = range(at, min(at + size, len(encoded.labels)))
            yield partial(label_losses, self.classifier, labeled.collate(encoded, chosen, pad).to(self.system.device))


def label_losses(model: ClassificationModel, batch: LabeledBatch) -> Tensor:
    """-log p of each label, (examples,)."""
    logits = model(batch.tokens, batch.last, len(batch.tokens) // len(batch.labels))[0]
    return functional.cross_entropy(logits.float(), batch.labels, reduction="none")
