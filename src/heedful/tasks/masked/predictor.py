"""A trained masked language model: heedful.load("runs/masked-roberta-reviews").predict("the [MASK] sat")."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast
from zlib import crc32

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from heedful.config.given import ARGUMENT
from heedful.data.corpus_text import passages, read_passage
from heedful.data.input_lines import checked_chunks, read_texts, refuse_too_long
from heedful.data.samples import Sample
from heedful.data.text_store import TextStore, decode_text, encode_text, open_text
from heedful.errors import ConfigError, DataError
from heedful.nn.model import inference_context
from heedful.search import SearchConfig
from heedful.tasks.batches import pad
from heedful.tasks.encoded_example import EncodedExample, token_outputs, tokens_from_ids
from heedful.tasks.forced import BATCH, PADDING, EncodedSample, ForcedBatch, pieces_of
from heedful.tasks.masked.command import PredictOptions
from heedful.tasks.masked.data import MaskedData
from heedful.tasks.masked.evaluate import KEY, MaskedBatch, evaluate_text, evaluation_batches, most_frequent
from heedful.tasks.masked.masking import Masking, make_masking, mask_rows
from heedful.tasks.masked.model import MaskedModel
from heedful.tasks.predictor import (
    Figures,
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
from heedful.text.specials import MASK
from heedful.text.tokenizer import Tokenizer

ALIAS = "[MASK]"  # of the mask token, in input texts
BEFORE_PUNCTUATION = re.compile(rf"(?<={MASK})(?=[^\w\s<])")
WORD = "a"  # stands for the word that a mask hides
CHUNK = 1024  # texts that are sorted by length and predicted together


class TokenProbability(NamedTuple):
    token: str
    probability: float


class FilledText(NamedTuple):
    """A text with its masks filled, and the most probable tokens of each mask."""

    given: str
    text: str
    masks: list[list[TokenProbability]]

    def rows(self) -> list[str]:
        """The filled text; with several tokens for each mask also these, one line per mask."""
        if max(map(len, self.masks)) == 1:
            return [self.text]
        tokens = ["  ".join(f"{token} {probability:.1%}" for token, probability in mask) for mask in self.masks]
        return [self.text, *(f"  {ALIAS} {number}: {line}" for number, line in enumerate(tokens, start=1))]

    def to_dict(self) -> dict[str, Any]:
        return {"given": self.given, "text": self.text, "masks": [[one._asdict() for one in mask] for mask in self.masks]}


class MaskedText(NamedTuple):
    """An input text and its tokens."""

    text: str
    ids: list[int]


class MaskFiller(Predictor):
    """A trained masked language model.

    >>> filler = heedful.MaskFiller.load(masked_run)
    >>> (prediction,) = filler.predictions(["the [MASK] sees"], top=3)
    >>> [len(tokens) for tokens in prediction.masks]
    [3]
    """

    phases: ClassVar[tuple[str, ...]] = ("training step", "prediction")
    predicts_input = True

    @property
    def masked_model(self) -> MaskedModel:
        """The model with its head."""
        return cast(MaskedModel, self.model)

    @cached_property
    def masking(self) -> Masking:
        return make_masking(self.run.task, self.system.target_tokenizer)

    @property
    def data(self) -> MaskedData:
        return MaskedData(self.run)

    def predictions(self, texts: Iterable[str], **options: Any) -> Iterator[FilledText]:
        """Yield the filled texts, with the `top` most probable tokens of each mask, default: 1."""
        top = options.pop("top", PredictOptions.top)
        if options:
            raise ConfigError(f"{ARGUMENT}: given {next(iter(options))!r}, but task 'masked' has one option: top")
        if not isinstance(top, int) or top < 1:
            raise ConfigError(f"{ARGUMENT}: top: given {top!r}, expected an integer from 1")
        remaining = iter(texts)
        return self.fill_chunks(iter(lambda: list(islice(remaining, CHUNK)), []), top)

    def predict_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        config: SearchConfig,
        options: PredictOptions,
        unknown: dict[str, int],
        first: int = 1,
    ) -> Iterator[FilledText]:
        read = ([line.replace(ALIAS, MASK) for line in chunk] for chunk in chunks)
        return self.fill_chunks(note_unknown_in_chunks(read, self.system.target_tokenizer, unknown, first), options.top, first)

    def fill_chunks(self, chunks: Iterable[Sequence[str]], top: int, first: int = 1) -> Iterator[FilledText]:
        for number, texts in checked_chunks(chunks, self.masked_text, first):
            yield from self.fill(texts, number, top)

    def masked_text(self, text: str, number: int) -> MaskedText:
        """A text with its tokens; an error if it is too long or has no mask."""
        ids = self.encode(text, f"text {number}")
        if self.masking.mask not in ids:
            raise DataError(f"text {number}, {text!r:.40}, has no mask; expected at least one {ALIAS}")
        return MaskedText(text, ids)

    def fill(self, texts: Sequence[MaskedText], first: int, top: int) -> list[FilledText]:
        """Predict the masks of texts, in batches of similar length; first: the number of the first one."""
        system, tokenizer, masking = self.system, self.system.target_tokenizer, self.masking
        rows = [one.ids for one in texts]
        filled: dict[int, FilledText] = {}
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]), reverse=True)
        for chosen in batches_of(order, lambda i: len(rows[i]), system.scored_tokens):
            tokens = pad([rows[i] for i in chosen], masking.pad).to(system.device)  # (rows, time)
            row, time = torch.where(tokens == masking.mask)  # (masks,), (masks,)
            probabilities = self.probabilities(tokens, row, time)
            if not bool(probabilities.isfinite().all()):
                raise system.nonfinite_error(f"text {first + chosen[0]}")
            best = probabilities.topk(min(top, int((~masking.special).sum())))  # (masks, top)
            tokens[row, time] = best.indices[:, 0]
            for at, i in enumerate(chosen):
                mine = [
                    [TokenProbability(self.spell(id), value) for id, value in zip(ids, values, strict=True)]
                    for ids, values in zip(best.indices[row == at].tolist(), best.values[row == at].tolist(), strict=True)
                ]
                text = decode_text(tokenizer, tokens[at, 1 : len(rows[i]) - 1].tolist())
                filled[i] = FilledText(texts[i].text.replace(MASK, ALIAS), text, mine)
        return [filled[i] for i in range(len(rows))]

    def probabilities(self, tokens: Tensor, row: Tensor, time: Tensor) -> Tensor:
        """tokens (rows, time), row and time (masks,): indices of masks -> probabilities of the tokens, (masks, vocab); those of
        special tokens, which no mask hides, are 0."""
        mask = None if len(tokens) == 1 else tokens != self.masking.pad
        with inference_context(self.model):
            hidden = self.masked_model.body.encode(tokens, mask)[row, time]  # (masks, dim)
            special = torch.from_numpy(self.masking.special).to(tokens.device)
            return self.masked_model.project(hidden).float().softmax(-1).masked_fill(special, 0.0)

    def encode(self, text: str, place: str) -> list[int]:
        """[CLS] text [SEP]; an error if it is longer than the sequences of the training."""
        refuse_too_long(text, place)
        tokenizer, most = self.system.target_tokenizer, self.run.data.block
        row = [tokenizer.specials.start, *encode_masked(tokenizer, text.replace(ALIAS, MASK)), tokenizer.specials.end]
        if len(row) > most:
            raise DataError(
                f"{place} has {len(row) - 2} tokens; expected at most {most - 2}, since data.block is {most}",
                hint="give a shorter text",
            )
        return row

    def spell(self, id: int) -> str:
        """A token as text; its piece where it is no text of its own, such as a part of a character."""
        tokenizer = self.system.target_tokenizer
        text = tokenizer.decode([id]).strip()
        return text if text and "\N{REPLACEMENT CHARACTER}" not in text else tokenizer.pieces([id])[0]

    def unknown_words(self, text: str) -> list[str]:
        return super().unknown_words(text.replace(ALIAS, MASK))

    def text_of(self, split: str) -> TextStore:
        parts = passages(self.run.data, split)
        if not parts:
            raise missing_split_error(split)
        return open_text(parts, self.system.target_tokenizer)

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Loss, perplexity and accuracy on a split of the run's data, and the accuracy of always predicting the most frequent
        token of the training text."""
        check_split(self.run.data, split)
        text = self.text_of(split)
        common = most_frequent(self.text_of("train").ids, self.masking)
        return evaluate_text(self.data, self.system, text, common)

    def report(self, split: str | None, options: Any, *, load: Loader, search: Searcher) -> Figures:
        return Figures(split or "test", self.evaluate(split or "test"))

    def validate(self) -> ValidationResult:
        return ValidationResult(evaluate_text(self.data, self.system, self.text_of("valid")), None, None, {})

    def encode_example(self, text: str, target: str | None = None, config: SearchConfig | None = None) -> EncodedExample:
        """The text with its masks as outputs, each the most probable token. The outputs of a text without a mask are its own
        tokens, predicted in place, where the model reads them: masking one at a time would need a pass for each."""
        refuse_empty(text)
        if target is not None:
            raise ConfigError("a target has no effect for a masked language model", hint="remove the target")
        if config is not None:
            raise ConfigError("search options have no effect on a masked language model, which decodes no text")
        tokenizer, device = self.system.target_tokenizer, self.system.device
        row = self.encode(text, "the text")
        target_in = torch.tensor([row], device=device)
        row_index, masks = torch.where(target_in == self.masking.mask)  # (masks,), (masks,)
        steps = masks if len(masks) else torch.arange(1, len(row) - 1, device=device)
        ids = self.probabilities(target_in, row_index, masks).argmax(-1) if len(masks) else target_in[0, steps]  # (outputs,)
        outputs = token_outputs(tokenizer, ids, steps)
        start, end = tokenizer.pieces([row[0], row[-1]])
        tokens = tokens_from_ids(tokenizer, text.replace(ALIAS, MASK), row[1:-1])
        return EncodedExample(None, tokens, start, end, target_in[:, :0], target_in, outputs, reads_end=True)

    def replace_input(self, example: EncodedExample, text: str) -> EncodedExample:
        """Another text with as many masks."""
        other, ids = self.encode_example(text), example.outputs.ids
        if len(other.outputs.ids) != len(ids):
            raise ConfigError(f"given a text with {len(other.outputs.ids)} masks, expected {len(ids)}, as in the first text")
        return replace(other, outputs=token_outputs(self.system.target_tokenizer, ids, other.outputs.steps))

    def training_losses(self, count: int) -> Iterator[Callable[[], Tensor]]:
        """Of the first `count` sequences of the training text, with the masks of evaluation."""
        left = count
        for batch in evaluation_batches(self.data, self.text_of("train").ids, self.system):
            taken = batch.rows(0, left).to(self.system.device)
            yield partial(row_losses, self.masked_model, taken, self.masking.pad)
            left -= len(taken.tokens)
            if not left:
                return

    def sample_texts(self, split: str) -> Iterator[Sample]:
        """The lines that are not empty."""
        lines = chain.from_iterable(map(read_passage, passages(self.run.data, split)))
        return (self.sample_of(line) for line in lines if line.strip())

    def read_samples(self, path: Path) -> Iterator[Sample]:
        """One text per line."""
        return map(self.sample_of, read_texts(path))

    def forced_batches(self, samples: Iterable[Sample]) -> Iterator[ForcedBatch]:
        """Texts with tokens chosen and hidden as in evaluation; the losses are those of the chosen tokens. Texts that are
        empty, too long, unknown as a whole, or have tokens across word boundaries are left out."""
        tokenizer, longest = self.system.target_tokenizer, self.run.data.block
        texts = (pieces_of(tokenizer, sample.target or "", sample.target_arcs, longest - 1) for sample in samples)
        known = (pieces for pieces in texts if pieces is not None and not self.masking.special[pieces.ids].all())
        rows = [EncodedSample(None, pieces) for pieces in known]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].target.ids), reverse=True)
        for chosen in batches_of(order, lambda i: len(rows[i].target.ids) + 2, BATCH):
            batch = self.masked_alone([rows[i].target.ids for i in chosen]).to(self.system.device)
            targets = batch.targets.masked_fill(batch.targets == self.masking.pad, PADDING)
            logits = partial(token_logits, self.masked_model, batch)
            yield ForcedBatch([rows[i] for i in chosen], logits, targets, 0, batch.tokens.shape[1])

    def masked_alone(self, texts: Sequence[Sequence[int]]) -> MaskedBatch:
        """Texts between start and end token. The masks of each depend on its tokens only, not on the others of the batch."""
        marks = self.system.target_tokenizer.specials
        rows = [np.array([[marks.start, *ids, marks.end]]) for ids in texts]
        masked = [mask_rows(row, KEY, np.array([crc32(row.tobytes())]), self.masking) for row in rows]
        tokens, targets = (pad([getattr(one, name)[0].tolist() for one in masked], marks.pad) for name in ("tokens", "targets"))
        places = pad([one.places[0].tolist() for one in masked], 0)  # (rows, slots)
        mask = torch.arange(tokens.shape[1]) < torch.tensor([[row.shape[1]] for row in rows])  # (rows, time)
        return MaskedBatch(tokens, places, targets, mask, None, None, torch.ones(len(tokens)))


def encode_masked(tokenizer: Tokenizer, text: str) -> list[int]:
    """`encode_text`, with punctuation directly after a mask encoded as after a word, where no space precedes it."""
    first, *others = BEFORE_PUNCTUATION.split(text)
    ids, word = encode_text(tokenizer, first), tokenizer.encode(WORD)
    for part in others:
        after_word = encode_text(tokenizer, WORD + part)
        is_separate = after_word[: len(word)] == word != after_word
        ids += after_word[len(word) :] if is_separate else encode_text(tokenizer, part)
    return ids


def token_logits(model: MaskedModel, batch: MaskedBatch) -> Tensor:
    """Logits of the chosen tokens, (rows, slots, vocab)."""
    return model(batch.tokens, batch.places, batch.mask, batch.segments)[0]


def row_losses(model: MaskedModel, batch: MaskedBatch, pad: int) -> Tensor:
    """-log p of the chosen tokens of each sequence, (rows,)."""
    logits = token_logits(model, batch).float().transpose(1, 2)  # (rows, vocab, slots)
    return functional.cross_entropy(logits, batch.targets, ignore_index=pad, reduction="none").sum(-1)
