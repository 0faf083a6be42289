"""One example as analyses read it: its tokens, the tensors of its teacher-forced pass, and what the pass predicts.

                     source      target_in                outputs
    translation      source </s>  <s> translation          translation </s>, each by the step before it
    language         none        </s> text                text </s>, each by the step before it
    classification   none        <s> text extract         the label, by the last step
    encoders         none        <s> text </s>            the label of the text or of each word, or the tokens of masks
    several labels   none        as above                 for each label whether the text has it: no or yes
    numeric          none        frames                   the label of each frame, a vector of numbers
    captioning       pixels      <s> caption              caption </s>, each by the step before it
    forecasting      none        patches of a window      the forecast of each step: a number, not a choice

A predictor makes it (`Predictor.encode_example`), so no analysis asks for the task. An analysis runs its pass and computes the
logits of its outputs:

    step = example.forward(model)                # hidden states (1, target time, dim)
    example.logits(model, step.hidden)           # (1, outputs, choices)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from heedful.errors import ConfigError
from heedful.nn.decoder_state import Step
from heedful.nn.model import Model, SequenceModel
from heedful.text.tokenizer import Tokenizer

NEXT_TOKEN = "…"  # the token that follows a text, which is unknown
Forward = Callable[[Model, int], Step]  # of a model, over as many copies of an example: `EncodedExample.forward`


class Tokens(NamedTuple):
    """A tokenized text."""

    text: str
    ids: list[int]  # without start and end tokens
    pieces: list[str]  # readable, one for each id
    words: list[int]  # for each piece the index of its word in text.split()


class Outputs(NamedTuple):
    """The predictions of a pass: tokens, a label, or numbers."""

    ids: Tensor  # (outputs,): the given or predicted one of each; 0: it is a number
    pieces: list[str]  # their spelling
    steps: Tensor  # (outputs,): position of target_in that each belongs to; the first one for a text as a whole
    logits: Callable[[Any, Tensor], Tensor]  # a model of the predictor, hidden states of the pass (rows, target time, dim)
    # -> logits of all outputs (rows, outputs, choices)
    spell: Callable[[list[int]], list[str]]  # ids of choices -> texts
    values: Callable[[Any, Tensor], Tensor] | None = None  # of numbers, instead of logits: (rows, outputs)
    unit: str = "nats"  # of the numbers; of log p


@dataclass(frozen=True)
class EncodedExample:
    """A text with its translation, a text, or a text with its label."""

    source: Tokens | None  # None: the model has no source
    target: Tokens
    start: str | None  # spelling of the token before the target; None: it has none
    end: str | None  # spelling of the token after it
    source_ids: Tensor  # (1, source time); (1, 0): no source; of an image (1, height, width, channels)
    target_in: Tensor  # (1, target time), of numeric data (1, target time, features)
    outputs: Outputs
    reads_end: bool = False  # the token after the target is an input, as of an encoder, or the extract token of a classifier
    label: str | None = None  # the outputs as text where they are labels; None: they are tokens
    more: Mapping[str, Tensor] = field(default_factory=dict)  # further inputs of `EncoderModel.encode` by name, (1, …)
    ends_source: bool = True  # an end token follows the source; not where it is the patches of an image

    @property
    def pixels(self) -> Tensor | None:
        """(height, width, channels) of an example that is an image; None: it is none."""
        return next((inputs[0] for inputs in (self.source_ids, self.target_in) if inputs.dim() == 4), None)

    @property
    def source_tokens(self) -> list[str]:
        """The source with its end token."""
        return [] if self.source is None else mark(None, self.spell(self.source), self.source_end)

    @property
    def source_end(self) -> str | None:
        """Spelling of the token after the source; None: it has none."""
        return self.end if self.ends_source else None

    @property
    def target_tokens(self) -> list[str]:
        return self.spell(self.target)

    @property
    def inputs(self) -> list[str]:
        """The tokens of target_in."""
        return mark(self.start, self.target_tokens, self.end if self.reads_end else None)

    @property
    def input_vectors(self) -> list[str]:
        """The tokens of target_in that the input has a vector of; the [CLS] of an image is a part of the model."""
        return self.inputs if self.pixels is None else self.target_tokens

    @property
    def queries(self) -> list[str]:
        """A label for each step over the target: the token that it predicts; of a classifier, the token that it consumes."""
        return self.inputs if self.reads_end else mark(None, self.target_tokens, self.end)

    @property
    def output_tokens(self) -> list[str]:
        """The spelling of the outputs, as `target_tokens` where they are tokens of the target."""
        return self.outputs.pieces if self.reads_end else [*self.target_tokens, *self.outputs.pieces[len(self.target.ids) :]]

    def spell(self, side: Tokens) -> list[str]:
        """The pieces of a side, without the word-start marker if every piece of both sides is a word; patches have none."""
        texts = [one for one in (self.source if self.ends_source else None, self.target) if one is not None]
        are_words = all(piece[:1] == "▁" != piece for one in texts for piece in one.pieces)
        return [piece[1:] for piece in side.pieces] if are_words and side in texts else side.pieces

    def forward(self, model: Model, rows: int = 1) -> Step:
        """The pass of the body of a model over `rows` copies of the example: hidden states (rows, target time, dim)."""
        source, target_in = (tokens.repeat_interleave(rows, 0) for tokens in (self.source_ids, self.target_in))
        forced: Callable[..., Step] = model.base_model.forced  # only encoders have further inputs
        return forced(source, None, target_in, **{name: value.repeat_interleave(rows, 0) for name, value in self.more.items()})

    def logits(self, model: Model, hidden: Tensor) -> Tensor:
        """Hidden states of the pass (rows, target time, dim) -> logits of the outputs (rows, outputs, choices)."""
        if self.outputs.values is not None:
            raise ConfigError(
                "the outputs of this run are numbers without probabilities; expected a run that predicts labels or tokens",
                hint="use attention or saliency",
            )
        return self.outputs.logits(model, hidden)

    def scores(self, model: Model, hidden: Tensor) -> Tensor:
        """What the inputs influence: hidden states of the pass (rows, target time, dim) -> log p of the given outputs, or their
        values if they are numbers (rows, outputs)."""
        values = self.outputs.values
        return self.log_probabilities(model, hidden) if values is None else values(model, hidden)

    def log_probabilities(self, model: Model, hidden: Tensor) -> Tensor:
        """Hidden states of the pass (rows, target time, dim) -> log p of the given outputs (rows, outputs)."""
        logs = self.logits(model, hidden).float().log_softmax(-1)
        ids = self.outputs.ids.clone()  # a tensor of inference mode could not be saved for a backward pass
        return logs.gather(-1, ids.expand(len(logs), -1)[..., None])[..., 0]


def mark(start: str | None, tokens: Sequence[str], end: str | None) -> list[str]:
    """The tokens with the start and the end token, where there are any."""
    return [token for token in (start, *tokens, end) if token is not None]


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


def token_outputs(tokenizer: Tokenizer, ids: Tensor, steps: Tensor) -> Outputs:
    """Outputs of a model that predicts a token at each step."""

    def logits(model: SequenceModel, hidden: Tensor) -> Tensor:
        return model.project(hidden[:, steps.clone()])  # (rows, outputs, vocab)

    return Outputs(ids, tokenizer.pieces(ids.tolist()), steps, logits, tokenizer.pieces)
