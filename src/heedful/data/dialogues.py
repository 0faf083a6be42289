"""Dialogues, one in each line: [data] with form = "dialogues".

    folder = "dialogue-sgd"              with train.txt, valid.txt and test.txt, or .tsv or .jsonl, plain or .gz
    train = { file = "train.jsonl" }     or a file for each split; or split = [0.9, 0.05, 0.05], and train alone
    builtin = "two-turns-back"           dialogues of a toy (`toys.py`), as many as `counts` says

In .txt and .tsv files the turns of a dialogue are separated by tabs, and two speakers alternate. A line of a .jsonl file is a
list of turns, or an object with this list in the field `dialogue`; a turn is a string, or an object with the fields `text`
and, optionally, `speaker`.

A dialogue of the turns q1 a1 q2 a2 q3 a3 with replies = "second" yields three examples, with the history of

    turns = 1       q1 -> a1        q2 -> a2                    q3 -> a3                             single-turn
    turns = 5       q1 -> a1        [q1; a1; q2] -> a2          [q1; a1; q2; a2; q3] -> a3           multi-turn

with replies = "all" five, one for each turn after the first, and with replies = "last" one. `turns` changes the histories only,
never the replies. The template makes one text of a history: turns are separated by a tag, which is a single token, and each may
begin with the tag of its speaker:

    hello <turn> hi, how can I help? <turn> a table for two                              separator = "<turn>"
    <user> hello <turn> <system> hi <turn> <user> a table <turn> <system>                speakers = ["<user>", "<system>"]

With speakers, the text ends with the tag of the speaker who replies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from pydantic import model_validator

from heedful.config.base import Config, Count, PathName, Problem, Size, SmallCount, refuse, unused
from heedful.data.fractions import PARTS, fraction_problems
from heedful.data.json_text import parse_json
from heedful.data.pairs import MAX_CHARACTERS
from heedful.data.report import CorpusCheck
from heedful.data.row_files import RowFile, ScannedFile, SplitConfig, collect_examples, summarize_scan
from heedful.data.rows import check_strings, find_field, shorten_json
from heedful.data.sources import ColumnName, find_folder, find_in_folder, find_path, missing_split
from heedful.data.splits import Counts, builtin_problems, toy_split
from heedful.data.toys import DIALOGUES, DialogueToy, ToySplit, sample
from heedful.data.unusable import LineProblem, usable_text
from heedful.errors import DataError
from heedful.storage.reading import read_lines
from heedful.text.tags import TAG

Replies = Literal["all", "second", "last"]
SUFFIXES = (".txt", ".tsv", ".jsonl")
HINT = 'write a list of turns, ["hello", "hi"], or set data.dialogue to the field that has it'


class DialogueFile(Config):
    """One file."""

    file: PathName
    """File of dialogues, .txt or .tsv with tabs between turns, or .jsonl, plain or .gz."""

    @model_validator(mode="after")
    def _known_suffix(self) -> DialogueFile:
        if suffix_of(self.file) is None:
            refuse([Problem("file", f"given {self.file!r}, expected a name that ends in .txt, .tsv or .jsonl, plain or .gz")])
        return self


class TemplateConfig(Config):
    """How a history becomes one text; every tag is a single token."""

    separator: str = "<turn>"
    """Tag between two turns."""
    speakers: tuple[str, ...] = ()
    """Tags of the speakers, in the order of their first turns; default: turns without speakers."""

    @property
    def tags(self) -> list[str]:
        return [self.separator, *self.speakers]

    @model_validator(mode="after")
    def _tags_differ(self) -> TemplateConfig:
        problems = []
        if not TAG.fullmatch(self.separator):
            problems.append(Problem("separator", f"given {self.separator!r}, expected a name in angle brackets: '<turn>'"))
        if not all(map(TAG.fullmatch, self.speakers)):
            sentence = f"given {list(self.speakers)!r}, expected names in angle brackets: ['<user>', '<system>']"
            problems.append(Problem("speakers", sentence))
        if len(self.speakers) == 1:
            problems.append(Problem("speakers", f"given {list(self.speakers)!r}, expected at least two tags, or none"))
        if len(set(self.tags)) < len(self.tags):
            problems.append(Problem("speakers", f"given {list(self.speakers)!r}; expected tags that differ from each other"))
        refuse(problems)
        return self


class DialoguesConfig(SplitConfig):
    form: Literal["dialogues"]
    """Form of the data: dialogues."""
    folder: PathName | None = None
    """Folder with train, valid and test files: .txt, .tsv or .jsonl, plain or .gz."""
    builtin: DialogueToy | None = None
    """Generate the dialogues of this toy."""
    counts: Counts | None = None
    """Number of dialogues of each split that are generated."""
    train: DialogueFile | None = None
    """Training file, instead of the folder's."""
    valid: DialogueFile | None = None
    """Validation file, instead of the folder's."""
    test: DialogueFile | None = None
    """Test file, instead of the folder's."""
    dialogue: ColumnName = "turns"
    """Field of the list of turns, where the lines of a .jsonl file are objects."""
    text: ColumnName = "text"
    """Field of the text, where turns are objects."""
    speaker: ColumnName = "speaker"
    """Field of the speaker, where turns are objects; default of its value: two speakers alternate."""
    turns: SmallCount = 5
    """Window: maximum number of turns in a history; 1: single-turn, the reply depends on the turn before it only."""
    replies: Replies = "all"
    """Turns that are replies: all after the first, those of the second speaker only, such as the system's, or only the last."""
    template: TemplateConfig = TemplateConfig()
    """How a history becomes one text."""
    max_length: Size = 256
    """Maximum tokens of a history, whose oldest ones are cut, and of a reply; longer replies are left out."""
    batch: Count = 32
    """Examples per batch; of tasks that count examples."""
    batch_tokens: Count = 4096
    """Maximum tokens per batch on either side, padding included; of tasks that count tokens."""

    @property
    def sides(self) -> tuple[int, int]:
        """Maximum tokens of source and target, including the end or start token."""
        return self.max_length + 1, self.max_length + 1

    @model_validator(mode="after")
    def _fits_together(self) -> DialoguesConfig:
        problems = builtin_problems(self)
        if self.folder is None and self.builtin is None:
            missing = [name for name in ("train", "valid") if getattr(self, name) is None and not self.makes(name)]
            sentence = "missing; expected a table with a file, data.folder or data.builtin"
            problems += [Problem(name, sentence) for name in missing]
        no_effect = {}
        if self.train and (self.valid or self.split):
            no_effect["folder"] = f"data.train and {'data.valid' if self.valid else 'data.split'} are given"
        if self.split is not None:
            problems += [Problem("split", sentence) for sentence in fraction_problems(self.split)]
            if self.train is None and (self.folder or self.builtin):
                given = "data.folder" if self.folder else "data.builtin"
                problems.append(Problem("split", f'given with {given}, expected data.train: {{ file = "…" }}'))
            made = [name for name in ("valid", "test") if self.makes(name)]
            no_effect |= {name: f"data.split makes a {name} part of data.train" for name in made}
        refuse([*problems, *unused(self, no_effect)])
        return self


