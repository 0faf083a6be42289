"""Histories as sources: the tokenizer that keeps the last tokens of a history, and the system of a chat model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from heedful.data.dialogues import DialoguesConfig
from heedful.tasks.system import System
from heedful.text.tokenizer import Codec, Header, Tokenizer


class HistoryTokenizer(Tokenizer):
    """A tokenizer that cuts the oldest tokens of a history that is too long, so that no reply is left out for its history."""

    def __init__(self, header: Header, codec: Codec, limit: int) -> None:
        super().__init__(header, codec)
        self.limit = limit

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids[-self.limit :] for ids in super().encode_many(texts)]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return super().offsets(text)[-self.limit :]

    def encode_sampled(self, text: str, *, seed: int, epoch: int, index: int) -> list[int]:
        return super().encode_sampled(text, seed=seed, epoch=epoch, index=index)[-self.limit :]

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[str, int]]:  # type: ignore[override]
        return read_history_tokenizer, (self.to_json(), self.limit)


def read_history_tokenizer(text: str, limit: int) -> HistoryTokenizer:
    return history_tokenizer(Tokenizer.from_json(text), limit)


def history_tokenizer(tokenizer: Tokenizer, limit: int) -> HistoryTokenizer:
    return HistoryTokenizer(tokenizer.header, tokenizer.codec, limit)


def chat_system(data: DialoguesConfig, system: System) -> System:
    """The system with a tokenizer of histories, and models that know the separator of turns."""
    (separator,) = system.source_tokenizer.encode(data.template.separator)
    turns = data.turns + bool(data.template.speakers)  # the last one is the tag of the speaker who replies
    for model in system.models:
        model.set_turns(separator, turns)
    return replace(system, source_tokenizer=history_tokenizer(system.source_tokenizer, data.max_length))
