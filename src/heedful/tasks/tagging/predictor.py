"""A trained tagger: heedful.load("runs/tagging-ewt-upos").predict("the cat sat") -> "DET NOUN VERB"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast, overload

import torch
from torch import Tensor

from heedful.data.input_lines import CHUNK_LINES, checked_chunks, refuse_too_long
from heedful.data.samples import Sample
from heedful.data.sources import find_path
from heedful.data.tagged import TaggedSentence, TaggedSource, find_split_file, parse_numbers
from heedful.errors import ConfigError, lookup
from heedful.evaluation.spans import spans_of
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.storage.writing import output_file
from heedful.tasks.encoded_example import Decoded, EncodedExample, TokenLoss
from heedful.tasks.forced import ForcedBatch
from heedful.tasks.predictor import (
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    check_split,
    missing_split_error,
    note_unknown_in_chunks,
    refuse_empty,
)
from heedful.tasks.system import batches_of
from heedful.tasks.tagging import forced
from heedful.tasks.tagging.command import EvaluateOptions, PredictOptions
from heedful.tasks.tagging.data import TagBatch, TaggedData
from heedful.tasks.tagging.evaluate import Tagging, evaluate, figures, tag_rows
from heedful.tasks.tagging.model import TaggingModel
from heedful.tasks.tagging.report import TaggingReport, baseline_accuracies, make_report
from heedful.text.split_words import Word, split_words

Input = str | Sequence[Sequence[float]]  # a text; of a run trained on numbers: vectors, or their lines

LOSS_TOKENS = 2**12  # tokens in a batch of `training_losses`


class TagPrediction(NamedTuple):
    """A label for each word of a text."""

    words: list[str]
    labels: list[str]
    probabilities: list[float]  # of these labels
    offsets: list[tuple[int, int]]  # (start, end): text[start:end] is the word
    has_spans: bool  # the labels are in BIO notation

    @property
    def text(self) -> str:
        return " ".join(self.labels)

    def rows(self) -> list[str]:
        return [self.text]

    def to_dict(self) -> dict[str, Any]:
        content = {
            "labels": self.labels,
            "words": self.words,
            "probabilities": self.probabilities,
            "offsets": [list(offset) for offset in self.offsets],
        }
        return content | ({"spans": self.spans()} if self.has_spans else {})

    def spans(self) -> list[dict[str, Any]]:
        """The labeled spans, with the offsets of their first and last character."""
        found = spans_of(self.labels)
        return [
            {"label": label, "start": self.offsets[start][0], "end": self.offsets[end - 1][1]} for label, start, end in found
        ]


class Tagger(Predictor):
    """A trained tagging model.

    >>> tagger = heedful.Tagger.load(tagging_run)
    >>> len(tagger.predict("the cat sees").split())
    3
    """

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")

    @property
    def tagger(self) -> TaggingModel:
        """The model with its head."""
        return cast(TaggingModel, self.model)

    @property
    def input_names(self) -> Sequence[str]:
        return ["vectors"] if self.tagged.features else ["text"]

    @property
    def tagged(self) -> TaggedData:
        return TaggedData(self.run)

    @overload
    def predict(self, inputs: str, **options: Any) -> str: ...
    @overload
    def predict(self, inputs: Sequence[Input], **options: Any) -> list[str]: ...
    def predict(self, inputs: Sequence[Input], **options: Any) -> str | list[str]:
        """The labels of one text, or of each of several, separated by spaces; options: split_punctuation."""
        found: str | list[str] = self.apply(inputs, lambda prediction: prediction.text, **options)
        return found

    def predictions(self, texts: Iterable[Input], **options: Any) -> Iterator[TagPrediction]:
        """Yield the labels of each text; split_punctuation: separate punctuation from words."""
        split = options.pop("split_punctuation", False)
        if options:
            raise ConfigError(f"given {next(iter(options))!r}, but the only option of tagging is split_punctuation")
        remaining = iter(texts)
        return self.tag_chunks(iter(lambda: list(islice(remaining, CHUNK_LINES)), []), split)

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: PredictOptions,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[TagPrediction]:
        if not self.tagged.features and not self.tagged.reads_spelling:
            chunks = note_unknown_in_chunks(chunks, self.system.target_tokenizer, unknown, first)
        return self.tag_chunks(chunks, options.split_punctuation, first)

    def join_lines(self, chunks: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
        return join_sentences(chunks) if self.tagged.features else iter(chunks)

    def tag_chunks(self, chunks: Iterable[Sequence[Input]], split_punctuation: bool, first: int = 1) -> Iterator[TagPrediction]:
        if self.tagged.features and split_punctuation:
            raise ConfigError("split_punctuation has no effect on a run trained on numbers", hint="remove it")
        for _, texts in checked_chunks(chunks, partial(self.words_of, split_punctuation), first):
            yield from self.tag(texts)

    def tag(self, words: Sequence[list[Word]]) -> Iterator[TagPrediction]:
        """The labels of the words of texts, in batches of similar length."""
        data, labels = self.tagged, self.run.task.known_labels
        sentences = [TaggedSentence(1, [w.text for w in one], [""] * len(one), list(range(1, len(one) + 1))) for one in words]
        rows = data.encode(sentences, self.system.target_tokenizer)
        chosen: list[list[tuple[str, float]]] = [[] for _ in words]
        for row, result in zip(rows, tag_rows(self.tagger, self.system, data, rows), strict=True):
            chosen[row.sentence] += zip((labels[i] for i in result.labels), result.probabilities, strict=True)
        for one, pairs in zip(words, chosen, strict=True):
            yield TagPrediction(
                [word.text for word in one],
                [label for label, _ in pairs],
                [probability for _, probability in pairs],
                [(word.start, word.end) for word in one],
                self.run.task.has_spans,
            )

    def words_of(self, split_punctuation: bool, text: Input, number: int) -> list[Word]:
        """The words of an input; of numbers, its vectors as lines."""
        features, place = self.tagged.features, f"text {number}"
        if not features:
            if not isinstance(text, str):
                raise ConfigError(f"{place} is {text!r:.60}; expected a text")
            refuse_too_long(text, place)
            return split_words(text, punctuation=split_punctuation)
        if not isinstance(text, str):
            text = "\n".join("\t".join(map(str, vector)) for vector in text)
        words, start = [], 0
        for at, line in enumerate(text.split("\n") if text else [], start=1):
            size = len(parse_numbers(line, f"{place} line {at}"))
            if size != features:
                raise ConfigError(f"{place} line {at} has {size} numbers; expected {features}, as in the training data")
            words.append(Word(line, start, start + len(line)))
            start += len(line) + 1
        return words

    def sentences(self, split: str) -> list[TaggedSentence]:
        """The sentences of a split of the run's data."""
        check_split(self.run.data, split)
        file = find_split_file(self.run.data, split)
        if file is None:
            raise missing_split_error(split)
        return self.tagged.sentences(file)

    def tagging(self, sentences: Sequence[TaggedSentence]) -> Tagging:
        """The predictions for tagged sentences."""
        data = self.tagged
        return evaluate(self.tagger, self.system, data, data.encode(sentences, self.system.target_tokenizer))

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss, accuracy, and for labels in BIO notation the F1 of spans, on a split of the run's data."""
        return figures(self.tagging(self.sentences(split)), self.run.task)

    def report(self, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher) -> TaggingReport:
        name = split or "test"
        sentences = self.sentences(name)
        baselines = baseline_accuracies(self.sentences("train"), sentences) if options.baselines else {}
        if options.output is None:
            tagging = self.tagging(sentences)
        else:
            with output_file(options.output) as file:
                tagging = self.tagging(sentences)
                for sentence, one in zip(sentences, tagging.sentences, strict=True):
                    rows = zip(sentence.words, one.gold, one.predicted, strict=True)
                    file.write("".join(f"{word}\t{gold}\t{label}\n" for word, gold, label in rows) + "\n")
        has_spans = self.run.task.has_spans
        return make_report(name, tagging, has_spans=has_spans, resamples=options.bootstrap, baselines=baselines)

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` sentences of the training data."""
        data, tokenizer = self.tagged, self.system.target_tokenizer
        rows = data.encode(data.sentences(data.file("train"))[:count], tokenizer)[:count]
        for chosen in batches_of(range(len(rows)), lambda i: max(len(row.tokens) for row in rows), LOSS_TOKENS):
            batch = self.tagged.collate([rows[i] for i in chosen], tokenizer.specials.pad).to(self.system.device)
            yield partial(sentence_losses, self.tagger, batch, len(chosen))

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """The text, or lines of numbers separated by tabs, with the labels of its words; target: labels separated by spaces,
        default: the predicted ones."""
        refuse_empty(text)
        text = text.strip("\n")
        if config is not None:
            raise ConfigError("search options have no effect on a tagger, which decodes no text", hint="remove them")
        (predicted,) = self.predictions([text])
        labels, known = predicted.labels if target is None else target.split(), self.run.task.known_labels
        if len(labels) != len(predicted.words):
            raise ConfigError(f"given {len(labels)} labels, expected one for each of {len(predicted.words)} words")
        for label in labels:
            lookup(label, dict.fromkeys(known), "label")
        rows = self.tagged.encode([forced.untagged(predicted.words)], self.system.target_tokenizer)
        if len(rows) > 1:
            unit = "frames" if self.tagged.features else "tokens"
            raise ConfigError(f"given a text of more than {self.run.data.max_length} {unit}, expected at most as many")
        return forced.encode_row(rows[0], text, labels, known, self.system)

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The labels that the tagger predicts, and their log-probability: with a CRF, of the whole sequence."""
        if prefix:
            raise ConfigError("a tagger decodes no text, so no token can be forced", hint="compare the labels' probabilities")
        with inference_context(self.tagger):
            hidden = example.forward(self.tagger).hidden  # (1, time, dim)
            logits = self.tagger.classify(hidden[:, example.outputs.steps])  # (1, words, labels)
            best = self.tagger.decode(logits, torch.ones_like(logits[..., 0], dtype=torch.bool))  # (1, words)
            total = -float(self.tagger.losses(logits, best))
        return Decoded(" ".join(example.outputs.spell(best[0].tolist())), best[0].tolist(), total, total)

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        return self.encode_example(text, " ".join(example.outputs.pieces))

    def token_loss(self) -> TokenLoss:
        return TokenLoss(omitted=["normalizes over all label sequences (CRF)"] if self.tagger.crf is not None else [])

    def sample_texts(self, split: str) -> Iterator[Sample]:
        file = find_split_file(self.run.data, split)
        return iter(()) if file is None else self.samples_of(file)

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """Tagged sentences in the format of the run's data."""
        return self.samples_of(TaggedSource(find_path(str(path))))

    def samples_of(self, file: TaggedSource) -> Iterator[Sample]:
        return map(partial(forced.sample_of, self.between), self.tagged.sentences(file))

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        """Missing labels are predicted; sentences that are longer than a row are left out."""
        fitting = []
        for sample in samples:
            text = sample.target or ""
            words = text.split("\n") if self.tagged.features else text.split()
            labels = (
                next(iter(self.predictions([text]))).labels if sample.label is None else sample.label.split(forced.SEPARATOR)
            )
            sentence = forced.untagged(words)._replace(labels=labels)
            rows = self.tagged.encode([sentence], self.system.target_tokenizer) if len(labels) == len(words) else []
            fitting += [(sample, row) for row in rows if len(rows) == 1]
        return forced.tagged_batches(self.tagger, self.system, self.tagged, fitting)

    @property
    def between(self) -> str:
        """What separates the words of a text, or the frames of a numeric sequence."""
        return "\n" if self.tagged.features else " "


def sentence_losses(model: TaggingModel, batch: TagBatch, count: int) -> Tensor:
    """-log p of the labels of the first `count` rows, (count,)."""
    logits = model(batch.tokens, batch.mask, batch.first, batch.spelling)
    return model.losses(logits, batch.labels)[:count]


def join_sentences(chunks: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Yield texts of the lines between empty lines, from lines in chunks."""
    waiting: list[str] = []
    for chunk in chunks:
        texts = []
        for line in chunk:
            if line.strip():
                waiting.append(line)
            elif waiting:
                texts.append("\n".join(waiting))
                waiting = []
        yield texts
    if waiting:
        yield ["\n".join(waiting)]
