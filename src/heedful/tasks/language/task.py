"""Language modeling: predict the next token at every position of a text.

Every epoch cuts the text into blocks at another offset and shuffles them; evaluate.py defines the metrics.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.config.base import Problem, Size, ZeroOrCount, ZeroOrSize
from heedful.data.corpus_text import TextConfig
from heedful.data.mixing import describe_mixture
from heedful.data.streamed_text import StreamedBlocks, StreamedText
from heedful.data.text_blocks import BlockMixture, JoinedText, cut_blocks
from heedful.evaluation.tables import counted
from heedful.models.family import Architecture
from heedful.nn.model import SequenceModel
from heedful.tasks.base import RunConfig, TaskConfig, TaskDefinition, vector_problems
from heedful.tasks.batch_stream import StreamPosition, stream_batches
from heedful.tasks.language.data import StreamedSplits, TextData, TextSplits, block_shape, format_examples, mixture_of
from heedful.tasks.language.evaluate import evaluate_text
from heedful.tasks.language.generate import GenerationOptions, generate
from heedful.tasks.language.predictor import TextGenerator
from heedful.tasks.language.starter import STARTER
from heedful.tasks.objectives import token_loss, with_model_losses
from heedful.tasks.system import System
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.samples_log import MAX_SAMPLES, Sample
from heedful.training.train_state import Direction
from heedful.training.update import Objective


class LanguageConfig(TaskConfig):
    architectures: ClassVar[tuple[Architecture, ...]] = ("decoder",)
    name: Literal["language"]
    """Task."""
    stride: ZeroOrSize = 0
    """Tokens between the windows by which a text is scored; 0: data.block, no overlap."""
    samples: ZeroOrCount = 1
    """Texts to generate at each validation."""
    prompt: str = ""
    """Beginning of the generated texts."""
    sample_length: Size = 200
    """Tokens of a generated text."""

    @property
    def metrics(self) -> Mapping[str, Direction]:
        return dict.fromkeys(("loss", "perplexity", "word_perplexity", "bits_per_character", "bits_per_byte"), "lower")

    def problems_with(self, run: Any) -> list[Problem]:
        return vector_problems(run.model, self.name)


class BlockBatch(NamedTuple):
    """Blocks of text and the next token at each position."""

    inputs: Tensor  # (rows, block)
    targets: Tensor  # (rows, block)

    def pin(self) -> BlockBatch:
        return BlockBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> BlockBatch:
        return BlockBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class LanguageModelingTask:
    def __init__(self, run: RunConfig, texts: TextSplits | StreamedSplits, system: System) -> None:
        self.config: LanguageConfig = run.task
        self.data: TextConfig = run.data
        self.search, self.seed = run.search, run.seed
        self.texts, self.system = texts, system
        self.shape = block_shape(self.data)
        self.train: JoinedText | StreamedText
        self.mixture: BlockMixture | None = None
        if isinstance(texts, StreamedSplits):
            self.train = texts.train
        else:
            self.train = JoinedText([text.ids for text in texts.train])
            self.mixture = mixture_of(self.data, self.train, self.shape)

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train, plan = self.texts.train, self.plan(0)
        texts = [train] if isinstance(train, StreamedText) else train
        rows = plan.rows if isinstance(plan, StreamedBlocks) else len(plan[0])
        return {
            "lines": sum(text.lines for text in texts),
            "characters": sum(text.characters for text in texts),
            "batches_per_epoch": len(plan),
            "tokens_per_epoch": len(plan) * rows * self.data.block,
        }

    def describe(self) -> str:
        sizes = self.statistics()
        return (
            f"{counted(sum(self.train.sizes), 'tokens')} of {counted(sizes['characters'], 'characters')} in "
            f"{counted(sizes['batches_per_epoch'], 'batches')} per epoch, "
            f"{counted(len(self.texts.valid.ids), 'validation tokens')}{describe_mixture(self.epoch_counts(), 'blocks')}"
        )

    def epoch_counts(self) -> list[int]:
        """The number of blocks of each corpus in an epoch; none if the corpora are read as one text."""
        if isinstance(self.train, StreamedText):
            return self.train.counts()
        return self.mixture.counts() if self.mixture else []

    def plan(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        """The first token of the blocks of each batch: a pure function of the seed and the epoch. All batches have the same
        shape; the few blocks that are left over differ in every epoch."""
        if isinstance(self.train, StreamedText):
            return self.train.plan(epoch, rows=self.data.batch, seed=self.seed)
        generator = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        if self.mixture is None:
            starts = cut_blocks(self.train.sizes[0], self.shape, generator)
        else:
            starts = self.mixture.draw(seed=self.seed, epoch=epoch)
        generator.shuffle(starts)
        rows = min(self.data.batch, len(starts))
        return [starts[at : at + rows] for at in range(0, len(starts) - rows + 1, rows)]

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """An endless stream of batches from the given position, prefetched."""
        device, ahead = self.system.device, self.data.prefetch
        return stream_batches(
            self.plan, lambda starts, _: self.batch(starts), StreamPosition(epoch, cursor), device=device, ahead=ahead
        )

    def batch(self, starts: NDArray[np.int64]) -> BlockBatch:
        rows = torch.from_numpy(self.train.rows(starts, self.shape.width))  # (rows, block + 1)
        return BlockBatch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())

    def count(self, batch: BlockBatch) -> int:
        return batch.inputs.numel()

    def split(self, batch: BlockBatch, parts: int) -> Sequence[BlockBatch]:
        return [BlockBatch(*part) for part in zip(batch.inputs.chunk(parts), batch.targets.chunk(parts), strict=True)]

    def loss(self, model: SequenceModel, batch: BlockBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: SequenceModel, inputs: Tensor, targets: Tensor) -> Objective:
        """The loss as a function of tensors only, which can be compiled or captured."""
        step = model.forced(None, None, inputs)
        pad = self.system.target_tokenizer.specials.pad
        smoothed, plain = token_loss(model, step.hidden.flatten(0, 1), targets.flatten(), padding=pad)
        return with_model_losses(Objective(smoothed, {"loss": plain}), step.losses)

    def validate(self, model: SequenceModel) -> Validation:
        figures = evaluate_text(self.system, self.texts.valid, self.data.block, self.config.stride)
        config, samples = self.config, []
        if config.samples:
            search = self.search.model_copy(update={"n_best": config.samples if self.search.method == "sample" else 1})
            options, prompts = GenerationOptions(config.sample_length), [config.prompt]
            samples = self.system.ranks.from_first(lambda: next(iter(generate(self.system, prompts, options, search))).texts)
        return Validation(figures, {}, samples, [Sample(config.prompt, None, text) for text in samples[:MAX_SAMPLES]])


TASK = TaskDefinition(LanguageConfig, TextConfig, TextData, LanguageModelingTask, TextGenerator, format_examples, STARTER)
