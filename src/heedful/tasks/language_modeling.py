"""Language modeling: predict the next token at every position of a text.

    loss                 -log p(token | previous tokens of its block) in nats, mean over tokens
    perplexity           exp(loss)
    word_perplexity      exp(nats of the whole text / its words), the ends of lines counted as words: comparable between
                         vocabularies, and the same as perplexity where tokens are words
    bits_per_character   nats of the whole text / characters / log 2; bits_per_byte likewise

Every epoch cuts the text into blocks at another offset and shuffles them. Evaluation scores the whole text with a sliding
window of one block that advances by `stride` tokens. Each token is scored once, in the first window that contains it, so
with a stride shorter than the block every token but the first ones has a context of at least block - stride tokens.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from heedful.data.corpus_text import TextConfig, TextStore, check_passage, open_text, passages, read_passage
from heedful.data.report import CheckReport
from heedful.data.sources import refuse_streams
from heedful.errors import DataError
from heedful.models import SequenceModel
from heedful.schema import Config, Size, ZeroOrCount, ZeroOrSize
from heedful.search import SearchConfig
from heedful.tasks.batch_stream import StreamPosition, stream_batches
from heedful.tasks.generate import generate
from heedful.tasks.objectives import token_loss, with_model_losses
from heedful.tasks.translate import System
from heedful.text.tokenizer import Tokenizer
from heedful.training.loop import StreamedBatch, Validation
from heedful.training.train_state import Direction
from heedful.training.update import Objective


class LanguageConfig(Config):
    form: ClassVar[str] = "text"  # of the data
    unit: ClassVar[str] = "tokens"
    metrics: ClassVar[Mapping[str, Direction]] = {
        "loss": "lower",
        "perplexity": "lower",
        "word_perplexity": "lower",
        "bits_per_character": "lower",
        "bits_per_byte": "lower",
    }
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


class BlockBatch(NamedTuple):
    """Blocks of text and the next token at each position."""

    inputs: Tensor  # (rows, block)
    targets: Tensor  # (rows, block)

    def pin(self) -> BlockBatch:
        return BlockBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> BlockBatch:
        return BlockBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


class TextSplits(NamedTuple):
    train: TextStore
    valid: TextStore


class LanguageModelingTask:
    def __init__(self, config: LanguageConfig, data: TextConfig, search: SearchConfig, seed: int) -> None:
        self.config, self.data, self.search, self.seed = config, data, search, seed

    def check(self) -> CheckReport:
        """Read every file once; report the unusable lines and the number of characters."""
        refuse_streams(self.files())
        splits = ("train", "valid", "test")
        return CheckReport(tuple(check_passage(split, passage) for split in splits for passage in passages(self.data, split)))

    def files(self) -> list[Path]:
        paths = [passage.path for split in ("train", "valid", "test") for passage in passages(self.data, split)]
        return list(dict.fromkeys(paths))

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The lines that the tokenizer is trained on; there is no source side."""
        for passage in passages(self.data, "train") if side == "target" else ():
            yield from read_passage(passage)

    @property
    def tags(self) -> list[str]:
        return []

    def open_corpora(self, tokenizers: tuple[Tokenizer, Tokenizer], report: CheckReport, *, keep_text: bool) -> TextSplits:
        train, valid = (open_text(passages(self.data, split), tokenizers[1]) for split in ("train", "valid"))
        if len(train.ids) <= self.data.block:
            raise DataError(
                f"the training text has {len(train.ids):,} tokens; expected more than data.block, which is {self.data.block}"
            )
        return TextSplits(train, valid)

    def bind(self, corpora: TextSplits, system: System, dropout: float = 0.0) -> LanguageModelingTask:
        self.texts, self.system = corpora, system
        return self

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """The model to train: unchanged."""
        return model

    def statistics(self) -> dict[str, float]:
        """Sizes of the training data and of an epoch."""
        train, plan = self.texts.train, self.plan(0)
        return {
            "lines": train.lines,
            "characters": train.characters,
            "batches_per_epoch": len(plan),
            "tokens_per_epoch": sum(len(batch) for batch in plan) * self.data.block,
        }

    def describe(self) -> str:
        sizes = self.statistics()
        return (
            f"{len(self.texts.train.ids):,} tokens of {sizes['characters']:,} characters in "
            f"{sizes['batches_per_epoch']:,} batches per epoch, {len(self.texts.valid.ids):,} validation tokens"
        )

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        """The first token of the blocks of each batch: a pure function of the seed and the epoch. All batches have the same
        shape; the few blocks that are left over differ in every epoch."""
        generator = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        block, tokens = self.data.block, len(self.texts.train.ids)
        starts = np.arange(generator.integers(min(block, tokens - block)), tokens - block, block)
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
        positions = starts[:, None] + np.arange(self.data.block + 1)
        rows = torch.from_numpy(self.texts.train.ids[positions].astype(np.int64))  # (rows, block + 1)
        return BlockBatch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())

    def count(self, batch: BlockBatch) -> int:
        return batch.inputs.numel()

    def split(self, batch: BlockBatch, parts: int) -> Sequence[BlockBatch]:
        return [BlockBatch(*part) for part in zip(batch.inputs.chunk(parts), batch.targets.chunk(parts), strict=True)]

    def loss(self, model: SequenceModel, batch: BlockBatch) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: SequenceModel, inputs: Tensor, targets: Tensor) -> Objective:
        """The loss as a function of tensors only, which can be compiled or captured."""
        step = model.step(inputs, model.start(inputs[:, :0], None, room=0))
        pad = self.system.target_tokenizer.specials.pad
        smoothed, plain = token_loss(model, step.hidden.flatten(0, 1), targets.flatten(), padding=pad)
        return with_model_losses(Objective(smoothed, {"loss": plain}), step.losses)

    def validate(self, model: SequenceModel) -> Validation:
        figures = evaluate_text(self.system, self.texts.valid, self.data.block, self.config.stride)
        config, samples = self.config, []
        if config.samples:
            search = self.search.model_copy(update={"n_best": config.samples if self.search.method == "sample" else 1})
            samples = generate(self.system, config.prompt, config.sample_length, search)
        return Validation(figures, {}, samples)

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        usage = f'generator = heedful.load("{folder}")\nprint(generator.generate("…", length=200))'
        return usage, f"The context is at most {self.data.block} tokens. Generated text is plausible, but not necessarily true."


