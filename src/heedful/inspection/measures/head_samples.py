"""Sentences for the analysis of heads: from the built-in grammar, dependency trees, or lines of text.

    grammar    source, target, dependency trees of both, and the word alignment
    trees      a source and its dependency tree; the target is translated by the system
    lines      source, TAB target, TAB alignment (i-j i-j …); missing targets are translated by the system

For a language model the source is the text.
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
from heedful.inspection.measures.head_views import AnnotatedPair, Pieces
from heedful.search import SearchConfig
from heedful.tasks.system import System
from heedful.tasks.translation.translate import translate
from heedful.text.tokenizer import Tokenizer


class Sample(NamedTuple):
    source: str
    target: str | None = None  # None: unknown
    source_arcs: Sequence[Arc] | None = None
    target_arcs: Sequence[Arc] | None = None
    alignment: Alignment | None = None


def from_grammar(sentences: Iterable[Sentence]) -> list[Sample]:
    """Return samples with trees and alignments from the built-in grammar."""
    return [
        Sample(
            sentence.source,
            sentence.target,
            arcs(sentence.source_heads, sentence.source_labels),
            arcs(sentence.target_heads, sentence.target_labels),
            Alignment(sentence.alignment, sentence.alignment),
        )
        for sentence in sentences
    ]


def arcs(heads: Sequence[int], labels: Sequence[str]) -> list[Arc]:
    """heads: for each whitespace-separated word the index of its head; -1 for the root."""
    return [Arc(word, head, label) for word, (head, label) in enumerate(zip(heads, labels, strict=True)) if head >= 0]


def from_trees(trees: Iterable[ParsedSentence]) -> list[Sample]:
    """Return samples without targets from dependency trees."""
    return [Sample(tree.text, source_arcs=tree.arcs) for tree in trees]


def from_lines(lines: Iterable[str], name: str) -> list[Sample]:
    """Return samples from tab-separated lines; name: of the file, for errors."""
    samples = []
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if len(cells) > 3:
            raise DataError(
                f"{name} line {number} has {len(cells)} columns; expected at most 3, separated by tabs",
                hint="give the source, the target and the alignment (0-0 1-2 …)",
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


def fill_targets(system: System, samples: Sequence[Sample], config: SearchConfig) -> list[Sample]:
    """Return the samples, with each missing target replaced by the model's translation of its source."""
    sources = [sample.source for sample in samples if sample.target is None]
    translations = translate(system, sources, config)
    return [sample._replace(target=next(translations).text) if sample.target is None else sample for sample in samples]


def pairs_of(system: System, samples: Sequence[Sample]) -> list[AnnotatedPair]:
    """Return tokenized samples; those that are empty, too long, or have tokens across word boundaries are skipped."""
    source, target = system.source_tokenizer, system.target_tokenizer
    pairs = []
    for sample in samples:
        source_pieces = pieces_of(source, sample.source, sample.source_arcs, system.max_length)
        target_pieces = pieces_of(target, sample.target or "", sample.target_arcs, system.max_length)
        if source_pieces is None or target_pieces is None:
            continue
        words = max(source_pieces.words) + 1, max(target_pieces.words) + 1
        if sample.alignment is None or all(i < words[0] and j < words[1] for i, j in sample.alignment.possible):
            pairs.append(AnnotatedPair(source_pieces, target_pieces, sample.alignment))
    return pairs


def texts_of(system: System, samples: Sequence[Sample]) -> list[AnnotatedPair]:
    """Return the tokenized sources as targets, for a language model."""
    tokenizer, longest = system.target_tokenizer, system.max_length
    texts = (pieces_of(tokenizer, sample.source, sample.source_arcs, longest) for sample in samples)
    return [AnnotatedPair(None, pieces) for pieces in texts if pieces is not None]


def pieces_of(tokenizer: Tokenizer, text: str, arcs: Sequence[Arc] | None, limit: int) -> Pieces | None:
    """Return the tokenized text; None if it is empty, too long, or has tokens across word boundaries."""
    ids = tokenizer.encode(text)
    if not 0 < len(ids) < limit:
        return None
    words = words_of(tokenizer, text, ids)
    return Pieces(ids, words, arcs) if len(set(words)) == len(text.split()) else None


def words_of(tokenizer: Tokenizer, text: str, ids: list[int]) -> list[int]:
    """Return the word index of each piece: exact if words are tokenized separately, else by the spelling of the pieces."""
    parts = tokenizer.encode_many(text.split())
    if [id for part in parts for id in part] == ids:
        return [word for word, part in enumerate(parts) for _ in part]
    return tokenizer.word_of(ids)


def frequencies_in(tokenizer: Tokenizer, lines: Sequence[str]) -> Tensor:
    """Count the occurrences of each id: (vocab,)."""
    counts = torch.zeros(len(tokenizer), dtype=torch.long)
    for ids in tokenizer.encode_many(lines):
        counts += torch.bincount(torch.tensor(ids, dtype=torch.long), minlength=len(tokenizer))
    return counts
