"""Dependency trees from CoNLL-U files, the format of Universal Dependencies: a line a token, a blank line after a sentence.

    1-2   don't   _   _   …  _   _       …  _                 a word of the text that is several tokens
    1     do      …   …   …  3   aux     …  _                 token 1 depends on token 3
    2     n't     …   …   …  3   advmod  …  _
    3     know    …   …   …  0   root    …  SpaceAfter=No     0: on nothing
    4     .       …   …   …  3   punct   …  _

A model reads the text, "don't know.", and its words are what stands between spaces. So an arc is told between those: one
within a word is left out, and a word may have several (don't -> know: aux and advmod). Subtypes (nsubj:pass) count as
their type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from heedful.data.input_lines import read_texts
from heedful.data.sources import find_path
from heedful.errors import DataError

COLUMNS = 10
NUMBER = re.compile(r"[0-9]{1,9}")
RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
EMPTY = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")  # a token that the text leaves out


class Arc(NamedTuple):
    """Two words of a text, counted from 0, and what the one is to the other."""

    dependent: int
    head: int
    relation: str


class Parsed(NamedTuple):
    text: str
    arcs: list[Arc]


class Row(NamedTuple):
    """A line that is not a comment."""

    place: str  # the file and the line, for errors
    number: str
    form: str
    head: str
    relation: str
    spaced: bool  # a space follows


def read_trees(path: Path) -> Iterator[Parsed]:
    """The sentences of a file, plain or .gz."""
    file = find_path(str(path))
    rows: list[Row] = []
    for number, line in enumerate(read_texts(file), start=1):
        if line.startswith("#"):
            continue
        if line.strip():
            rows.append(row_of(line, f"{file} line {number}"))
        elif rows:
            yield parsed(rows)
            rows = []
    if rows:
        yield parsed(rows)


def row_of(line: str, place: str) -> Row:
    cells = line.split("\t")
    if len(cells) != COLUMNS:
        raise DataError(
            f"{place} has {len(cells)} column{'s' * (len(cells) != 1)}; expected the {COLUMNS} of CoNLL-U, apart by tabs",
            hint="Universal Dependencies come in this format; a table of two columns is none",
        )
    return Row(place, cells[0], cells[1], cells[6], cells[7], "SpaceAfter=No" not in cells[9].split("|"))


def parsed(rows: Sequence[Row]) -> Parsed:
    """One sentence: its text, and the arcs between the words of it."""
    tokens, spans = tokens_and_spans(rows)
    text, words, covered, word = "", [], 0, 0
    for at, row in enumerate(tokens, start=1):
        if at > covered:  # what stands in the text is the token, or the span that begins with it
            covered, written = spans.get(at, (at, row))
            word = len(text.split()) - (text[-1:] not in ("", " "))  # the last word goes on where no space follows it
            text += written.form + " " * written.spaced
        words.append(word)
    return Parsed(text.rstrip(), list(arcs_of(tokens, words)))


def tokens_and_spans(rows: Iterable[Row]) -> tuple[list[Row], dict[int, tuple[int, Row]]]:
    """The tokens, numbered without a gap, and by the first token of each span its last one."""
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
            raise DataError(f"{row.place}: the span {row.number} does not fit a sentence of {len(tokens)} tokens")
    return tokens, spans


def arcs_of(tokens: Sequence[Row], words: Sequence[int]) -> Iterator[Arc]:
    """words: for each token the word of the text that it belongs to."""
    for row, dependent in zip(tokens, words, strict=True):
        if not NUMBER.fullmatch(row.head) or int(row.head) > len(tokens):
            raise DataError(f"{row.place}: the head is {row.head!r:.40}; expected a number from 0 to {len(tokens)}")
        if row.head != "0" and words[int(row.head) - 1] != dependent:
            yield Arc(dependent, words[int(row.head) - 1], row.relation.split(":")[0])
