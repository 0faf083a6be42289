"""The texts of an analyzed example: a source with its translation, a text, or a text with its label."""

from __future__ import annotations

from typing import Any, NamedTuple

from heedful.inspection.drawing.text_heatmap import printable_token
from heedful.tasks.encoded_example import EncodedExample

MAX_CAPTION = 160  # characters of a text in a caption


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

    def to_dict(self) -> dict[str, Any]:
        fields = self._asdict()
        del fields["rows"], fields["columns"], fields["reads_all"]
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
        names = {"text": self.target} if self.source is None else {"source": self.source, "translation": self.target}
        if self.label is not None:
            names["label"] = self.label
        return [f"{name}: {printable_token(text, MAX_CAPTION)}" for name, text in names.items()]


def example_text(example: EncodedExample) -> ExampleText:
    source, target = example.source, example.target
    return ExampleText(
        None if source is None else source.text,
        None if source is None else source.pieces,
        target.text,
        target.pieces,
        example.outputs.pieces,
        example.output_tokens,
        example.inputs if source is None else example.source_tokens,
        example.label,
        example.reads_end,
        None if source is None else source.words,
        target.words,
    )
