"""A trained image classifier: heedful.load("runs/fashion-mnist").predict("picture.png")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from heedful.data.image_files import ImageFormat, encode_data_uri
from heedful.data.input_lines import checked_chunks
from heedful.errors import ConfigError, lookup
from heedful.evaluation.labels import softmax
from heedful.search import SearchConfig
from heedful.tasks.classification.report import ClassificationReport
from heedful.tasks.encoded_example import Decoded, EncodedExample, TokenLoss
from heedful.tasks.image_classification.command import EvaluateOptions
from heedful.tasks.image_classification.data import ImageBatch, ImageData, ImageSet
from heedful.tasks.image_classification.evaluate import BATCH, figures_of, logits_of
from heedful.tasks.image_classification.model import ImageModel
from heedful.tasks.image_classification.report import report
from heedful.tasks.image_inputs import Image, NamedImage, image_lines, is_image, name_patches, read_input
from heedful.tasks.labels import decode_choices, label_output, refuse_search
from heedful.tasks.predictor import (
    ExampleInput,
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    check_split,
    missing_split_error,
)


class ImagePrediction(NamedTuple):
    """The probability of each label of an image."""

    image: str  # its path; a data URI is shortened
    probabilities: dict[str, float]
    label: str  # the most probable

    @property
    def text(self) -> str:
        return self.label

    def rows(self) -> list[str]:
        return [self.label]

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "probabilities": self.probabilities, "image": self.image}


class ImageClassifier(Predictor):
    """A trained image classification model. An image is the path of a file, a data URI, or an array of bytes."""

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")
    reads_text: ClassVar[bool] = False

    @property
    def classifier(self) -> ImageModel:
        """The model with its head."""
        return cast(ImageModel, self.model)

    @property
    def images(self) -> ImageData:
        return ImageData(self.run)

    @property
    def input_names(self) -> Sequence[str]:
        return ["image"]

    @property
    def positions(self) -> int:
        longest = self.classifier.body.max_length
        assert longest is not None, "an image has a number of patches"
        return longest

    def input_lines(self, file: Path) -> Iterator[str]:
        return image_lines(file)

    def predict(self, inputs: Any, **options: Any) -> Any:
        """The most probable label of one image, or of each of a list of images."""
        return self.apply(inputs, lambda prediction: prediction.text, **options)

    def is_one(self, inputs: Any) -> bool:
        return is_image(inputs)

    def predict_proba(self, inputs: Any) -> Any:
        """The probability of each label, for one image, or for each of a list of images."""
        return self.apply(inputs, lambda prediction: prediction.probabilities)

    def predictions(self, texts: Iterable[Image], **options: Any) -> Iterator[ImagePrediction]:
        if options:
            raise ConfigError(f"given {next(iter(options))!r}, but image classification has no options")
        remaining = iter(texts)
        return self.predict_windows(iter(lambda: list(islice(remaining, BATCH)), []))

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: Any,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[ImagePrediction]:
        return self.predict_windows((chunk[at : at + BATCH] for chunk in chunks for at in range(0, len(chunk), BATCH)), first)

    def predict_windows(self, windows: Iterable[Sequence[Image]], first: int = 1) -> Iterator[ImagePrediction]:
        """The predictions of each window of images, in order; first: the number of the first image."""
        labels: tuple[str, ...] = self.run.task.labels
        form = self.images.form

        def read(image: Image, number: int) -> NamedImage:
            return self.read(image, f"example {number}", form)

        for _, images in checked_chunks(windows, read, first):
            if not images:
                continue
            pixels = np.stack([image.pixels for image in images])
            stacked = ImageSet(pixels, np.arange(len(images)), np.zeros(len(images), np.int64))
            for image, row in zip(images, softmax(logits_of(self.classifier, self.system, stacked)), strict=True):
                probabilities = dict(zip(labels, row.tolist(), strict=True))
                yield ImagePrediction(image.name, probabilities, labels[int(row.argmax())])

    def read(self, image: Image, place: str, form: ImageFormat) -> NamedImage:
        """Decode an image; DataError if it cannot be used."""
        return read_input(image, place, form, reads_paths=self.reads_paths)

    def split_images(self, split: str) -> ImageSet:
        """The images of a split of the run's data."""
        check_split(self.run.data, split)
        images = self.images.images(split)
        if images is None:
            raise missing_split_error(split)
        return images

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """The metrics of a validation on a split of the run's data."""
        images = self.split_images(split)
        figures = figures_of(logits_of(self.classifier, self.system, images), images)
        return {name: figure.statistics.value() for name, figure in figures.items()}

    def report(self, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher) -> ClassificationReport:
        return report(self, split or "test", options)

    def validate(self) -> ValidationResult:
        return ValidationResult(self.evaluate("valid"), None, None, {})

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` images of the training data."""
        images = self.images.images("train")
        assert images is not None, "a run has training data"
        most = min(count, len(images.rows))
        for at in range(0, most, self.run.data.batch):
            batch = images.batch(np.arange(at, min(at + self.run.data.batch, most)))
            yield partial(image_losses, self.classifier, batch.to(self.system.device))

    def example_inputs(self, split: str) -> Iterator[ExampleInput]:
        """The images of a split as data URIs, with their labels."""
        images = self.images.images(split)
        if images is None:
            return
        for row, label in zip(images.rows, images.labels, strict=True):
            yield ExampleInput(encode_data_uri(np.asarray(images.pixels[row])), self.run.task.labels[label])

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """An image with its label; its tokens are its patches, named by row and column, as 1,2. target: a label, default: the
        predicted one."""
        refuse_search(config)
        labels, model = self.run.task.labels, cast(Any, self.run.model)
        image = self.read(text, "the image", self.images.form)
        label = self.predict(text) if target is None else target
        lookup(label, dict.fromkeys(labels), "label")
        tokens = name_patches(image.name, model)
        device = self.system.device
        step = torch.zeros(1, dtype=torch.int64, device=device)
        outputs = label_output(labels, label, step, lambda model, hidden: model.classify(hidden)[:, None])  # (rows, 1, labels)
        pixels = torch.from_numpy(image.pixels.copy())[None].to(device)
        start = "[CLS]" if model.pooling == "cls" else None
        source = torch.zeros(1, 0, dtype=torch.int64, device=device)
        return EncodedExample(None, tokens, start, None, source, pixels, outputs, reads_end=True, label=label)

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The most probable label."""
        best, total = decode_choices(self.classifier, example, prefix)
        return Decoded(self.run.task.labels[best[0]], best, total, total)

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        return self.encode_example(text, example.label)

    def token_loss(self) -> TokenLoss:
        smoothing = self.run.task.label_smoothing
        return TokenLoss(omitted=[f"smooths the labels by {smoothing:g}"] if smoothing else [])

    def unknown_words(self, text: str) -> list[str]:
        return []  # an image has none


def image_losses(model: ImageModel, batch: ImageBatch) -> Tensor:
    """-log p of the label of each image, (images,)."""
    return functional.cross_entropy(model(batch.pixels).float(), batch.labels, reduction="none")
