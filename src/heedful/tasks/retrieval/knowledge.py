"""The knowledge base of a run: stored answers with the questions that they belong to, and an index of their vectors.

    knowledge/replies.jsonl           {"question": ["turn", …], "answer": "text"}, one per line: plain text, to read and to edit
    knowledge/index/
      questions.vectors               (questions, dim) float32, of length 1
      questions.entries               (questions,) int64: the line of each, from 0
      answers.vectors                 (distinct answers, dim) float32
      answers.entries                 (distinct answers,) int64: the first line with this answer
      *.lists                         inverted lists for approximate search, if asked for (vectors/approximate.py)
      lines.values, lines.offsets     the content of replies.jsonl, and where each line begins
      MANIFEST.json                   size and SHA-256 of each file; the checkpoint and the replies.jsonl that it was made from

An index of another checkpoint, or of another replies.jsonl, is an error: its vectors do not fit.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.data.json_text import parse_json
from heedful.data.rows import check_strings
from heedful.data.unusable import LineProblem
from heedful.errors import CheckpointError, ConfigError, DataError
from heedful.storage.folders import new_folder
from heedful.storage.manifest import NAME as MANIFEST
from heedful.storage.manifest import Damaged, checked_manifest, write_manifest
from heedful.storage.mapping import append_array, map_array
from heedful.storage.reading import decode_line, read_lines, sha256_of, unreadable
from heedful.storage.writing import create, output_file
from heedful.tasks.retrieval.command import Match
from heedful.vectors.approximate import ApproximateSearch, build_lists, import_faiss
from heedful.vectors.nearest import nearest_vectors

FOLDER, REPLIES, INDEX = "knowledge", "replies.jsonl", "index"
CHUNK = 4096  # entries encoded at a time
TABLES = ("questions", "answers")


class Entry(NamedTuple):
    question: tuple[str, ...]  # turns, oldest first; empty: an answer without question
    answer: str


class Answer(NamedTuple):
    """A stored answer that was found."""

    text: str
    score: float  # cosine similarity
    question: tuple[str, ...]  # the stored turns that it answers, oldest first
    entry: int  # its line in replies.jsonl, from 0


class Encoders(NamedTuple):
    """How the two sides become vectors of length 1, (texts, dim)."""

    questions: Callable[[Sequence[Sequence[str]]], Tensor]
    answers: Callable[[Sequence[str]], Tensor]


class VectorTable(NamedTuple):
    vectors: Tensor  # (rows, dim)
    entries: NDArray[np.int64]  # (rows,): the entry of each
    lists: ApproximateSearch | None = None  # None: search is exact

    def nearest(self, queries: Tensor, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """queries (queries, dim) -> scores and rows of the best, both (queries, count), best first."""
        return nearest_vectors(self.vectors, queries, count) if self.lists is None else self.lists.nearest(queries, count)


def read_entries(path: Path) -> Iterator[Entry]:
    """The entries of a file: .jsonl as in replies.jsonl; of other files the cells of a line, separated by tabs: turns, and the
    answer last."""
    is_json = path.name.lower().removesuffix(".gz").endswith(".jsonl")
    for number, raw in enumerate(read_lines(path), start=1):
        line = decode_line(raw, path, number)
        if line.strip():
            place = f"{path} line {number}"
            yield parse_entry(line, place) if is_json else make_entry(line.split("\t"), place)


def parse_entry(line: str, place: str) -> Entry:
    record = parse_json(line, place, hint='write {"question": "…", "answer": "…"}')
    fields = record if isinstance(record, dict) else {}
    question = fields.get("question", [])
    turns = [question] if isinstance(question, str) else question
    if not isinstance(turns, list):
        raise DataError(f"{place}: the field 'question' is {question!r:.40}; expected a text or a list of texts")
    return make_entry([*turns, fields.get("answer")], place)


def make_entry(cells: Sequence[Any], place: str) -> Entry:
    *turns, answer = cells
    if not isinstance(answer, str) or not answer.strip():
        raise DataError(f"{place} has no answer; expected a text", hint="a line has turns and an answer, separated by tabs")
    if not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise DataError(f"{place} has a turn that is empty or no text; expected texts")
    problem = check_strings([*turns, answer], 1)
    if isinstance(problem, LineProblem):
        raise DataError(f"{place}: {problem.text}")
    return Entry(tuple(turns), answer)


def write_replies(knowledge: Path, entries: Iterable[Entry]) -> int:
    """Write replies.jsonl, each entry once; returns their number."""
    seen: dict[Entry, None] = dict.fromkeys(entries)  # read before the file is replaced
    if not seen:
        raise DataError("there are no answers to store; expected at least one")
    knowledge.mkdir(parents=True, exist_ok=True)
    with output_file(knowledge / REPLIES) as file:
        for entry in seen:
            file.write(json.dumps({"question": list(entry.question), "answer": entry.answer}, ensure_ascii=False) + "\n")
    return len(seen)


def write_index(knowledge: Path, checkpoint: Path, encoders: Encoders, *, approximate: bool = False) -> None:
    """Encode the entries of replies.jsonl and write the index, which replaces an earlier one when it is complete."""
    if approximate:
        import_faiss()  # an error before anything is encoded
    path = knowledge / REPLIES
    lines = enumerate(read_lines(path))
    seen: set[str] = set()
    offsets = [0]
    digest = sha256_of(path)
    with new_folder(knowledge / INDEX) as folder, ExitStack() as stack:
        files = {
            f"{table}.{part}": stack.enter_context(create(folder / f"{table}.{part}"))
            for table in TABLES
            for part in ("vectors", "entries")
        }
        content = stack.enter_context(create(folder / "lines.values"))
        while chunk := list(islice(lines, CHUNK)):
            entries = []
            for number, raw in chunk:
                entries.append((number, parse_entry(decode_line(raw, path, number + 1), f"{path} line {number + 1}")))
                content.write(raw)
                offsets.append(offsets[-1] + len(raw))
            asked = [(number, entry.question) for number, entry in entries if entry.question]
            first = {entry.answer: number for number, entry in reversed(entries)}  # the first entry of each answer
            new = sorted((number, answer) for answer, number in first.items() if answer not in seen)
            seen.update(first)
            append(files, "questions", encoders.questions([question for _, question in asked]), [number for number, _ in asked])
            append(files, "answers", encoders.answers([answer for _, answer in new]), [number for number, _ in new])
        append_array(stack.enter_context(create(folder / "lines.offsets")), np.array(offsets, np.int64))
        stack.close()  # before the files are measured
        if approximate:
            write_lists(folder)
        about = {"checkpoint": checkpoint.name, "fingerprint": sha256_of(checkpoint / MANIFEST), "replies": digest}
        write_manifest(folder, about)


def write_lists(folder: Path) -> None:
    """Write the inverted lists of each table of an index."""
    for table in TABLES:
        rows = len(map_array(folder / f"{table}.entries", "int64"))
        with create(folder / f"{table}.lists") as file:
            if rows:
                size = map_array(folder / f"{table}.vectors", "float32").size
                append_array(file, build_lists(read_table(folder, table, size // rows).vectors))


def append(files: dict[str, Any], table: str, vectors: Tensor, entries: Sequence[int]) -> None:
    append_array(files[f"{table}.vectors"], vectors.float().cpu().numpy())
    append_array(files[f"{table}.entries"], np.array(entries, np.int64))


class KnowledgeBase:
    """An index, open for search."""

    def __init__(self, folder: Path, dim: int) -> None:
        self.lines = map_array(folder / "lines.values", "uint8")
        self.offsets = map_array(folder / "lines.offsets", "int64")  # (entries + 1,)
        self.tables = {table: read_table(folder, table, dim) for table in TABLES}

    def __len__(self) -> int:
        """The number of entries."""
        return len(self.offsets) - 1

    def entry(self, number: int) -> Entry:
        begin, end = self.offsets[number : number + 2]
        return parse_entry(self.lines[begin:end].tobytes().decode(), f"entry {number}")

    def search(self, queries: Tensor, match: Match, top: int) -> list[list[Answer]]:
        """queries (queries, dim) -> the best distinct answers to each, best first."""
        chosen = [self.tables[table] for table in TABLES if match in (table, "both")]
        if not any(len(table.entries) for table in chosen):
            raise ConfigError(f"match: given {match!r}, but the stored answers have no questions", hint="match answers")
        wide = top
        while True:
            hits = [table.nearest(queries, wide) for table in chosen]  # scores and rows, (queries, wide)
            found = []
            for row in range(len(queries)):
                pairs = [
                    (-score, entry)
                    for (scores, rows), table in zip(hits, chosen, strict=True)
                    for score, entry in zip(scores[row].tolist(), table.entries[rows[row]].tolist(), strict=True)
                ]
                found.append(self.distinct_answers(sorted(pairs), top))
            # An answer beyond the `wide` best of a table may be better than the last one found, unless its score is lower.
            deeper = [scores[:, -1] for (scores, _), table in zip(hits, chosen, strict=True) if wide < len(table.entries)]
            if all(
                len(answers) == top and all(answers[-1].score >= lowest[row] for lowest in deeper)
                for row, answers in enumerate(found)
            ):
                return found
            if not deeper:
                return found
            wide *= 4

    def distinct_answers(self, pairs: Iterable[tuple[float, int]], top: int) -> list[Answer]:
        """The first answers that differ, of (-score, entry) pairs."""
        found: dict[str, Answer] = {}
        for negative, number in pairs:
            entry = self.entry(number)
            found.setdefault(entry.answer, Answer(entry.answer, -negative, entry.question, number))
            if len(found) == top:
                break
        return list(found.values())


def read_table(folder: Path, table: str, dim: int) -> VectorTable:
    entries = map_array(folder / f"{table}.entries", "int64")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        vectors = torch.from_numpy(map_array(folder / f"{table}.vectors", "float32"))
    vectors, stored = vectors.view(len(entries), dim), folder / f"{table}.lists"
    return VectorTable(vectors, entries, ApproximateSearch(map_array(stored, "uint8"), vectors) if stored.exists() else None)


def open_knowledge(knowledge: Path, checkpoint: Path, dim: int) -> KnowledgeBase:
    """Open the index after comparing every file with the manifest; CheckpointError if it does not belong to the checkpoint and
    the replies."""
    folder, run = knowledge / INDEX, checkpoint.parent.parent
    hint = f"index the stored answers again: heed search {run} --rebuild"
    try:
        manifest = checked_manifest(folder)
        base = KnowledgeBase(folder, dim)
    except (OSError, Damaged, ValueError, RuntimeError) as error:
        raise CheckpointError(f"the index {folder} is damaged: {error}", hint) from error
    if manifest.get("fingerprint") != sha256_of(checkpoint / MANIFEST):
        made = manifest.get("checkpoint")
        raise CheckpointError(
            f"the index {folder} was made with another checkpoint ({made}), expected {checkpoint.name} of this run", hint
        )
    try:
        digest = sha256_of(knowledge / REPLIES)
    except OSError as error:
        raise unreadable(knowledge / REPLIES, error) from error
    if manifest.get("replies") != digest:
        raise CheckpointError(f"{knowledge / REPLIES} changed since it was indexed", hint)
    return base
