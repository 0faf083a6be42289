"""A document with its words and sentences shaded by the weights of attention pooling (as in Yang et al., 2016).

    shade of a word = weight of the word in its sentence x sqrt(weight of the sentence)

The square root keeps the words of less important sentences visible. A model of one level (a classifier with
task.pooling = "attention") weights all words of the text at once; then the shade of a word is its weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from heedful.errors import ConfigError
from heedful.inspection.drawing.document_figure import ShadedLine, ShadedWord, document_figure
from heedful.inspection.drawing.figure import Figure
from heedful.inspection.drawing.text_heatmap import printable_token, wrap_text
from heedful.inspection.page.blocks import Block, Pictures, Table, Words, sentence
from heedful.inspection.result import Result
from heedful.nn.hooks import record
from heedful.nn.model import Model, inference_context
from heedful.search import SearchConfig
from heedful.tasks.encoded_example import EncodedExample
from heedful.tasks.predictor import Predictor

SHADES = " ░▒▓█"
BAR = 10  # characters of a sentence weight of 1
WIDTH = 100  # characters of a line of words
TOP = 3  # words listed for each sentence


class WordWeight(NamedTuple):
    word: str
    weight: float  # in its sentence; of a word of several tokens, their sum
    shade: float  # weight x sqrt(weight of the sentence)


class SentenceWeight(NamedTuple):
    weight: float | None  # None: the model has no level of sentences
    words: list[WordWeight]


@dataclass(frozen=True)
class DocumentResult(Result):
    """The result of `document`.

    >>> from heedful.inspection.analyses.document import SentenceWeight, WordWeight
    >>> words = [WordWeight("a", 0.2, 0.16), WordWeight("film", 0.8, 0.64)]
    >>> result = heedful.inspection.DocumentResult("a film", "good", 0.9, None, [SentenceWeight(0.64, words)])
    >>> result.sentences[0].words[1].word
    'film'
    """

    document: str
    predicted: str  # label, or several
    probability: float  # of this label; with several labels, of all of these and no others
    gold: str | None  # the correct label, or labels, if given
    sentences: list[SentenceWeight]

    @property
    def title(self) -> str:
        return "Words and sentences by the weights of attention pooling" if self.has_sentences else "Words by their weights"

    @property
    def subject(self) -> Sequence[str]:
        return [printable_token(self.document, 160), self.labels]

    @property
    def has_sentences(self) -> bool:
        return self.sentences[0].weight is not None

    @property
    def labels(self) -> str:
        gold = "" if self.gold is None else f"; gold: {self.gold} ({'correct' if self.gold == self.predicted else 'wrong'})"
        return f"predicted: {self.predicted}, p = {self.probability:.3f}{gold}"

    @property
    def legend(self) -> str:
        shade = "word weight x sqrt(sentence weight)" if self.has_sentences else "weight of the word"
        return f"shading: {shade}, relative to the largest, {self.darkest:.3f}"

    @property
    def darkest(self) -> float:
        return max(word.shade for one in self.sentences for word in one.words)

    def to_dict(self) -> dict[str, Any]:
        sentences = [{"weight": one.weight, "words": [word._asdict() for word in one.words]} for one in self.sentences]
        labels = {"predicted": self.predicted, "probability": self.probability, "gold": self.gold}
        return {"text": self.document} | labels | {"sentences": sentences}

    def text(self) -> str:
        lines = [self.labels, ""]
        for one in self.sentences:
            left = "" if one.weight is None else f"{one.weight:.3f} {'█' * round(BAR * one.weight):{BAR}}  "
            words = (f"{printable_token(word.word)}{self.shade_of(word)}" for word in one.words)
            rows = wrap_text(" ".join(words), WIDTH - len(left))
            lines += [f"{left if not at else ' ' * len(left)}{row}" for at, row in enumerate(rows)]
        return "\n".join([*lines, "", f"{self.legend}; {' '.join(SHADES[:0:-1])}"])

    def shade_of(self, word: WordWeight) -> str:
        return SHADES[min(int(len(SHADES) * word.shade / self.darkest), len(SHADES) - 1)].strip()

    def blocks(self) -> list[Block]:
        head = ("sentence", *(["weight"] if self.has_sentences else []), "words of the largest weight")
        rows = []
        for at, one in enumerate(self.sentences):
            top = sorted(one.words, key=lambda word: word.weight, reverse=True)[:TOP]
            words = ", ".join(f"{printable_token(word.word)} {word.weight:.2f}" for word in top)
            rows.append((str(at + 1), *([] if one.weight is None else [f"{one.weight:.3f}"]), words))
        bars: dict[int, list[float | None]] = {1: [one.weight for one in self.sentences]} if self.has_sentences else {}
        pictures = Pictures([self.figure()], f"{sentence(self.legend)}.")
        return [Words(f"{sentence(self.labels)}."), pictures, Table([head, *rows], "sentences", bars)]

    def figure(self) -> Figure:
        lines = [ShadedLine(one.weight, [ShadedWord(word.word, word.shade) for word in one.words]) for one in self.sentences]
        return document_figure(lines, self.darkest, self.title, [sentence(self.labels), sentence(self.legend)])


def document(predictor: Predictor, text: str, target: str | None = None, config: SearchConfig | None = None) -> DocumentResult:
    """The words of a text, and its sentences, with the weights of attention pooling. target: the correct label, to be shown
    beside the predicted one.

    >>> result = heedful.inspection.document(heedful.load(pooling_run), "the cat runs", "no")
    >>> [word.word for word in result.sentences[0].words]
    ['<s>', 'the', 'cat', 'runs', '</s>']
    """
    model = predictor.model
    if not model.poolings():
        raise ConfigError(
            "this model pools its states without attention, so no weights of words or sentences exist",
            hint='train a classifier with task.pooling = "attention", or with model.family = "han"',
        )
    example = predictor.encode_example(text, target, config)
    weights = pooling_weights(model, example)
    if not all(bool(values.isfinite().all()) for values in weights.values()):
        raise predictor.system.nonfinite_error("the weights of attention pooling")
    predicted = predictor.decode_example(example)
    assert predicted is not None, "a model with attention pooling predicts labels"
    if not math.isfinite(predicted.log_probability):
        raise predictor.system.nonfinite_error("the label")
    gold = None if target is None else example.label
    return DocumentResult(text, predicted.text, math.exp(predicted.log_probability), gold, weigh(example, weights))


def pooling_weights(model: Model, example: EncodedExample) -> dict[str, Tensor]:
    """The weights of each level: (vectors, parts of each)."""
    levels = {one.level: one.weights for one in model.poolings()}
    with inference_context(model), record(model, *levels.values()) as recorded:
        example.logits(model, example.forward(model).hidden)
    return {level: recorded[name].flatten(0, -2).float().cpu() for level, name in levels.items()}


def weigh(example: EncodedExample, weights: dict[str, Tensor]) -> list[SentenceWeight]:
    """The weights of words, and of sentences if the model has them. Each token has its place in the weights of its sentence;
    without sentences, all tokens are one."""
    by_sentence = "sentences" in weights
    count = example.target_in.shape[1]
    segments: list[int] = example.more["segments"][0].tolist() if by_sentence else [0] * count
    sentences: list[SentenceWeight] = []
    for segment in range(max(segments) + 1):
        weight = float(weights["sentences"][0, segment]) if by_sentence else None
        places = [at for at in range(count) if segments[at] == segment]
        words: dict[str | int, WordWeight] = {}  # by index in the text; special tokens by their spelling
        fade = 1.0 if weight is None else math.sqrt(weight)
        for column, at in enumerate(places):
            key, piece = word_at(example, at)
            word = words.get(key, WordWeight("", 0.0, 0.0))
            value = word.weight + float(weights["words"][segment, column])
            words[key] = WordWeight(word.word + piece, value, value * fade)
        sentences.append(SentenceWeight(weight, list(words.values())))
    return sentences


def word_at(example: EncodedExample, at: int) -> tuple[str | int, str]:
    """The index of the word that a token belongs to, and its piece of it; a special token is a word of its own."""
    if 0 < at <= len(example.target.ids):
        return example.target.words[at - 1], example.target.pieces[at - 1].lstrip("▁")
    return example.inputs[at], example.inputs[at]
