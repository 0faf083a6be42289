"""The data of chat: dialogues, as pairs of a history and a reply; see data/dialogues.py."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from heedful.config.base import plain
from heedful.data.dialogues import (
    DialoguesConfig,
    check_dialogues,
    dialogue_files,
    expand,
    find_split_file,
    format_history,
    read_dialogues,
)
from heedful.data.encode import StoreOptions, builtin_fingerprint, content_hash, open_pairs, store_key
from heedful.data.pairs import Pair
from heedful.data.report import CheckReport
from heedful.data.sources import refuse_streams
from heedful.data.store import JoinedStore, PairStore
from heedful.errors import DataError
from heedful.tasks.base import ExampleFile, RunConfig, Tokenizers
from heedful.tasks.chat.history import history_tokenizer
from heedful.tasks.translation.data import Corpora, Examples

READING = ("dialogue", "text", "speaker", "turns", "replies", "template", "split")  # options that change the pairs


class ChatData:
    def __init__(self, run: RunConfig) -> None:
        self.data: DialoguesConfig = run.data
        self.dropout = run.tokenizer.dropout  # of BPE, which encodes the text anew in every epoch

    def check(self) -> CheckReport:
        """Read every line once and report the unusable ones."""
        refuse_streams(self.files())
        return CheckReport(tuple(check_dialogues(self.data, *one) for one in dialogue_files(self.data).items()))

    def files(self) -> list[Path]:
        return list(dict.fromkeys(file.path for file in dialogue_files(self.data).values() if file.toy is None))

    def lines(self, side: Literal["source", "target"]) -> Iterator[str]:
        """The turns that the tokenizer of a side is trained on: all, or those that are replies. The window changes neither."""
        file = find_split_file(self.data, "train")
        assert file is not None, "there is training data"
        dialogues = read_dialogues(self.data, file)
        if side == "source":
            return (turn.text for dialogue in dialogues for turn in dialogue.turns)
        return (exchange.reply.text for exchange in expand(self.data, dialogues))

    @property
    def tags(self) -> list[str]:
        return self.data.template.tags

    def pairs(self, split: str) -> Iterator[Pair]:
        """The history, as one text, and the reply of every example of a split; none if there is no such split."""
        file, data = find_split_file(self.data, split), self.data
        for one in expand(data, read_dialogues(data, file) if file is not None else []):
            yield Pair(one.line, format_history(data.template, one.history, one.reply.speaker), one.reply.text)

    def prepare(self, tokenizers: Tokenizers, report: CheckReport) -> Corpora:
        valid = list(self.pairs("valid"))
        examples = Examples([pair.source for pair in valid], [pair.target for pair in valid])
        return Corpora(JoinedStore([self.open_train(tokenizers)]), (1.0,), examples)

    def open_train(self, tokenizers: Tokenizers) -> PairStore:
        """The encoded training pairs; no history is too long, because its oldest tokens are cut."""
        file = find_split_file(self.data, "train")
        assert file is not None, "there is training data"
        encoders = history_tokenizer(tokenizers[0], self.data.max_length), tokenizers[1]
        options = StoreOptions(self.data.max_length, keep_text=self.dropout > 0)
        reading = {name: value for name, value in plain(self.data).items() if name in READING}
        content = content_hash(file.path) if file.toy is None else [builtin_fingerprint(is_toy=True), *file.toy]
        about = {"content": content, "kind": file.kind, "part": file.part, "reading": reading}
        return open_pairs(store_key(about, encoders, options), self.pairs("train"), encoders, options, str(file.path))

    def usage_and_limits(self, folder: str) -> tuple[str, str]:
        """A usage example and the limits of the model, for its card."""
        usage = f'bot = heedful.load("{folder}")\nbot.reply(["…"]).text'
        turns = "the last turn" if self.data.turns == 1 else f"up to {self.data.turns} turns"
        return usage, f"It replies to {turns}, of at most {self.data.max_length} tokens; older ones have no influence."


def format_examples(examples: Iterable[Any]) -> ExampleFile:
    """Dialogues, each a list of turns, as JSON lines."""
    rows = []
    for number, example in enumerate(examples, start=1):
        turns = list(example) if isinstance(example, tuple | list) else [example]
        if len(turns) < 2 or not all(isinstance(turn, str | dict) for turn in turns):
            raise DataError(f"example {number} is {example!r:.60}; expected a dialogue: a list of two or more turns")
        rows.append(json.dumps(turns, ensure_ascii=False))
    return ExampleFile(".jsonl", "".join(f"{row}\n" for row in rows), "file")
