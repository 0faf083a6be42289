"""Translation: text -> encode -> start -> search -> decode. Validation, the command line and the server all call this.

    for translation in translate(system, lines, SearchConfig(beam=5)): print(translation.text)

Lines are collected in chunks, sorted by length and searched in batches; translations are returned in the order of the lines.
A line longer than the model was trained for is split at sentence ends; its k-th candidate joins the k-th of every part.

Every line has exactly `n_best` candidates. Those of an empty line are empty, with score 0. Where search returns fewer (a
short limit or a tiny vocabulary allows no more), the last one is repeated.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.data.input_lines import checked_chunks, chunk_lines, refuse_too_long
from heedful.data.split_text import join_translations, split_to_fit
from heedful.errors import ConfigError
from heedful.nn.decoder_state import States
from heedful.nn.hooks import any_hooks
from heedful.search import (
    GraphInputs,
    Hypothesis,
    NonFiniteScores,
    SearchConfig,
    SearchResult,
    SourceBatch,
    Sources,
    StepFunction,
    ensemble,
    length_limits,
    search,
    search_steps,
    step_function,
)
from heedful.tasks.batches import source_tensors
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


class Piece(NamedTuple):
    """A source to search: a line, or a part of a long one."""

    source_id: int  # unique in a search
    ids: list[int]
    prefix: list[int]  # target tokens that the translation must start with
    text: str


def translate(
    system: System, lines: Iterable[str], config: SearchConfig, prefixes: Iterable[str] | None = None
) -> Iterator[Translation]:
    """Yield the translation of each line, in order; prefixes: text that each translation must start with."""
    return translate_chunks(system, chunk_lines(lines), config, prefixes)


def translate_chunks(
    system: System, chunks: Iterable[Sequence[str]], config: SearchConfig, prefixes: Iterable[str] | None = None
) -> Iterator[Translation]:
    """`translate` for lines in chunks: the translations of a chunk are yielded before the next chunk is read."""
    for first, given in checked_chunks(with_prefixes(chunks, prefixes), check_line):
        yield from translate_chunk(system, given, config, first - 1)


class InputLine(NamedTuple):
    text: str
    prefix: str  # that its translation must start with


def with_prefixes(chunks: Iterable[Sequence[str]], prefixes: Iterable[str] | None) -> Iterator[list[InputLine]]:
    """Yield each line with its prefix, in chunks; an error unless there is one for each line."""
    prefix_lines = None if prefixes is None else iter(prefixes)
    number = 0
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
    lines, prefixes = [line.text for line in given], [line.prefix for line in given]
    pieces: list[Piece] = []
    pieces_of: list[range] = []  # indices of each line's pieces
    encoded = system.source_tokenizer.encode_many(lines)
    for index, (line, ids, prefix) in enumerate(zip(lines, encoded, prefixes, strict=True)):
        parts = split_line(system, line, ids)
        pieces_of.append(range(len(pieces), len(pieces) + len(parts)))
        prefix_ids = system.target_tokenizer.encode(prefix) if prefix else []
        for at, (text, part) in enumerate(parts):
            pieces.append(Piece(make_source_id(number + index, at), part, prefix_ids if at == 0 else [], text))
    candidates = decode_pieces(system, pieces, config)
    return [
        Translation(line, join_candidates([candidates[i] for i in indices], [pieces[i].text for i in indices]))
        for line, indices in zip(lines, pieces_of, strict=True)
    ]


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


def decode_pieces(system: System, pieces: Sequence[Piece], config: SearchConfig) -> list[list[Candidate]]:
    """`config.n_best` candidates of each piece; pieces of similar length are searched together, longest first."""
    candidates: list[list[Candidate]] = [[Candidate("", 0.0, 0.0, [])] * config.n_best for _ in pieces]
    reader = attention_reader(system, config)
    search_config = config.model_copy(update={"n_best": config.beam}) if config.coverage else config  # to be reranked
    index_of = {piece.source_id: i for i, piece in enumerate(pieces)}
    ordered = sorted((piece for piece in pieces if piece.ids), key=lambda piece: len(piece.ids), reverse=True)
    for group in search_groups(system, ordered, config):
        for source_id, hypotheses in check_finite(system, search_pieces(system, group, search_config)):
            i = index_of[source_id]
            if reader is not None and config.coverage:
                hypotheses = rescore_by_coverage(reader, pieces[i].ids, hypotheses, config)
            best = [to_candidate(system, hypothesis) for hypothesis in hypotheses]
            best += best[-1:] * (config.n_best - len(best))
            if reader is not None and config.replace_unknown:
                best = [replace_unknown(reader, pieces[i], candidate, config) for candidate in best]
            candidates[i] = best
    return candidates


def check_finite(system: System, results: Iterator[SearchResult]) -> Iterator[SearchResult]:
    """Yield the results; scores that are not finite raise an error with the number of the line."""
    try:
        yield from results
    except NonFiniteScores as error:
        raise system.nonfinite_error(f"line {line_of(error.source_id) + 1}") from error


def attention_reader(system: System, config: SearchConfig) -> AttentionReader | None:
    model = attention_model(system.models, config)
    return None if model is None else AttentionReader(model, system.source_tokenizer, system.target_tokenizer, system.device)


def replace_unknown(reader: AttentionReader, piece: Piece, candidate: Candidate, config: SearchConfig) -> Candidate:
    dictionary = {} if config.dictionary is None else read_dictionary(config.dictionary)
    text = replace_unknown_words(reader, piece.ids, piece.text, candidate.tokens, dictionary)
    return candidate if text is None else candidate._replace(text=text)


def batch_capacity(system: System, longest: Piece, config: SearchConfig) -> int:
    """Number of pieces to search at a time where none is longer than this one."""
    return max(1, system.batch_tokens // ((len(longest.ids) + 1) * config.rows))


def search_groups(system: System, ordered: Sequence[Piece], config: SearchConfig) -> Iterator[list[Piece]]:
    """Group pieces to be searched together. On a GPU a step of a large batch costs little more: all that fit are one group."""
    if ordered and system.device.type == "cuda" and len(ordered) <= batch_capacity(system, ordered[0], config):
        return iter([list(ordered)])
    return similar_lengths(ordered)


def similar_lengths(ordered: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Start a new group where a piece is less than half as long as the first: every piece takes the memory of the longest."""
    start = 0
    for at, piece in enumerate(ordered):
        if 2 * (len(piece.ids) + 1) < len(ordered[start].ids) + 1:
            yield list(ordered[start:at])
            start = at
    if start < len(ordered):
        yield list(ordered[start:])


