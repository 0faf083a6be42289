"""Translation: text -> encode -> start -> search -> decode. Validation and the command line call this; the server decodes the
same pieces by continuous batching (job.py).

    for translation in translate(system, lines, SearchConfig(beam=5)): print(translation.text)

Lines are collected in chunks, sorted by length and searched in batches; translations are returned in the order of the lines.
A line longer than the model was trained for is split at sentence ends; its k-th candidate joins the k-th of every part.

Every line has exactly `n_best` candidates. Those of an empty line are empty, with score 0. Where search returns fewer (a
short limit or a tiny vocabulary allows no more), the last one is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from heedful.data.input_lines import checked_chunks, chunk_lines, refuse_too_long
from heedful.data.split_text import join_translations, split_to_fit
from heedful.errors import ConfigError
from heedful.search import Hypothesis, NonFiniteScores, SearchConfig, SearchResult
from heedful.tasks.decoding import Decoder, Piece, search_groups, search_pieces
from heedful.tasks.system import System
from heedful.tasks.translation.attention_reader import (
    AttentionReader,
    attention_model,
    read_dictionary,
    replace_unknown_words,
    rescore_by_coverage,
)

LINE_BITS = 40  # bits of a source id for the line, see `make_source_id`


def make_source_id(line: int, part: int) -> int:
    """A unique number for a part of a line, both counted from 0: the line in the low 40 bits, the part above them.

    Random numbers are keyed by (seed, source id), so the samples of a line depend on its number, not on its batch."""
    return line + (part << LINE_BITS)


def line_of(source_id: int) -> int:
    """The line of a source id, from 0."""
    return source_id % (1 << LINE_BITS)


class Candidate(NamedTuple):
    text: str
    score: float
    log_probability: float
    tokens: list[int]

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "score": self.score, "log_probability": self.log_probability}


def candidate_rows(candidates: Sequence[Candidate]) -> list[str]:
    """The lines to print: the only text, or the score and the text of every candidate."""
    if len(candidates) == 1:
        return [candidates[0].text]
    return [f"{candidate.score:.4f}\t{candidate.text}" for candidate in candidates]


class Translation(NamedTuple):
    source: str
    candidates: list[Candidate]  # best first, at least one

    @property
    def text(self) -> str:
        return self.candidates[0].text

    def rows(self) -> list[str]:
        return candidate_rows(self.candidates)

    def to_dict(self) -> dict[str, Any]:
        best = self.candidates[0]
        candidates = [candidate.to_dict() for candidate in self.candidates]
        found = {"source": self.source, "translation": best.text, "score": best.score}
        return found | {"log_probability": best.log_probability, "candidates": candidates}


def translate(
    system: System, lines: Iterable[str], config: SearchConfig, prefixes: Iterable[str] | None = None
) -> Iterator[Translation]:
    """Yield the translation of each line, in order; prefixes: text that each translation must start with."""
    return translate_chunks(system, chunk_lines(lines), config, prefixes)


def translate_chunks(
    system: System,
    chunks: Iterable[Sequence[str]],
    config: SearchConfig,
    prefixes: Iterable[str] | None = None,
    first: int = 1,
) -> Iterator[Translation]:
    """`translate` for lines in chunks: the translations of a chunk are yielded before the next chunk is read. first: the number
    of the first line."""
    for number, given in checked_chunks(with_prefixes(chunks, prefixes, first), check_line, first):
        yield from translate_chunk(system, given, config, number - 1)


class InputLine(NamedTuple):
    text: str
    prefix: str  # that its translation must start with


def with_prefixes(chunks: Iterable[Sequence[str]], prefixes: Iterable[str] | None, first: int = 1) -> Iterator[list[InputLine]]:
    """Yield each line with its prefix, in chunks; an error unless there is one for each line; first: number of the first."""
    prefix_lines = None if prefixes is None else iter(prefixes)
    number = first - 1
    for chunk in chunks:
        given = [""] * len(chunk) if prefix_lines is None else list(islice(prefix_lines, len(chunk)))
        yield [InputLine(*line) for line in zip(chunk, given, strict=False)]
        number += len(given)
        if len(given) < len(chunk):
            raise ConfigError(f"line {number + 1} has no prefix: {number} prefixes were given; expected one for each line")
    if prefix_lines is not None and next(prefix_lines, None) is not None:
        raise ConfigError(f"more prefixes were given than the {number} lines; expected one for each line")


def check_line(line: InputLine, number: int) -> InputLine:
    """The line; an error if it is too long."""
    refuse_too_long(line.text, f"line {number}")
    refuse_too_long(line.prefix, f"the prefix of line {number}")
    return line


def translate_chunk(system: System, given: Sequence[InputLine], config: SearchConfig, number: int) -> list[Translation]:
    """Translate some lines at once; number: the number of the first line, from 0."""
    encoded = system.source_tokenizer.encode_many([line.text for line in given])
    parts = [
        pieces_of_line(system, line, ids, number + index) for index, (line, ids) in enumerate(zip(given, encoded, strict=True))
    ]
    candidates = iter(decode_pieces(system, [piece for pieces in parts for piece in pieces], config))
    return [
        Translation(line.text, join_candidates([next(candidates) for _ in pieces], [piece.text for piece in pieces]))
        for line, pieces in zip(given, parts, strict=True)
    ]


def pieces_of_line(system: System, line: InputLine, ids: list[int], number: int) -> list[Piece]:
    """The pieces of a line, whose tokens are given; number: of the line, from 0."""
    prefix = system.target_tokenizer.encode(line.prefix) if line.prefix else []
    return [
        Piece(make_source_id(number, at), part, prefix if at == 0 else [], text)
        for at, (text, part) in enumerate(split_line(system, line.text, ids))
    ]


def line_pieces(system: System, line: InputLine, number: int) -> list[Piece]:
    """The pieces of one line; an error if it is too long."""
    refuse_too_long(line.text, "the text")
    refuse_too_long(line.prefix, "the prefix")
    return pieces_of_line(system, line, system.source_tokenizer.encode(line.text), number)


def split_line(system: System, line: str, ids: list[int]) -> list[tuple[str, list[int]]]:
    """The (text, ids) of a line, or of its parts where it is longer than `system.max_length`."""
    if len(ids) <= system.max_length:
        return [(line, ids)]
    parts = split_to_fit(line, lambda text: len(system.source_tokenizer.encode(text)) <= system.max_length)
    return list(zip(parts, system.source_tokenizer.encode_many(parts), strict=True))


def join_candidates(candidates: list[list[Candidate]], parts: list[str]) -> list[Candidate]:
    """Join the k-th candidates of a long line's parts, with the white space that separated the parts."""
    if len(candidates) == 1:
        return candidates[0]
    return [
        Candidate(
            join_translations(parts, [part.text for part in kth]),
            sum(part.score for part in kth),
            sum(part.log_probability for part in kth),
            [token for part in kth for token in part.tokens],
        )
        for kth in zip(*candidates, strict=True)
    ]


