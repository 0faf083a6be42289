"""Language modeling: say what comes next, everywhere in a text.

    loss                 -log p(token | all tokens before it in its block), in nats, the mean over tokens
    perplexity           exp(loss)
    word_perplexity      exp(nats of the whole text / its words), the ends of lines counted as words: comparable between
                         vocabularies, and the same as perplexity where tokens are words
    bits_per_character   nats of the whole text / characters / log 2; bits_per_byte likewise

An epoch cuts the text into blocks from another place, and shuffles them. Scores are of whole texts: windows of a block
advance by `stride` tokens, and each token is scored once, in the first window that holds it, so with a stride shorter
than the block every token but the first ones has at least block - stride tokens before it.
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

from heedful.data.corpus_text import TextConfig, TextStore, open_text, passages, read_passage
from heedful.data.report import Notes
from heedful.data.sources import refuse_streams
from heedful.errors import DataError
from heedful.models import SequenceModel
from heedful.schema import Config, Size, ZeroOrCount, ZeroOrSize
from heedful.search import SearchConfig
from heedful.tasks.batch_stream import Place, feed
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


class Blocks(NamedTuple):
    """Some sequences, and what should be said at each of their tokens."""

    inputs: Tensor  # (rows, block)
    targets: Tensor  # (rows, block)

    def pin(self) -> Blocks:
        return Blocks(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> Blocks:
        return Blocks(*(tensor.to(device, non_blocking=True) for tensor in self))


class Texts(NamedTuple):
    train: TextStore
    valid: TextStore


class LanguageModelingTask:
    def __init__(self, config: LanguageConfig, data: TextConfig, search: SearchConfig, seed: int) -> None:
        self.config, self.data, self.search, self.seed = config, data, search, seed

    def check(self) -> Notes:
        """Reads everything once."""
        refuse_streams(self.files())
        found = []
        for split in ("train", "valid", "test"):
            for passage in passages(self.data, split):
                counts = np.zeros(2, np.int64)
                for line in read_passage(passage):
                    counts += (1, len(line) + 1)
                if not counts[0]:
                    raise DataError(f"{passage.path} has no line for {split}", hint="change data.held_out")
                found.append(f"{split}: {passage.path}, {counts[0]:,} lines, {counts[1]:,} characters")
        return Notes(found)

    def files(self) -> list[Path]:
        every = [passage.path for split in ("train", "valid", "test") for passage in passages(self.data, split)]
        return list(dict.fromkeys(every))

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """What the vocabulary is learned from; there is no source."""
        for passage in passages(self.data, "train") if side == "target" else ():
            yield from read_passage(passage)

    @property
    def tags(self) -> list[str]:
        return []

    def open_corpora(self, tokenizers: tuple[Tokenizer, Tokenizer], report: Notes, *, keep_text: bool) -> Texts:
        train, valid = (open_text(passages(self.data, split), tokenizers[1]) for split in ("train", "valid"))
        if len(train.ids) <= self.data.block:
            raise DataError(
                f"the training text has {len(train.ids):,} tokens; expected more than data.block, which is {self.data.block}"
            )
        return Texts(train, valid)

    def bind(self, corpora: Texts, system: System, dropout: float = 0.0) -> LanguageModelingTask:
        self.texts, self.system = corpora, system
        return self

    def equip(self, model: nn.Module) -> nn.Module:
        """The model as it is trained: nothing is added."""
        return model

    def facts(self) -> dict[str, float]:
        train, plan = self.texts.train, self.plan(0)
        return {
            "lines": train.lines,
            "characters": train.characters,
            "batches_per_epoch": len(plan),
            "tokens_per_epoch": sum(len(batch) for batch in plan) * self.data.block,
        }

    def describe(self) -> str:
        facts = self.facts()
        return (
            f"{len(self.texts.train.ids):,} tokens of {facts['characters']:,} characters in "
            f"{facts['batches_per_epoch']:,} batches an epoch, {len(self.texts.valid.ids):,} tokens to validate on"
        )

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        """Where the blocks of each batch begin: a pure function of the seed and the epoch. Batches are all of one size, so
        that one shape occurs; a few blocks are left over, others in every epoch."""
        draw = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        block, tokens = self.data.block, len(self.texts.train.ids)
        begins = np.arange(draw.integers(min(block, tokens - block)), tokens - block, block)
        draw.shuffle(begins)
        rows = min(self.data.batch, len(begins))
        return [begins[at : at + rows] for at in range(0, len(begins) - rows + 1, rows)]

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        """Batches without end, from the given place on, prepared ahead of need."""
        device, ahead = self.system.device, self.data.prefetch
        return feed(self.plan, lambda begins, _: self.batch(begins), Place(epoch, cursor), device=device, ahead=ahead)

    def batch(self, begins: NDArray[np.int64]) -> Blocks:
        places = begins[:, None] + np.arange(self.data.block + 1)
        rows = torch.from_numpy(self.texts.train.ids[places].astype(np.int64))  # (rows, block + 1)
        return Blocks(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())

    def count(self, batch: Blocks) -> int:
        return batch.inputs.numel()

    def split(self, batch: Blocks, parts: int) -> Sequence[Blocks]:
        return [Blocks(*both) for both in zip(batch.inputs.chunk(parts), batch.targets.chunk(parts), strict=True)]

    def loss(self, model: SequenceModel, batch: Blocks) -> Objective:
        return self.objective(model, *batch.to(self.system.device))

    def objective(self, model: SequenceModel, inputs: Tensor, targets: Tensor) -> Objective:
        """The loss as a function of tensors alone, which can be compiled and captured."""
        step = model.step(inputs, model.start(inputs[:, :0], None, room=0))
        pad = self.system.target_tokenizer.specials.pad
        smoothed, plain = token_loss(model, step.hidden.flatten(0, 1), targets.flatten(), padding=pad)
        return with_model_losses(Objective(smoothed, {"loss": plain}), step.losses)

    def validate(self, model: SequenceModel) -> Validation:
        figures = evaluate_text(self.system, self.texts.valid, self.data.block, self.config.stride)
        config, samples = self.config, []
        if config.samples:
            several = self.search.model_copy(update={"n_best": config.samples if self.search.method == "sample" else 1})
            samples = generate(self.system, config.prompt, config.sample_length, several)
        return Validation(figures, {}, samples)

    def advice(self, folder: str) -> tuple[str, str]:
        """How the model is used and what it cannot do, for its card."""
        usage = f'writer = heedful.load("{folder}")\nprint(writer.generate("…", length=200))'
        return usage, f"It saw at most {self.data.block} tokens at a time, and what it writes is likely, not true."


def windows(tokens: int, block: int, stride: int) -> list[tuple[int, int]]:
    """(where a window begins, the first token that it scores): each token is scored once."""
    found, done = [(0, 0)], min(block, tokens)
    while done < tokens:
        end = min(done + stride, tokens)
        found.append((end - block, done))
        done = end
    return found


@torch.inference_mode()
def token_losses(system: System, ids: NDArray[Any], block: int, stride: int) -> float:
    """-log p of a whole text in nats; what comes before it is the end of a line."""
    (model,) = system.models
    said = torch.from_numpy(ids.astype(np.int64))  # (tokens,)
    given = torch.cat((torch.tensor([system.target_tokenizer.specials.end]), said[:-1]))
    block = min(block, len(said))
    planned = windows(len(said), block, min(stride or block, block))
    rows = max(1, system.scored_tokens // block)
    total = 0.0
    for at in range(0, len(planned), rows):
        begins, firsts = (torch.tensor(column) for column in zip(*planned[at : at + rows], strict=True))
        places = begins[:, None] + torch.arange(block)  # (rows, block)
        inputs, targets = given[places].to(system.device), said[places].to(system.device)
        fresh = (places >= firsts[:, None]).to(system.device)
        tail = block - int((firsts - begins).min())  # no window of the batch scores more
        hidden = model.step(inputs, model.start(inputs[:, :0], None, room=0)).hidden[:, -tail:]
        scores = model.project(hidden).float().log_softmax(-1).gather(-1, targets[:, -tail:, None]).squeeze(-1)
        total -= float((scores * fresh[:, -tail:]).sum(dtype=torch.float64))
    return total


def evaluate_text(system: System, text: TextStore, block: int, stride: int) -> dict[str, float]:
    nats = token_losses(system, text.ids, block, stride)
    if not math.isfinite(nats):
        raise system.not_finite("some token of the text")
    return {
        "loss": nats / len(text.ids),
        "perplexity": math.exp(min(nats / len(text.ids), 700.0)),
        "word_perplexity": math.exp(min(nats / (text.words + text.lines), 700.0)),
        "bits_per_character": nats / text.characters / math.log(2),
        "bits_per_byte": nats / text.bytes / math.log(2),
    }