@torch.inference_mode()
def search_pieces(system: System, pieces: Sequence[Piece], config: SearchConfig) -> Iterator[SearchResult]:
    """Yield the results of pieces, given longest first, as they are finished; at most `batch_capacity` at a time."""
    specials, sources = system.target_tokenizer.specials, piece_sources(system, pieces, config)
    yield from search(next_token(system), sources, config, start=specials.start, end=specials.end, engines=system.engines)


@torch.inference_mode()
def decode_by_steps(system: System, piece: Piece, config: SearchConfig) -> Generator[list[int], None, list[Candidate]]:
    """Decode one piece: yield the tokens of the first hypothesis after each step, and return all candidates, best first."""
    specials, sources = system.target_tokenizer.specials, piece_sources(system, [piece], config)
    try:
        found = yield from search_steps(next_token(system), sources, config, start=specials.start, end=specials.end)
    except NonFiniteScores as error:
        raise system.nonfinite_error("the last turn") from error
    return [to_candidate(system, hypothesis) for hypothesis in found]


def next_token(system: System) -> StepFunction:
    """The step function of the model or the ensemble."""
    members = [step_function(model) for model in system.models]
    return members[0] if len(members) == 1 else ensemble(members)


def piece_sources(system: System, pieces: Sequence[Piece], config: SearchConfig) -> Sources:
    """The pieces, given longest first, as sources of a search."""
    lengths, prefixes = (torch.tensor([len(getattr(piece, part)) for piece in pieces]) for part in ("ids", "prefix"))
    limits = length_limits(config, lengths, prefixes)
    model_limits = [model.max_length for model in system.models if model.max_length is not None]
    if model_limits:
        limits = limits.clamp(max=min(model_limits))
        if prefixes.max() >= min(model_limits):
            raise ConfigError(
                f"a prefix has {int(prefixes.max())} tokens; this model generates at most {min(model_limits) - 1}"
            )
    capacity = batch_capacity(system, pieces[0], config)
    source_length, max_limit, max_prefix = len(pieces[0].ids) + 1, int(limits.max()), int(prefixes.max())
    captures = system.device.type == "cuda" and not any_hooks()  # a replayed step calls no hook
    if captures:  # few shapes, so that captured steps are reused
        capacity = min(capacity, 2 ** (len(pieces) - 1).bit_length())
        source_length, max_limit, max_prefix = round_up(source_length, 16), round_up(max_limit, 32), round_up(max_prefix, 16)
    exceed_capacity = len(pieces) > capacity
    started = 0

    def start(source: Tensor, mask: Tensor | None, slots: int) -> States:
        source, mask = source.to(system.device), None if mask is None else mask.to(system.device)
        states = tuple(model.start(source, mask, room=slots) for model in system.models)
        return states[0] if len(states) == 1 else states

    def placeholder_states(sources: int, slots: int) -> States:
        source = torch.full((sources, source_length), system.source_tokenizer.specials.end)
        return start(source, torch.ones_like(source, dtype=torch.bool), slots)

    def start_batch(count: int, slots: int) -> SourceBatch | None:
        nonlocal started
        chosen, chosen_limits = pieces[started : started + count], limits[started : started + count]
        started += count
        if not chosen:
            return None
        source, mask = source_tensors([piece.ids for piece in chosen], system.source_tokenizer.specials)
        if mask is None and (exceed_capacity or captures):
            mask = torch.ones_like(source, dtype=torch.bool)  # sources that are inserted later may need one
        source_ids = [piece.source_id for piece in chosen]
        states = start(source, mask, slots)
        return SourceBatch(states, chosen_limits.to(system.device), source_ids, [piece.prefix for piece in chosen])

    graph = GraphInputs(source_length, placeholder_states, system.device) if captures else None
    return Sources(start_batch, capacity, max_limit, max_prefix, exceed_capacity, graph)


def round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def to_candidate(system: System, hypothesis: Hypothesis) -> Candidate:
    """Decode a hypothesis to text."""
    text = system.target_tokenizer.decode(hypothesis.tokens)
    return Candidate(text, hypothesis.score, hypothesis.log_probability, hypothesis.tokens)
