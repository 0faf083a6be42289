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

from heedful.data.image_files import (
    SUFFIXES,
    Pixels,
    UnusableImage,
    data_uri_bytes,
    decode_image,
    fit_array,
    is_data_uri,
)
from heedful.data.input_lines import checked_chunks, refuse_too_long
from heedful.data.sources import find_path
from heedful.errors import ConfigError, DataError, lookup
from heedful.evaluation.labels import softmax
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.storage.reading import read_bytes, unreadable
from heedful.tasks.classification.report import ClassificationReport
from heedful.tasks.encoded_example import Decoded, EncodedExample, Outputs, TokenLoss, Tokens
from heedful.tasks.image_classification.command import EvaluateOptions
from heedful.tasks.image_classification.data import ImageBatch, ImageData, ImageSet
from heedful.tasks.image_classification.evaluate import BATCH, figures_of, logits_of
from heedful.tasks.image_classification.model import ImageModel
from heedful.tasks.image_classification.report import report
from heedful.tasks.predictor import Loader, Predictor, Searcher, ValidationResult, check_split, missing_split_error

Image = Any  # the path of a file, a data URI, or an array of bytes, (height, width) or (height, width, channels)
SHOWN = 60  # characters of a data URI in messages and results


class NamedImage(NamedTuple):
    name: str
    pixels: Pixels  # (height, width, channels)


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

    @property
    def classifier(self) -> ImageModel:
        """The model with its head."""
        return cast(ImageModel, self.model)

    @property
    def images(self) -> ImageData:
        return ImageData(self.run)

    def input_lines(self, file: Path) -> Iterator[str]:
        """A file with the suffix of an image is one input; another has the path of an image in each line."""
        return iter([str(file)]) if file.suffix.lower() in SUFFIXES else super().input_lines(file)

    def predict(self, inputs: Any, **options: Any) -> Any:
        """The most probable label of one image, or of each of a list of images."""
        is_one = isinstance(inputs, str | Path | np.ndarray)
        outputs = [prediction.text for prediction in self.predictions([inputs] if is_one else inputs, **options)]
        return outputs[0] if is_one else outputs

    def predict_proba(self, inputs: Sequence[Image]) -> list[dict[str, float]]:
        """The probability of each label, for each image."""
        return [prediction.probabilities for prediction in self.predictions(inputs)]

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

    def read(self, image: Image, place: str, form: Any) -> NamedImage:
        """Decode an image; DataError if it cannot be used."""
        if isinstance(image, str | Path):
            refuse_too_long(str(image), place)
        name = shorten(str(image)) if isinstance(image, str | Path) else f"{type(image).__name__}"
        try:
            if not isinstance(image, str | Path):
                return NamedImage(name, fit_array(image, form))
            if is_data_uri(str(image)):
                return NamedImage(name, decode_image(data_uri_bytes(str(image)), form))
            if not self.reads_paths:
                raise UnusableImage("is a path, which a server does not read; expected data:image/png;base64,…")
            path = find_path(str(image))
            try:
                return NamedImage(name, decode_image(read_bytes(path), form))
            except OSError as error:
                raise unreadable(path, error) from error
        except UnusableImage as error:
            raise DataError(f"{place}, {name}, {error}") from error

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

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """An image with its label; its tokens are its patches, named by row and column, as 1,2. target: a label, default: the
        predicted one."""
        if config is not None:
            raise ConfigError("search options have no effect on a classifier, which decodes no text", hint="remove them")
        labels, model = self.run.task.labels, cast(Any, self.run.model)
        image = self.read(text, "the image", self.images.form)
        label = self.predict(text) if target is None else target
        lookup(label, dict.fromkeys(labels), "label")
        down, across = (size // model.patch for size in model.image_size)
        pieces = [f"{row},{column}" for row in range(1, down + 1) for column in range(1, across + 1)]
        tokens = Tokens(image.name, list(range(len(pieces))), pieces, list(range(len(pieces))))
        device = self.system.device
        outputs = Outputs(
            torch.tensor([labels.index(label)], device=device),
            [label],
            torch.zeros(1, dtype=torch.int64, device=device),
            lambda model, hidden: model.classify(hidden)[:, None],  # (rows, 1, labels)
            lambda chosen: [labels[i] for i in chosen],
        )
        pixels = torch.from_numpy(image.pixels.copy())[None].to(device)
        start = "[CLS]" if model.pooling == "cls" else None
        source = torch.zeros(1, 0, dtype=torch.int64, device=device)
        return EncodedExample(None, tokens, start, None, source, pixels, outputs, reads_end=True, label=label)

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The most probable label."""
        if prefix:
            raise ConfigError(
                "a classifier decodes no text, so no token can be forced", hint="compare the labels' probabilities"
            )
        with inference_context(self.classifier):
            logs = example.logits(self.classifier, example.forward(self.classifier).hidden)[0, 0].float().log_softmax(-1)
        best, total = int(logs.argmax()), float(logs.max())
        return Decoded(self.run.task.labels[best], [best], total, total)

    def token_loss(self) -> TokenLoss:
        smoothing = self.run.task.label_smoothing
        return TokenLoss(omitted=[f"smooths the labels by {smoothing:g}"] if smoothing else [])

    def unknown_words(self, text: str) -> list[str]:
        return []  # an image has none


def shorten(name: str) -> str:
    """A path, or the beginning of a data URI."""
    return f"{name[:SHOWN]}…" if is_data_uri(name) and len(name) > SHOWN else name


def image_losses(model: ImageModel, batch: ImageBatch) -> Tensor:
    """-log p of the label of each image, (images,)."""
    return functional.cross_entropy(model(batch.pixels).float(), batch.labels, reduction="none")
