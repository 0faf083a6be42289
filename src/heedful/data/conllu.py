"""Dependency trees from CoNLL-U files (Universal Dependencies): one token per line, a blank line after each sentence.

    1-2   don't   _   _   …  _   _       …  _                 a word of the text that consists of several tokens
    1     do      …   …   …  3   aux     …  _                 token 1 depends on token 3
    2     n't     …   …   …  3   advmod  …  _
    3     know    …   …   …  0   root    …  SpaceAfter=No     head 0: the root
    4     .       …   …   …  3   punct   …  _

The model's input is the text, "don't know.", whose words are separated by spaces. So arcs are mapped to these words: an arc
within a word is left out, and a word may have several arcs (don't -> know: aux and advmod). Subtypes (nsubj:pass) are
reduced to their type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from heedful.data.input_lines import read_texts
from heedful.data.sources import find_path
from heedful.errors import DataError

NAMES = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
COLUMNS = len(NAMES)
NUMBER = re.compile(r"[0-9]{1,9}")
RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
EMPTY = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")  # an elided token, not in the text


class Arc(NamedTuple):
    """A dependency between two words of a text, counted from 0."""

    dependent: int
    head: int
    relation: str


class ParsedSentence(NamedTuple):
    text: str
    arcs: list[Arc]


class Row(NamedTuple):
    """A line that is not a comment."""

    place: str  # file and line, for error messages
    cells: Sequence[str]  # one for each of NAMES

    @property
    def number(self) -> str:
        return self.cells[0]

    @property
    def form(self) -> str:
        return self.cells[1]

    @property
    def head(self) -> str:
        return self.cells[6]

    @property
    def relation(self) -> str:
        return self.cells[7]

    @property
    def spaced(self) -> bool:
        """Whether a space follows."""
        return "SpaceAfter=No" not in self.cells[9].split("|")


def read_trees(path: Path) -> Iterator[ParsedSentence]:
    """Yield the sentences of a file, plain or .gz."""
    file = find_path(str(path))
    rows: list[Row] = []
    for number, line in enumerate(read_texts(file), start=1):
        if line.startswith("#"):
            continue
        if line.strip():
            rows.append(parse_row(line, f"{file} line {number}"))
        elif rows:
            yield build_sentence(rows)
            rows = []
    if rows:
        yield build_sentence(rows)


def parse_row(line: str, place: str) -> Row:
    cells = line.split("\t")
    if len(cells) != COLUMNS:
        raise DataError(
            f"{place} has {len(cells)} column{'s' * (len(cells) != 1)}; "
            f"expected the {COLUMNS} tab-separated columns of CoNLL-U",
            hint="give a file in CoNLL-U format, such as the .conllu files of Universal Dependencies",
        )
    return Row(place, cells)


def build_sentence(rows: Sequence[Row]) -> ParsedSentence:
    """Return the text of a sentence and the arcs between its words."""
    tokens, spans = separate_spans(rows)
    text, words, covered, word = "", [], 0, 0
    for at, row in enumerate(tokens, start=1):
        if at > covered:  # the text has the token, or the span that starts with it
            covered, written = spans.get(at, (at, row))
            word = len(text.split()) - (text[-1:] not in ("", " "))  # without a space in between, the last word continues
            text += written.form + " " * written.spaced
        words.append(word)
    return ParsedSentence(text.rstrip(), list(build_arcs(tokens, words)))


def separate_spans(rows: Iterable[Row]) -> tuple[list[Row], dict[int, tuple[int, Row]]]:
    """Return the tokens, numbered without a gap, and a dict from the first token of each span to its last one."""
    tokens: list[Row] = []
    spans: dict[int, tuple[int, Row]] = {}
    for row in rows:
        if span := RANGE.fullmatch(row.number):
            spans[int(span[1])] = int(span[2]), row
        elif not EMPTY.fullmatch(row.number):
            if row.number != str(len(tokens) + 1):
                raise DataError(f"{row.place}: the token is numbered {row.number!r:.40}; expected {len(tokens) + 1}")
            tokens.append(row)
    for first, (last, row) in spans.items():
        if not first < last <= len(tokens):
            raise DataError(f"{row.place}: the span {row.number} exceeds the sentence, which has {len(tokens)} tokens")
    return tokens, spans


def build_arcs(tokens: Sequence[Row], words: Sequence[int]) -> Iterator[Arc]:
    """Yield the arcs between words; words: for each token the index of its word."""
    for row, dependent in zip(tokens, words, strict=True):
        if not NUMBER.fullmatch(row.head) or int(row.head) > len(tokens):
            raise DataError(f"{row.place}: the head is {row.head!r:.40}; expected a number from 0 to {len(tokens)}")
        if row.head != "0" and words[int(row.head) - 1] != dependent:
            yield Arc(dependent, words[int(row.head) - 1], row.relation.split(":")[0])
