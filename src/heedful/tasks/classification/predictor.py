"""A trained classifier: heedful.load("runs/classification-sst2-gpt1").predict("a charming film")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast, overload

import torch
from torch import Tensor
from torch.nn import functional

from heedful.data.input_lines import CHUNK_LINES, checked_chunks, refuse_too_long
from heedful.data.labeled import Example, LabeledFile, file_at, find_split_file
from heedful.data.samples import Sample
from heedful.errors import ConfigError, lookup
from heedful.evaluation.labels import THRESHOLD, sigmoid, softmax
from heedful.evaluation.resampling import Numbers
from heedful.search import SearchConfig
from heedful.tasks.classification.batch import LabeledBatch
from heedful.tasks.classification.command import EvaluateOptions
from heedful.tasks.classification.data import EncodedExamples, LabeledData
from heedful.tasks.classification.evaluate import first_nonfinite, logits_of
from heedful.tasks.classification.forced import SEPARATOR, batch_logits, batch_targets, label_text, make_outputs
from heedful.tasks.classification.model import ClassificationModel
from heedful.tasks.classification.report import ClassificationReport, evaluate_on, read_split, report
from heedful.tasks.encoded_example import Decoded, EncodedExample, TokenLoss, tokens_from_ids
from heedful.tasks.forced import EncodedSample, ForcedBatch, Pieces, pieces_of
from heedful.tasks.labels import decode_choices, refuse_search
from heedful.tasks.predictor import (
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    note_unknown_in_chunks,
    refuse_empty,
)

Input = str | Sequence[str]  # one text, or as many as the run was trained on (`data.texts`)


class LabelPrediction(NamedTuple):
    """The probability of each label of an example."""

    texts: tuple[str, ...]
    probabilities: dict[str, float]
    labels: tuple[str, ...]  # the predicted ones: the most probable, or with multi_label all above the threshold
    multi_label: bool = False

    @property
    def text(self) -> str:
        return ", ".join(self.labels)

    def rows(self) -> list[str]:
        return [self.text]

    def to_dict(self) -> dict[str, Any]:
        predicted = {"labels": list(self.labels)} if self.multi_label else {"label": self.text}
        return predicted | {"probabilities": self.probabilities, "texts": list(self.texts)}


class Classifier(Predictor):
    """A trained classification model.

    >>> classifier = heedful.Classifier.load(classification_run)
    >>> (probabilities,) = classifier.predict_proba(["the cat sees"])
    >>> classifier.predict("the cat sees") == max(probabilities, key=probabilities.get)
    True
    """

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")

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
        found: str | list[str] = self.apply(inputs, lambda prediction: prediction.text, **options)
        return found

    def predict_proba(self, inputs: Any) -> Any:
        """The probability of each label, for one text, or for each of a list of examples."""
        return self.apply(inputs, lambda prediction: prediction.probabilities)

    def predictions(self, texts: Iterable[Input], **options: Any) -> Iterator[LabelPrediction]:
        if options:
            raise ConfigError(f"given {next(iter(options))!r}, but classification has no options")
        remaining = iter(texts)
        return self.predict_windows(iter(lambda: list(islice(remaining, CHUNK_LINES)), []))

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: Any,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[LabelPrediction]:
        noted: Iterable[Sequence[str]] = chunks
        if not self.run.model.reads_spelling:
            noted = note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown, first)
        return self.predict_windows(([self.split_line(line) for line in chunk] for chunk in noted), first)

    def predict_windows(self, windows: Iterable[Sequence[Input]], first: int = 1) -> Iterator[LabelPrediction]:
        """The predictions of each window of examples, in order; the examples of a window are sorted by length into batches.
        first: the number of the first example."""
        labeled = self.labeled
        for number, examples in checked_chunks(windows, self.example_from, first):
            groups = labeled.sequences(examples, self.system.target_tokenizer)
            logits = logits_of(self.classifier, self.system, labeled, EncodedExamples(groups, [(0,)] * len(groups)))
            wrong = first_nonfinite(logits)
            if wrong is not None:
                raise self.system.nonfinite_error(f"example {number + wrong}")
            yield from self.label(logits, examples)

    def label(self, logits: Numbers, examples: Sequence[tuple[str, ...]]) -> Iterator[LabelPrediction]:
        """The prediction of each example from its logits, (examples, labels)."""
        labels, several = self.run.task.labels, self.run.task.multi_label
        for example, row in zip(examples, (sigmoid(logits) if several else softmax(logits)).tolist(), strict=True):
            chosen = [at for at, one in enumerate(row) if one > THRESHOLD] if several else [row.index(max(row))]
            predicted = tuple(labels[at] for at in chosen)
            yield LabelPrediction(example, dict(zip(labels, row, strict=True)), predicted, several)

    @property
    def input_names(self) -> Sequence[str]:
        """The columns of the data; columns without a name are numbered."""
        columns = self.run.data.texts
        if len(columns) == 1:
            return ["text"]
        return [name if isinstance(name, str) else f"text {at}" for at, name in enumerate(columns, start=1)]

    def split_line(self, line: str) -> Input:
        """The texts of an example in one line, separated by tabs."""
        return line.split("\t") if len(self.run.data.texts) > 1 else line

    def example_from(self, given: Input, number: int) -> tuple[str, ...]:
        """An example as a tuple of texts, also of a line with tabs between them; an error if it has not as many texts as the
        run's data."""
        count = len(self.run.data.texts)
        line = self.split_line(given) if isinstance(given, str) else given
        example = (line,) if isinstance(line, str) else tuple(line)
        if len(example) != count or not all(isinstance(text, str) for text in example):
            expected = f"{count} texts, in Python as a tuple, in a line separated by tabs" if count > 1 else "a text"
            raise ConfigError(f"example {number} is {given!r:.60}; expected {expected}")
        for text in example:
            refuse_too_long(text, f"example {number}")
        return example

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """The metrics of a validation on a split of the run's data."""
        _, figures = evaluate_on(self, read_split(self, split))
        return {name: figure.statistics.value() for name, figure in figures.items()}

    def report(self, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher) -> ClassificationReport:
        return report(self, split or "test", options, load=load)

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """The text between its first and last token, with its labels; target: a label, or with multi_label labels separated by
        data.label_separator, default: a comma; default: the predicted ones."""
        refuse_empty(text)
        refuse_search(config)
        tokenizer, device = self.system.target_tokenizer, self.system.device
        given = self.example_from(self.split_line(text), 1)
        sequences = self.labeled.sequences([given], tokenizer)[0]
        if len(sequences) != 1:
            raise ConfigError(
                f"layout {self.run.task.layout!r} encodes an example as {len(sequences)} sequences; expected a layout with one"
            )
        labels = next(iter(self.predictions([given]))).labels if target is None else self.parse_labels(target)
        row = sequences[0]
        first, last = tokenizer.pieces([row.ids[0], row.ids[-1]])
        target_in, segments = (torch.tensor([values], device=device) for values in (row.ids, row.segments))
        at = len(row.ids) - 1 if self.run.task.pooling_of(self.run.model) == "last" else 0
        outputs = make_outputs(self.run.task, labels, torch.tensor([at], device=device))
        tokens = tokens_from_ids(tokenizer, " ".join(given), row.ids[1:-1])
        more = {"segments": segments} if self.run.model.architecture == "encoder" else {}
        if row.spelling:
            more["spelling"] = torch.tensor([row.spelling], device=device)
        passed = target_in[:, :0], target_in, outputs
        return EncodedExample(None, tokens, first, last, *passed, reads_end=True, label=label_text(labels), more=more)

    def parse_labels(self, text: str) -> list[str]:
        """The labels of a text that names one, or with multi_label any number of them; unknown ones are an error."""
        labels = [text]
        if self.run.task.multi_label:
            labels = [part.strip() for part in text.split(self.run.data.label_separator or ",") if part.strip()]
        for label in labels:
            lookup(label, dict.fromkeys(self.run.task.labels), "label")
        return [label for label in self.run.task.labels if label in labels]

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The most probable label; with multi_label all labels that are more probable than not."""
        best, total = decode_choices(self.classifier, example, prefix)
        names = self.run.task.labels
        chosen = [name for name, one in zip(names, best, strict=True) if one] if self.run.task.multi_label else [names[best[0]]]
        return Decoded(label_text(chosen), best, total, total)

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        encoded, outputs = self.encode_example(text), example.outputs
        return replace(encoded, outputs=outputs._replace(steps=encoded.outputs.steps), label=example.label)

    def token_loss(self) -> TokenLoss:
        weight = self.run.task.auxiliary if self.run.model.architecture == "decoder" else 0.0
        omitted = [f"adds {weight:g} x the language modeling loss"] if weight else []
        smoothing = self.run.task.label_smoothing
        return TokenLoss(omitted=[*omitted, *([f"smooths the labels by {smoothing:g}"] if smoothing else [])])

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` examples of the training data."""
        labeled, file = self.labeled, find_split_file(self.run.data, "train")
        assert file is not None, "a run has training data"
        encoded = labeled.encode(list(islice(labeled.examples(file), count)), self.system.target_tokenizer)
        size, marks = self.run.data.batch, self.system.target_tokenizer.specials
        for at in range(0, len(encoded.labels), size):
            chosen = range(at, min(at + size, len(encoded.labels)))
            yield partial(example_losses, self.classifier, labeled.collate(encoded, chosen, marks).to(self.system.device))

    def sample_texts(self, split: str) -> Iterator[Sample]:
        file = find_split_file(self.run.data, split)
        return iter(()) if file is None else self.samples_of(file)

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """Examples in the columns of the run's data; several texts of an example are joined by tabs."""
        return self.samples_of(file_at(self.run.data, path))

    def samples_of(self, file: LabeledFile) -> Iterator[Sample]:
        examples = self.labeled.examples(file)
        return (Sample(None, "\t".join(example.texts), label=SEPARATOR.join(example.labels)) for example in examples)

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        """Examples that are truncated are left out; a missing label is predicted."""
        labeled, tokenizer, size = self.labeled, self.system.target_tokenizer, self.run.data.batch
        fitting = [(sample, rows) for sample in samples if (rows := self.encode_rows(sample)) is not None]
        for at in range(0, len(fitting), size):
            chosen = fitting[at : at + size]
            examples = [self.example_of(sample) for sample, _ in chosen]
            batch = labeled.collate(labeled.encode(examples, tokenizer), range(len(chosen)), tokenizer.specials)
            batch = batch.to(self.system.device)
            rows = [row for _, several in chosen for row in several]
            logits = partial(batch_logits, self.classifier, batch)
            yield ForcedBatch(rows, logits, batch_targets(batch), 0, batch.tokens.shape[1])

    def example_of(self, sample: Sample) -> Example:
        texts = tuple((sample.target or "").split("\t"))
        if sample.label is None:
            return Example(next(iter(self.predictions([texts]))).labels, texts)
        labels = [label for label in sample.label.split(SEPARATOR) if label] if self.run.task.multi_label else [sample.label]
        return Example(tuple(labels), texts)

    def encode_rows(self, sample: Sample) -> list[EncodedSample] | None:
        """The tokens of each sequence of an example, without the first and the last, which are special; None if a text is
        empty, or the example too long."""
        texts, tokenizer, longest = (sample.target or "").split("\t"), self.system.target_tokenizer, self.run.data.max_length
        if len(texts) == 1:
            pieces = pieces_of(tokenizer, texts[0], sample.target_arcs, longest - 1)
            return None if pieces is None else [EncodedSample(None, pieces)]
        rows = self.labeled.sequences([tuple(texts)], tokenizer)[0] if len(texts) == len(self.run.data.texts) else []
        if not rows or max(len(row.ids) for row in rows) >= longest:  # perhaps truncated
            return None
        return [EncodedSample(None, Pieces(row.ids[1:-1], list(range(len(row.ids) - 2)))) for row in rows]


def example_losses(model: ClassificationModel, batch: LabeledBatch) -> Tensor:
    """-log p of the labels of each example, (examples,)."""
    logits = model(batch)[0].float()
    if batch.labels.ndim == 1:
        return functional.cross_entropy(logits, batch.labels, reduction="none")
    return functional.binary_cross_entropy_with_logits(logits, batch.labels, reduction="none").mean(-1)
