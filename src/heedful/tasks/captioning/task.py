"""The captioning task: the caption of an image is predicted token by token, with teacher forcing (pairs_task.py)."""

from __future__ import annotations

from typing import Any

from heedful.data.batching import Index
from heedful.data.captions import CaptionsConfig
from heedful.evaluation.tables import counted
from heedful.nn.model import SequenceModel
from heedful.tasks.base import RunConfig, TaskDefinition
from heedful.tasks.batch_stream import shuffled_batches
from heedful.tasks.batches import Batch, pad_length
from heedful.tasks.captioning.config import CaptioningConfig
from heedful.tasks.captioning.data import CaptionData, CaptionSplits, format_examples, make_batch
from heedful.tasks.captioning.evaluate import evaluate
from heedful.tasks.captioning.predictor import Captioner
from heedful.tasks.captioning.starter import STARTER
from heedful.tasks.image_classification.task import count_pixels
from heedful.tasks.pairs_task import TeacherForcedTask
from heedful.tasks.system import System
from heedful.training.loop import Validation
from heedful.training.samples_log import MAX_SAMPLES, Sample


class CaptioningTask(TeacherForcedTask):
    def __init__(self, run: RunConfig, corpora: CaptionSplits, system: System) -> None:
        super().__init__(run, system)
        self.config: CaptioningConfig = run.task
        self.corpora, self.images = corpora, CaptionData(run)
        model: Any = system.models[0]
        model.fit_pixels(count_pixels(corpora.train))

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        return {
            "images": len(self.corpora.tokens),
            "left_out": self.corpora.left_out,
            "batches_per_epoch": len(self.plan(0)),
            "tokens_per_epoch": sum(len(ids) + 1 for ids in self.corpora.tokens),
        }

    def describe(self) -> str:
        sizes = self.statistics()
        text = (
            f"{counted(sizes['images'], 'images')} in {counted(sizes['batches_per_epoch'], 'batches')} per epoch, "
            f"{counted(sizes['tokens_per_epoch'], 'caption tokens')}"
        )
        if not sizes["left_out"]:
            return text
        return (
            f"{text}; {counted(sizes['left_out'], 'images')} with captions longer than {self.data.max_length} tokens left out"
        )

    def plan(self, epoch: int) -> list[Index]:
        return shuffled_batches(len(self.corpora.tokens), self.data.batch, seed=self.seed, epoch=epoch)

    def batch(self, indices: Index, epoch: int) -> Batch:
        targets = [self.corpora.tokens[at] for at in indices]
        longest, multiple = max(map(len, targets)) + 1, self.data.length_multiple
        pixels = self.images.augmented(self.corpora.train, indices, epoch=epoch)
        length = pad_length(longest, multiple, self.data.max_length + 1)
        return make_batch(pixels, targets, self.system.target_tokenizer.specials, length)

    def validate(self, model: SequenceModel) -> Validation:
        """Evaluate on the validation data, by the function that `heed evaluate` calls."""
        valid, config = self.corpora.valid, self.config
        result = evaluate(self.system, valid, self.search, config.validation_metrics, config.validation_images)
        shown = [
            Sample(f"image {at}", caption, output)
            for at, (caption, output) in enumerate(zip(valid.captions, result.translations, strict=False), start=1)
        ]
        samples = [f"{one.reference}  ->  {one.output}" for one in shown[: config.samples]]
        signatures = {name: score.signature for name, score in result.scores.items()}
        return Validation(result.figures, signatures, samples, shown[:MAX_SAMPLES])


TASK = TaskDefinition(CaptioningConfig, CaptionsConfig, CaptionData, CaptioningTask, Captioner, format_examples, STARTER)
