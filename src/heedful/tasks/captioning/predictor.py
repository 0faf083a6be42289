"""A trained captioning model: heedful.load("runs/captions").predict("picture.png")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from heedful.config.given import OVERRIDE
from heedful.data.image_files import ImageFormat, encode_data_uri
from heedful.data.input_lines import checked_chunks, chunk_lines, read_texts
from heedful.data.samples import Sample, from_lines
from heedful.errors import ConfigError
from heedful.evaluation.word_alignment import Alignment
from heedful.search import SearchConfig
from heedful.tasks.captioning.caption import Caption, ImageDecoder, caption_images, count_patches, image_decoder, image_piece
from heedful.tasks.captioning.command import EvaluateOptions
from heedful.tasks.captioning.config import NO_EFFECT
from heedful.tasks.captioning.data import CaptionData, CaptionSet, make_batch
from heedful.tasks.captioning.evaluate import evaluate, score_captions
from heedful.tasks.captioning.report import report
from heedful.tasks.encoded_example import Decoded, EncodedExample, TokenLoss, token_outputs, tokens_from_ids
from heedful.tasks.forced import BATCH, PADDING, EncodedSample, ForcedBatch, Pieces, pieces_of
from heedful.tasks.image_inputs import Image, NamedImage, image_lines, is_image, name_patches, read_input
from heedful.tasks.objectives import sequence_losses
from heedful.tasks.pair_predictor import join_predictors
from heedful.tasks.predictor import (
    LOSS_TOKENS,
    ExampleInput,
    Loader,
    Predictor,
    Searcher,
    ValidationResult,
    check_split,
    missing_split_error,
    refuse_empty,
)
from heedful.tasks.system import batches_of
from heedful.tasks.translation.evaluate import Scored
from heedful.tasks.translation.job import PairJob
from heedful.tasks.translation.report import TranslationReport
from heedful.tasks.translation.translate import decode_pieces


class Captioner(Predictor):
    """A trained captioning model. An image is the path of a file, a data URI, or an array of bytes.

    >>> import numpy
    >>> captioner = heedful.Captioner.load(captioning_run)
    >>> len(captioner.predict([numpy.zeros((6, 8, 3), "uint8")], beam=2))
    1
    """

    phases: ClassVar[tuple[str, ...]] = ("training step",)
    has_source = decodes = True
    reads_text = False

    @property
    def images(self) -> CaptionData:
        return CaptionData(self.run)

    @property
    def input_names(self) -> Sequence[str]:
        return ["image"]

    def input_lines(self, file: Path) -> Iterator[str]:
        return image_lines(file)

    def read(self, image: Image, place: str, form: ImageFormat | None = None) -> NamedImage:
        """Decode an image; DataError if it cannot be used."""
        return read_input(image, place, form or self.images.form, reads_paths=self.reads_paths)

    def search_config(self, changes: Sequence[str] = (), *, origin: str = OVERRIDE) -> SearchConfig:
        """As in `Predictor`; an option that reads the words of a source, or their number, is an error."""
        for name in (change.split("=", 1)[0].strip() for change in changes):
            if name in NO_EFFECT:
                raise ConfigError(f"search.{name} has no effect on a captioner, whose source is an image", hint="remove it")
        return super().search_config(changes, origin=origin)

    def predict(self, inputs: Any, **options: Any) -> Any:
        """The caption of one image, or of each of a list of images; options: those of `SearchConfig`."""
        return self.apply(inputs, lambda prediction: prediction.text, **options)

    def is_one(self, inputs: Any) -> bool:
        return is_image(inputs)

    def predictions(self, texts: Iterable[Image], **search: Any) -> Iterator[Caption]:
        """Yield the captions of images one by one, with scores and n-best candidates."""
        return self.caption_chunks(chunk_lines(texts), self.search_config_from(search))

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: Any,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[Caption]:
        return self.caption_chunks(chunks, config, first)

    def caption_chunks(self, chunks: Iterable[Sequence[Image]], config: SearchConfig, first: int = 1) -> Iterator[Caption]:
        """The captions of images that arrive in chunks, each chunk before the next is read."""
        form = self.images.form

        def read(image: Image, number: int) -> NamedImage:
            return self.read(image, f"example {number}", form)

        for start, images in checked_chunks(chunks, read, first):
            found = caption_images(self.system, [image.pixels for image in images], config, first=start - 1)
            yield from (Caption(image.name, candidates) for image, candidates in zip(images, found, strict=True))

    def decoder(self) -> ImageDecoder:
        return image_decoder(self.system)

    def job(self, text: str, *, number: int = 0, stream: bool = False, **search: Any) -> PairJob:
        config, image = self.search_config_from(search), self.read(text, "the image")
        piece = image_piece(self.system, image.pixels, config, number=number, name=image.name)
        return PairJob(self.system, image.name, [piece], config, Caption, stream=stream)

    def split_images(self, split: str) -> CaptionSet:
        """The images of a split of the run's data, with their captions."""
        check_split(self.run.data, split)
        images = self.images.images(split)
        if images is None:
            raise missing_split_error(split)
        return images

    def score(self, images: Sequence[Image], captions: Sequence[str]) -> list[Scored | None]:
        """The log-probability of each caption given its image; None if the caption is too long for the model."""
        form = self.images.form
        pixels = np.stack([self.read(image, f"example {at}", form).pixels for at, image in enumerate(images, start=1)])
        return score_captions(self.system, CaptionSet(pixels, np.arange(len(pixels)), list(captions)))

    def evaluate(self, split: str = "test", **search: Any) -> dict[str, float]:
        """Loss, perplexity, exact match, BLEU and chrF on a split of the run's data; options of `SearchConfig` by name."""
        config, metrics = self.search_config_from(search), ("exact_match", "bleu", "chrf")
        return evaluate(self.system, self.split_images(split), config, metrics).figures

    def report(self, split: str | None, options: EvaluateOptions, *, load: Loader, search: Searcher) -> TranslationReport:
        return report(self, split or "test", options, search(self))

    def validate(self) -> ValidationResult:
        images, task = self.split_images("valid"), self.run.task
        result = evaluate(self.system, images, self.run.search, task.validation_metrics, task.validation_images)
        signatures = {name: score.signature for name, score in result.scores.items()}
        return ValidationResult(result.figures, len(images.captions), len(result.translations), signatures)

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Images with captions longer than the model's maximum are left out."""
        images, system = self.split_images("train"), self.system
        tokens = system.target_tokenizer.encode_many(images.captions[:count])
        fits = sorted((at for at, ids in enumerate(tokens) if len(ids) <= system.max_length), key=lambda at: -len(tokens[at]))
        size, specials = max(1, LOSS_TOKENS // count_patches(system)), system.target_tokenizer.specials
        for chosen in (fits[at : at + size] for at in range(0, len(fits), size)):
            batch = make_batch(images.pixels[images.rows[chosen]], [tokens[at] for at in chosen], specials)
            yield partial(sequence_losses, system.models[0], batch.to(system.device), specials.pad)

    def sample_texts(self, split: str) -> Iterator[Sample]:
        """The images of a split as data URIs, with their captions; of generated images with the patches of each word."""
        data = self.images
        images = data.images(split)
        if images is None:
            return
        known: Iterable[Alignment | None] = data.alignments(split) or repeat(None)
        for row, caption, alignment in zip(images.rows, images.captions, known, strict=False):
            yield Sample(encode_data_uri(np.asarray(images.pixels[row])), caption, alignment=alignment)

    def example_inputs(self, split: str) -> Iterator[ExampleInput]:
        return (ExampleInput(one.source or "", one.target) for one in self.sample_texts(split))

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """Lines of path TAB caption TAB alignment, the last two optional."""
        return from_lines(read_texts(path), str(path))

    def sample_of(self, text: str, arcs: Any = None) -> Sample:
        return Sample(text)

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        """Missing captions are generated; those that are too long, or have tokens across word boundaries, are left out."""
        system, data, given = self.system, self.images, list(samples)
        images = [self.read(one.source, f"example {at}", data.form) for at, one in enumerate(given, start=1)]
        targets = [sample.target or self.predict(sample.source) for sample in given]
        patches = Pieces(name_patches("", self.run.model).ids, name_patches("", self.run.model).words)
        encoded = [
            (image.pixels, EncodedSample(patches, pieces, sample.alignment))
            for image, sample, target in zip(images, given, targets, strict=True)
            if (pieces := pieces_of(system.target_tokenizer, target, None, system.max_length)) is not None
        ]
        order = sorted(range(len(encoded)), key=lambda at: -len(encoded[at][1].target.ids))
        specials, model = system.target_tokenizer.specials, system.models[0]
        for chosen in batches_of(order, lambda at: max(len(patches.ids), len(encoded[at][1].target.ids)), BATCH):
            rows = [encoded[at][1] for at in chosen]
            pixels = np.stack([encoded[at][0] for at in chosen])
            batch = make_batch(pixels, [row.target.ids for row in rows], specials).to(system.device)
            yield ForcedBatch(
                rows,
                partial(model.forced_logits, batch.source, None, batch.target_in),
                batch.target_out.masked_fill(batch.target_out == specials.pad, PADDING),
                len(patches.ids),
                batch.target_in.shape[1],
            )

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """An image with its best caption, or with the given one. The tokens of the source are the patches, named by row and
        column, as 1,2."""
        refuse_empty(text, target)
        if target is not None and config is not None:
            raise ConfigError("search options have no effect with a given caption", hint="remove one of them")
        system, image = self.system, self.read(text, "the image")
        if target is None:
            (best, *_) = caption_images(system, [image.pixels], config or self.run.search)[0]
            output = tokens_from_ids(system.target_tokenizer, best.text, best.tokens)
        else:
            output = tokens_from_ids(system.target_tokenizer, target, system.target_tokenizer.encode(target))
        specials = system.target_tokenizer.specials
        batch = make_batch(image.pixels[None].copy(), [output.ids], specials).to(system.device)
        start, end = system.target_tokenizer.pieces([specials.start, specials.end])
        steps = torch.arange(batch.target_out.shape[1], device=system.device)
        outputs = token_outputs(system.target_tokenizer, batch.target_out[0], steps)
        source = name_patches(image.name, self.run.model)
        return EncodedExample(source, output, start, end, batch.source, batch.target_in, outputs, ends_source=False)

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        image = self.read(text, "the image")
        pixels = torch.from_numpy(image.pixels.copy())[None].to(self.system.device)
        return replace(example, source=name_patches(image.name, self.run.model), source_ids=pixels)

    def decode_example(
        self, example: EncodedExample, prefix: Sequence[int] = (), config: SearchConfig | None = None
    ) -> Decoded:
        """The best caption with this prefix."""
        search, pixels = config or self.run.search, example.source_ids[0].cpu().numpy()
        piece = image_piece(self.system, pixels, search, prefix=prefix)
        best = decode_pieces(self.system, [piece], search, self.decoder())[0][0]
        return Decoded(best.text, best.tokens, best.log_probability, best.score)

    def token_loss(self) -> TokenLoss:
        return TokenLoss(self.run.task.label_smoothing)

    def unknown_words(self, text: str) -> list[str]:
        return []  # an image has none

    def join(self, others: Sequence[Predictor]) -> Self:
        return join_predictors([self, *map(type(self).of, others)])
