"""One example as analyses read it: its tokens, the tensors of its teacher-forced pass, and what the pass predicts.

                     source      target_in                outputs
    translation      source </s>  <s> translation          translation </s>, each by the step before it
    language         none        </s> text                text </s>, each by the step before it
    classification   none        <s> text extract         the label, by the last step

A predictor makes it (`Predictor.encode_example`), so no analysis asks for the task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from torch import Tensor

from heedful.nn.model import Model, SequenceModel
from heedful.text.tokenizer import Tokenizer

NEXT_TOKEN = "…"  # the token that follows a text, which is unknown


class Tokens(NamedTuple):
    """A tokenized text."""

    text: str
    ids: list[int]  # without start and end tokens
    pieces: list[str]  # readable, one for each id
    words: list[int]  # for each piece the index of its word in text.split()


class Outputs(NamedTuple):
    """The predictions of a pass: tokens, or a label."""

    ids: Tensor  # (outputs,): the given or predicted one of each
    pieces: list[str]  # their spelling
    steps: Tensor  # (outputs,): position of target_in whose hidden state predicts each
    project: Callable[[Any, Tensor], Tensor]  # a model of the predictor, hidden states (…, dim) -> logits (…, choices)
    spell: Callable[[list[int]], list[str]]  # ids of choices -> texts


@dataclass(frozen=True)
class EncodedExample:
    """A text with its translation, a text, or a text with its label."""

    source: Tokens | None  # None: the model has no source
    target: Tokens
    start: str  # spelling of the token before the target
    end: str  # spelling of the token after it
    source_ids: Tensor  # (1, source time); (1, 0): no source
    target_in: Tensor  # (1, target time)
    outputs: Outputs
    reads_end: bool = False  # the token after the target is an input, as the extract token of a classifier

    @property
    def source_tokens(self) -> list[str]:
        """The source with its end token."""
        return [] if self.source is None else [*self.spell(self.source), self.end]

    @property
    def target_tokens(self) -> list[str]:
        return self.spell(self.target)

    @property
    def inputs(self) -> list[str]:
        """The tokens of target_in."""
        return [self.start, *self.target_tokens, *([self.end] if self.reads_end else [])]

    @property
    def queries(self) -> list[str]:
        """A label for each step over the target: the token that it predicts; of a classifier, the token that it consumes."""
        return self.inputs if self.reads_end else [*self.target_tokens, self.end]

    @property
    def output_tokens(self) -> list[str]:
        """The spelling of the outputs, as `target_tokens` where they are tokens of the target."""
        return self.outputs.pieces if self.reads_end else [*self.target_tokens, *self.outputs.pieces[len(self.target.ids) :]]

    def spell(self, side: Tokens) -> list[str]:
        """The pieces of a side, without the word-start marker if every piece of both sides is a word."""
        pieces = [*(self.source.pieces if self.source is not None else ()), *self.target.pieces]
        return [piece[1:] for piece in side.pieces] if all(piece[:1] == "▁" != piece for piece in pieces) else side.pieces

    def logits(self, model: Model, hidden: Tensor) -> Tensor:
        """Hidden states of the pass (rows, target time, dim) -> logits of the outputs (rows, outputs, choices)."""
        return self.outputs.project(model, hidden[:, self.outputs.steps])


class Decoded(NamedTuple):
    """The output that a model decodes for an example."""

    text: str
    tokens: list[int]
    log_probability: float
    score: float


class TokenLoss(NamedTuple):
    """The cross-entropy that a task trains with."""

    smoothing: float | None = None  # label smoothing; None: the task has none
    share: str = "all"  # over which tokens: all, others or words, see nn/losses.py
    omitted: Sequence[str] = ()  # further terms of the loss, as "adds 0.5 x the language modeling loss"


def tokens_from_ids(tokenizer: Tokenizer, text: str, ids: list[int]) -> Tokens:
    return Tokens(text, ids, tokenizer.pieces(ids), tokenizer.word_of(ids))


def base_model(model: Model) -> SequenceModel:
    """The model that computes the pass, without the head of a task."""
    return cast(SequenceModel, model.base_model)


def token_outputs(tokenizer: Tokenizer, ids: Tensor, steps: Tensor) -> Outputs:
    """Outputs of a model that predicts a token at each step."""

    def project(model: SequenceModel, hidden: Tensor) -> Tensor:
        return model.project(hidden)

    return Outputs(ids, tokenizer.pieces(ids.tolist()), steps, project, tokenizer.pieces)
