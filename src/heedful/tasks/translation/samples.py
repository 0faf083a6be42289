"""Sentence pairs of a run's data for analyses, with gold alignments and dependency arcs where the data has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heedful.data.grammar import generate
from heedful.data.pairs import pairs
from heedful.data.samples import Sample, from_grammar
from heedful.data.sources import builtin_pairs
from heedful.data.splits import DataConfig, splits_of
from heedful.evaluation.word_alignment import Alignment
from heedful.search import SearchConfig
from heedful.tasks.forced import EncodedSample, pieces_of
from heedful.tasks.system import System
from heedful.tasks.translation.translate import translate


def pair_samples(data: DataConfig, split: str) -> Iterator[Sample]:
    """The pairs of a split; those of the built-in grammar with arcs and alignment, those of a toy with alignment."""
    for corpus in getattr(splits_of(data), split):
        if isinstance(corpus.builtin, str):
            for pair in builtin_pairs(corpus):
                yield Sample(pair.source, pair.target, alignment=Alignment(pair.alignment, pair.alignment))
        elif corpus.builtin:
            yield from from_grammar(generate(corpus.split or "train", corpus.count or 0, corpus.seed or 0))
        else:
            yield from (Sample(pair.source, pair.target) for pair in pairs(corpus, max_ratio=data.max_ratio))


def fill_targets(system: System, samples: Sequence[Sample], config: SearchConfig) -> list[Sample]:
    """The samples, with each missing target replaced by the model's translation of its source."""
    sources = [sample.source or "" for sample in samples if sample.target is None]
    translations = translate(system, sources, config)
    return [sample._replace(target=next(translations).text) if sample.target is None else sample for sample in samples]


def encode_pairs(system: System, samples: Sequence[Sample]) -> list[EncodedSample]:
    """Tokenized samples; those that are empty, too long, or have tokens across word boundaries are left out."""
    source, target = system.source_tokenizer, system.target_tokenizer
    encoded = []
    for sample in samples:
        source_pieces = pieces_of(source, sample.source or "", sample.source_arcs, system.max_length)
        target_pieces = pieces_of(target, sample.target or "", sample.target_arcs, system.max_length)
        if source_pieces is None or target_pieces is None:
            continue
        words = max(source_pieces.words) + 1, max(target_pieces.words) + 1
        if sample.alignment is None or all(i < words[0] and j < words[1] for i, j in sample.alignment.possible):
            encoded.append(EncodedSample(source_pieces, target_pieces, sample.alignment))
    return encoded