def windows(tokens: int, block: int, stride: int) -> list[tuple[int, int]]:
    """(first token, first token that is scored) of each window: each token is scored once."""
    spans, done = [(0, 0)], min(block, tokens)
    while done < tokens:
        end = min(done + stride, tokens)
        spans.append((end - block, done))
        done = end
    return spans


@torch.inference_mode()
def text_loss(system: System, ids: NDArray[Any], block: int, stride: int) -> float:
    """-log p of a whole text in nats, after the end of a line."""
    (model,) = system.models
    labels = torch.from_numpy(ids.astype(np.int64))  # (tokens,)
    previous = torch.cat((torch.tensor([system.target_tokenizer.specials.end]), labels[:-1]))
    block = min(block, len(labels))
    spans = windows(len(labels), block, min(stride or block, block))
    rows = max(1, system.scored_tokens // block)
    total = 0.0
    for at in range(0, len(spans), rows):
        starts, firsts = (torch.tensor(column) for column in zip(*spans[at : at + rows], strict=True))
        positions = starts[:, None] + torch.arange(block)  # (rows, block)
        inputs, targets = previous[positions].to(system.device), labels[positions].to(system.device)
        scored = (positions >= firsts[:, None]).to(system.device)
        tail = block - int((firsts - starts).min())  # tokens at the end of a window that are scored, at most
        hidden = model.step(inputs, model.start(inputs[:, :0], None, room=0)).hidden[:, -tail:]
        scores = model.project(hidden).float().log_softmax(-1).gather(-1, targets[:, -tail:, None]).squeeze(-1)
        total -= float((scores * scored[:, -tail:]).sum(dtype=torch.float64))
    return total


def evaluate_text(system: System, text: TextStore, block: int, stride: int) -> dict[str, float]:
    """The loss of a text, and the perplexities and bits that follow from it."""
    nats = text_loss(system, text.ids, block, stride)
    if not math.isfinite(nats):
        raise system.nonfinite_error("a token of the text")
    return {
        "loss": nats / len(text.ids),
        "perplexity": math.exp(min(nats / len(text.ids), 700.0)),
        "word_perplexity": math.exp(min(nats / (text.words + text.lines), 700.0)),
        "bits_per_character": nats / text.characters / math.log(2),
        "bits_per_byte": nats / text.bytes / math.log(2),
    }
