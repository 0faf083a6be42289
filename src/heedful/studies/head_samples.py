"""Sentences to look at heads with, from what people have: the built-in grammar, dependency trees, or lines of text.

    grammar    source, target, both trees, and which words translate which
    trees      a source and its tree; the target is what the system makes of it
    lines      source, TAB target, TAB alignment (i-j i-j …); what is missing is made by the system, or not known

A system without a source (a language model) takes the source as the text that it goes through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.conllu import Arc, ParsedSentence
from heedful.data.grammar import Sentence
from heedful.errors import DataError
from heedful.evaluation.word_alignment import Alignment, parse_alignments
from heedful.search import SearchConfig
from heedful.studies.head_views import AnnotatedPair, Pieces
from heedful.tasks.translate import System, translate
from heedful.text.tokenizer import Tokenizer


class Sample(NamedTuple):
    source: str
    target: str | None = None  # None: not known
    source_arcs: Sequence[Arc] | None = None
    target_arcs: Sequence[Arc] | None = None
    alignment: Alignment | None = None


def from_grammar(sentences: Iterable[Sentence]) -> list[Sample]:
    return [
        Sample(
            one.source,
            one.target,
            arcs(one.source_heads, one.source_labels),
            arcs(one.target_heads, one.target_labels),
            Alignment(one.alignment, one.alignment),
        )
        for one in sentences
    ]


def arcs(heads: Sequence[int], labels: Sequence[str]) -> list[Arc]:
    """The grammar counts words as they stand between spaces; a root depends on -1."""
    return [Arc(word, head, label) for word, (head, label) in enumerate(zip(heads, labels, strict=True)) if head >= 0]


def from_trees(trees: Iterable[ParsedSentence]) -> list[Sample]:
    return [Sample(tree.text, source_arcs=tree.arcs) for tree in trees]


def from_lines(lines: Iterable[str], name: str) -> list[Sample]:
    """name: of the file, for errors."""
    samples = []
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if len(cells) > 3:
            raise DataError(
                f"{name} line {number} has {len(cells)} columns; expected at most 3, apart by tabs",
                hint="they are the source, the target and the alignment (0-0 1-2 …)",
            )
        try:
            alignment = parse_alignments(cells[2:])[0] if cells[2:] else None
        except DataError as error:
            raise DataError(f"{name} line {number}: {str(error).removeprefix('line 1: ')}") from error
        target = cells[1] if cells[1:] else None
        words = len(cells[0].split()), len((target or "").split())
        for source_word, target_word in () if alignment is None else sorted(alignment.possible):
            if source_word >= words[0] or target_word >= words[1]:
                link = f"{source_word}-{target_word}"
                raise DataError(f"{name} line {number}: link {link}, but the sentences have {words[0]} and {words[1]} words")
        samples.append(Sample(cells[0], target, alignment=alignment))
    return samples


def translated(system: System, samples: Sequence[Sample], config: SearchConfig) -> list[Sample]:
    """Who has no target gets what the system says."""
    wanting = [one.source for one in samples if one.target is None]
    made = translate(system, wanting, config)
    return [one._replace(target=next(made).text) if one.target is None else one for one in samples]


def pairs_of(system: System, samples: Sequence[Sample]) -> list[AnnotatedPair]:
    """Source and target as the model reads them; left out is who is too long, empty, or not cut where its words end."""
    source, target = system.source_tokenizer, system.target_tokenizer
    found = []
    for one in samples:
        read = pieces_of(source, one.source, one.source_arcs, system.max_length)
        said = pieces_of(target, one.target or "", one.target_arcs, system.max_length)
        if read is None or said is None:
            continue
        words = max(read.words) + 1, max(said.words) + 1
        if one.alignment is None or all(i < words[0] and j < words[1] for i, j in one.alignment.possible):
            found.append(AnnotatedPair(read, said, one.alignment))
    return found


def texts_of(system: System, samples: Sequence[Sample]) -> list[AnnotatedPair]:
    """The sources alone, for a system that has no source but goes through a text."""
    made = (pieces_of(system.target_tokenizer, one.source, one.source_arcs, system.max_length) for one in samples)
    return [AnnotatedPair(None, pieces) for pieces in made if pieces is not None]


def pieces_of(tokenizer: Tokenizer, text: str, known: Sequence[Arc] | None, most: int) -> Pieces | None:
    """None: it cannot be used."""
    ids = tokenizer.encode(text)
    if not 0 < len(ids) < most:
        return None
    words = words_of(tokenizer, text, ids)
    return Pieces(ids, words, known) if len(set(words)) == len(text.split()) else None


def words_of(tokenizer: Tokenizer, text: str, ids: list[int]) -> list[int]:
    """The word of each piece. Where words are cut one by one that is exact, though some be unknown; else by their spelling."""
    parts = tokenizer.encode_many(text.split())
    if [id for part in parts for id in part] == ids:
        return [word for word, part in enumerate(parts) for _ in part]
    return tokenizer.word_of(ids)


def frequencies_in(tokenizer: Tokenizer, lines: Sequence[str]) -> Tensor:
    """How often each id occurs: (vocab,)."""
    counted = torch.zeros(len(tokenizer), dtype=torch.long)
    for ids in tokenizer.encode_many(lines):
        counted += torch.bincount(torch.tensor(ids, dtype=torch.long), minlength=len(tokenizer))
    return counted