def decode_pieces(
    system: System, pieces: Sequence[Piece], config: SearchConfig, decoder: Decoder | None = None
) -> list[list[Candidate]]:
    """`config.n_best` candidates of each piece; pieces of similar length are searched together, longest first. decoder:
    default: that of texts."""
    reader, decoder = attention_reader(system, config), decoder or pair_decoder(system)
    piece_of = {piece.source_id: piece for piece in pieces}
    ordered = sorted((piece for piece in pieces if piece.ids), key=lambda piece: len(piece.ids), reverse=True)

    def decode(share: Sequence[Piece]) -> dict[int, list[Candidate]]:
        found = {}
        for group in search_groups(decoder, share, config):
            for source_id, hypotheses in check_finite(system, search_pieces(decoder, group, piece_config(config))):
                found[source_id] = finish_piece(system, piece_of[source_id], hypotheses, config, reader)
        return found

    candidates: dict[int, list[Candidate]] = {}
    ranks = system.ranks
    for part in ranks.map(decode, [ordered[rank :: ranks.size] for rank in range(ranks.size)]):
        candidates |= part
    return [candidates.get(piece.source_id) or empty_candidates(config) for piece in pieces]


def empty_candidates(config: SearchConfig) -> list[Candidate]:
    """The candidates of an empty text."""
    return [Candidate("", 0.0, 0.0, [])] * config.n_best


def piece_config(config: SearchConfig) -> SearchConfig:
    """The options of the search itself: a coverage penalty reranks the whole beam afterwards."""
    return config.model_copy(update={"n_best": config.beam}) if config.coverage else config


def finish_piece(
    system: System, piece: Piece, hypotheses: Sequence[Hypothesis], config: SearchConfig, reader: AttentionReader | None
) -> list[Candidate]:
    """`config.n_best` candidates from the hypotheses of a piece: reranked, decoded, unknown words replaced."""
    if reader is not None and config.coverage:
        hypotheses = rescore_by_coverage(reader, piece.ids, hypotheses, config)
    best = [to_candidate(system, hypothesis) for hypothesis in hypotheses]
    best += best[-1:] * (config.n_best - len(best))
    if reader is not None and config.replace_unknown:
        best = [replace_unknown(reader, piece, candidate, config) for candidate in best]
    return best


def check_finite(system: System, results: Iterator[SearchResult]) -> Iterator[SearchResult]:
    """Yield the results; scores that are not finite raise an error with the number of the line."""
    try:
        yield from results
    except NonFiniteScores as error:
        raise system.nonfinite_error(f"line {line_of(error.source_id) + 1}") from error


def pair_decoder(system: System) -> Decoder:
    """The decoder of a system that maps a source to a target."""
    specials = system.target_tokenizer.specials
    return Decoder(system, specials.start, specials.end)


def attention_reader(system: System, config: SearchConfig) -> AttentionReader | None:
    model = attention_model(system.models, config)
    return None if model is None else AttentionReader(model, system.source_tokenizer, system.target_tokenizer, system.device)


def replace_unknown(reader: AttentionReader, piece: Piece, candidate: Candidate, config: SearchConfig) -> Candidate:
    dictionary = {} if config.dictionary is None else read_dictionary(config.dictionary)
    text = replace_unknown_words(reader, piece.ids, piece.text, candidate.tokens, dictionary)
    return candidate if text is None else candidate._replace(text=text)


def to_candidate(system: System, hypothesis: Hypothesis) -> Candidate:
    """Decode a hypothesis to text."""
    text = system.target_tokenizer.decode(hypothesis.tokens)
    return Candidate(text, hypothesis.score, hypothesis.log_probability, hypothesis.tokens)