class Turn(NamedTuple):
    text: str
    speaker: int  # in the order of their first turns, from 0


class Dialogue(NamedTuple):
    line: int  # in its file, counted from 1
    turns: tuple[Turn, ...]


class Exchange(NamedTuple):
    """An example: a reply and the turns before it."""

    history: tuple[Turn, ...]  # the last turns, at least one, oldest first
    reply: Turn
    line: int  # of the dialogue


def exchanges(dialogue: Dialogue, *, turns: int, replies: Replies = "all") -> Iterator[Exchange]:
    """The examples of a dialogue: every reply, with up to `turns` turns before it."""
    first = len(dialogue.turns) - 1 if replies == "last" else 1
    for at, reply in enumerate(dialogue.turns[first:], start=first):
        if replies != "second" or reply.speaker != dialogue.turns[0].speaker:
            yield Exchange(dialogue.turns[max(at - turns, 0) : at], reply, dialogue.line)


def expand(data: DialoguesConfig, dialogues: Iterable[Dialogue]) -> Iterator[Exchange]:
    """The examples of dialogues, as the config asks."""
    return (one for dialogue in dialogues for one in exchanges(dialogue, turns=data.turns, replies=data.replies))


def format_history(template: TemplateConfig, history: Sequence[Turn], replier: int) -> str:
    """A history as one text, oldest turn first; replier: the speaker of the reply. A tag inside the text of a turn is written
    with a space, so that it is no token."""
    texts = [plain_text(template, turn.text) for turn in history]
    if template.speakers:
        texts = [f"{template.speakers[turn.speaker]} {text}" for turn, text in zip(history, texts, strict=True)]
        texts.append(template.speakers[replier])
    return f" {template.separator} ".join(texts)


def plain_text(template: TemplateConfig, text: str) -> str:
    """The text with the tags of the template taken apart: "<turn>" becomes "< turn>"."""
    for tag in template.tags:
        text = text.replace(tag, f"< {tag[1:]}")
    return text


def suffix_of(name: str) -> str | None:
    """.txt, .tsv or .jsonl; None: another one."""
    return next((suffix for suffix in SUFFIXES if name.lower().removesuffix(".gz").endswith(suffix)), None)


def find_split_file(data: DialoguesConfig, split: str) -> RowFile | None:
    """The file of a split; None if there is no test set."""
    part = split if data.makes(split) else None
    given: DialogueFile | None = getattr(data, "train" if part else split)
    if given is not None:
        return row_file(find_path(given.file), part)
    if split == "test" and data.train is not None:
        return None  # the test set of a folder or toy belongs to other training data
    if (toy := toy_split(data, split)) is not None:
        return RowFile(Path(str(toy)), "tsv", toy=toy)
    if data.folder is None:
        return None
    path = find_in_folder(find_folder(data.folder), split, SUFFIXES)
    if path is None and split != "test":
        raise missing_split(find_folder(data.folder), f"{split}.txt")
    return None if path is None else row_file(path)


