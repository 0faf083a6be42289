"""The texts of an analyzed example: a source with its translation, a text, or a text with its label."""

from __future__ import annotations

from typing import Any, NamedTuple

from heedful.inspection.drawing.text_heatmap import printable_token
from heedful.tasks.encoded_example import EncodedExample
from heedful.tasks.predictor import Predictor

MAX_CAPTION = 160  # characters of a text in a caption
PARTS = {"image": "patches", "graph": "nodes", "series": "steps", "table": "patches"}  # of inputs that have no tokens
OUTPUTS = {"captioning": "caption", "chat": "reply"}  # of tasks whose output is no translation


class ExampleNames(NamedTuple):
    """What an example is called in captions."""

    input: str = "text"
    parts: str = "tokens"  # of the input
    output: str = "translation"  # of a source


TEXT = ExampleNames()


def example_names(predictor: Predictor) -> ExampleNames:
    """image, graph, history …, or text."""
    given = predictor.input_names[0]
    name = "text" if predictor.reads_text and not predictor.run.model.numeric_inputs else given
    return ExampleNames(name, PARTS.get(name, "tokens"), OUTPUTS.get(predictor.run.task.name, "translation"))


class ExampleText(NamedTuple):
    source: str | None  # None: the model has no source
    source_tokens: list[str] | None
    target: str
    target_tokens: list[str]
    outputs: list[str]  # what the model predicts: the target and its end token, or a label
    rows: list[str]  # labels of the outputs in figures
    columns: list[str]  # labels of the input tokens: of the source and its end token, or those before the outputs
    label: str | None = None  # the label of the text, or those of its words
    reads_all: bool = False  # every output depends on all input tokens, not only on previous ones
    source_words: list[int] | None = None  # for each token of the source the index of its word
    target_words: list[int] | None = None  # the same for the tokens of the target
    names: ExampleNames = TEXT

    def to_dict(self) -> dict[str, Any]:
        fields = self._asdict()
        for name in ("rows", "columns", "reads_all", "names"):
            del fields[name]
        return fields if self.label is not None else {name: value for name, value in fields.items() if name != "label"}

    @property
    def subject(self) -> list[str]:
        """Source and translation, or the text; a label follows its text."""
        return [text for text in (self.source, self.target, self.label) if text is not None]

    def numbered(self) -> str:
        """The outputs by position."""
        return " ".join(f"{position}:{piece}" for position, piece in enumerate(self.outputs))

    def captions(self) -> list[str]:
        """The texts, shortened where they are long."""
        given = self.names.input
        if self.source is None:
            texts = {given: self.target}
        else:
            texts = {"source" if given == "text" else given: self.source, self.names.output: self.target}
        if self.label is not None:
            texts["label"] = self.label
        return [f"{name}: {printable_token(text, MAX_CAPTION)}" for name, text in texts.items()]


def example_text(example: EncodedExample, names: ExampleNames = TEXT) -> ExampleText:
    source, target = example.source, example.target
    return ExampleText(
        None if source is None else source.text,
        None if source is None else source.pieces,
        target.text,
        target.pieces,
        example.outputs.pieces,
        example.output_tokens,
        example.input_vectors if source is None else example.source_tokens,
        example.label,
        example.reads_end,
        None if source is None else source.words,
        target.words,
        names,
    )
