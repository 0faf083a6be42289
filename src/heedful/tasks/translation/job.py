"""One text to translate, history to reply to or image to describe, as a job of continuous batching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heedful.search import Hypothesis, SearchConfig
from heedful.tasks.decoding import Piece
from heedful.tasks.system import System
from heedful.tasks.translation.translate import (
    Candidate,
    attention_reader,
    empty_candidates,
    finish_piece,
    join_candidates,
    piece_config,
)

UNFINISHED = "\ufffd"  # the replacement of a character whose last bytes are still missing


class PairJob:
    """A source and the candidates of its target. text: of the source; parts: of the source, whose ids key random numbers;
    make: turns text and candidates into the prediction of the task."""

    place = "this text"

    def __init__(
        self,
        system: System,
        text: str,
        parts: Sequence[Piece],
        config: SearchConfig,
        make: Callable[[str, list[Candidate]], Any],
        *,
        stream: bool = False,
    ) -> None:
        self.system, self.text, self.make, self.asked = system, text, make, config
        self.config = piece_config(config)
        self.watched = stream and config.method != "beam"  # the best hypothesis of a beam may change until the end
        self.reader = attention_reader(system, config)
        self.parts = [piece._replace(source_id=at, sampling=config.sampling(piece.source_id)) for at, piece in enumerate(parts)]
        self.candidates = [empty_candidates(config) for _ in self.parts]
        self.shown = ""  # what was streamed
        self.input_tokens, self.output_tokens = sum(len(part.ids) for part in self.parts), 0

    def pieces(self) -> list[Piece]:
        return [part for part in self.parts if part.ids]

    def progress(self, piece: int, tokens: list[int]) -> bool:
        if len(self.parts) == 1:
            self.candidates[0] = [Candidate(self.system.target_tokenizer.decode(tokens), 0.0, 0.0, tokens)]
        return False

    def complete(self, piece: int, hypotheses: Sequence[Hypothesis] | None) -> list[Piece]:
        assert hypotheses is not None, "a translation ends with its end token"
        self.candidates[piece] = finish_piece(self.system, self.parts[piece], hypotheses, self.asked, self.reader)
        self.output_tokens += len(self.candidates[piece][0].tokens)
        return []

    def new_text(self, sample: int) -> str:
        """The text since the last call. A text that does not continue what was streamed, or ends within a character, waits."""
        text = self.candidates[0][0].text if len(self.parts) == 1 else ""
        if not text.startswith(self.shown) or text.endswith(UNFINISHED):
            return ""
        part, self.shown = text[len(self.shown) :], text
        return part

    def prediction(self) -> Any:
        return self.make(self.text, join_candidates(self.candidates, [part.text for part in self.parts]))