def row_file(path: Path, part: str | None = None) -> RowFile:
    return RowFile(path, "jsonl" if suffix_of(path.name) == ".jsonl" else "tsv", part)


def dialogue_files(data: DialoguesConfig) -> dict[str, RowFile]:
    """The files of all splits that there are."""
    return {split: file for split in PARTS if (file := find_split_file(data, split)) is not None}


def read_dialogues(data: DialoguesConfig, file: RowFile) -> list[Dialogue]:
    """The usable dialogues of a file, or of its part."""
    return scan_dialogues(data, file).examples


def check_dialogues(data: DialoguesConfig, split: str, file: RowFile) -> CorpusCheck:
    """Read a file once and report its unusable lines."""
    return summarize_scan(data, split, file, scan_dialogues(data, file), unit="dialogues")


def scan_dialogues(data: DialoguesConfig, file: RowFile) -> ScannedFile[Dialogue]:
    """Read a file or its part; DataError with file and line where a line of JSON has not the form of a dialogue."""
    lines = read_lines(file.path) if file.toy is None else toy_lines(file.toy)
    parsed = (parse_line(data, file, number, raw) for number, raw in enumerate(lines, start=1))
    return collect_examples(data, file, parsed, lambda dialogue: "\n".join(turn.text for turn in dialogue.turns))


def toy_lines(toy: ToySplit) -> Iterator[bytes]:
    """The dialogues of a toy, turns separated by tabs."""
    return ("\t".join(one.turns).encode() for one in sample(DIALOGUES[cast(DialogueToy, toy.name)], toy.split, toy.size))


def parse_line(data: DialoguesConfig, file: RowFile, number: int, raw: bytes) -> Dialogue | LineProblem:
    """The dialogue in a line, or why it is unusable."""
    text = usable_text(raw, number)
    if isinstance(text, LineProblem):
        return text
    place = f"{file.path} line {number}"
    if file.kind == "jsonl":
        turns = json_turns(data, parse_json(text, place, hint="write one JSON value per line, without blank lines"), place)
    else:
        turns = [(turn, None) for turn in text.split("\t")]
    return make_dialogue(data, turns, place, number)


def json_turns(data: DialoguesConfig, record: Any, place: str) -> list[tuple[str, Any]]:
    """The text and the speaker of each turn; None: no speaker is given."""
    if isinstance(record, dict):
        record = find_field(record, data.dialogue, place, HINT)
    if not isinstance(record, list):
        raise DataError(f"{place} is {shorten_json(record)}; expected a list of turns", hint=HINT)
    turns = []
    for at, turn in enumerate(record, start=1):
        where = f"{place} turn {at}"
        text = find_field(turn, data.text, where, "set data.text to the field of the text") if isinstance(turn, dict) else turn
        if not isinstance(text, str):
            raise DataError(f"{where} is {shorten_json(text)}; expected a string, or an object with the field {data.text!r}")
        turns.append((text, turn.get(data.speaker) if isinstance(turn, dict) else None))
    return turns


def make_dialogue(data: DialoguesConfig, turns: Sequence[tuple[str, Any]], place: str, line: int) -> Dialogue | LineProblem:
    texts = [text for text, _ in turns]
    unusable = check_strings(texts, line)
    if unusable is not None:
        return unusable
    for at, text in enumerate(texts, start=1):
        if not text.strip():
            return LineProblem("blank", line, "source", f"turn {at} is empty; expected a text")
        if len(text) > MAX_CHARACTERS:
            sentence = f"turn {at} has {len(text):,} characters; expected at most {MAX_CHARACTERS:,}"
            return LineProblem("long", line, "source", sentence)
    if len(texts) < 2:
        return LineProblem("turns", line, "source", f"{len(texts)} turn{'s' * (len(texts) != 1)}; expected at least two")
    given = [speaker for _, speaker in turns if speaker is not None]
    if given and len(given) < len(turns):
        raise DataError(f"{place} has turns with and without {data.speaker!r}; expected it in all of them, or in none")
    order = list(dict.fromkeys(map(str, given)))  # in the order of their first turns
    speakers = [order.index(str(speaker)) for speaker in given] or [at % 2 for at in range(len(texts))]
    tags = data.template.speakers
    if tags and max(speakers) >= len(tags):
        raise DataError(
            f"{place} has {max(speakers) + 1} speakers, but data.template.speakers has {len(tags)} tags; expected one for each",
            hint="add tags to data.template.speakers, or leave it out",
        )
    return Dialogue(line, tuple(map(Turn, texts, speakers)))
