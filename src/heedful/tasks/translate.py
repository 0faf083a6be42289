"""Translating: text -> encode -> start -> search -> decode. Validation, the command line and the server all call this.

    for translation in translate(system, lines, SearchConfig(beam=5)): print(translation.text)

Lines are gathered, sorted by length and searched in batches; they come out in the order they came in. A line longer than
the model was trained for is split at sentence ends and joined again; its k-th candidate is that of the k-th of every part.

Every line has exactly `n_best` candidates. An empty line has empty ones with score 0. Where a search finds fewer (a short
limit or a tiny vocabulary leaves no more), the last one is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.data.input_lines import refuse_too_long
from heedful.data.split_text import join_translations, split_to_fit
from heedful.errors import CheckpointError, ConfigError, DivergedError, HeedfulError
from heedful.models import SequenceModel
from heedful.nn.decoder_state import States
from heedful.nn.hooks import any_hooks
from heedful.search import (
    Answer,
    Engines,
    Group,
    Hypothesis,
    NonFiniteScores,
    Query,
    SearchConfig,
    ensemble,
    limits_for,
    search,
    step_function,
)
from heedful.tasks.attention_reader import (
    AttentionReader,
    attention_model,
    read_dictionary,
    replace_unknown_words,
    rescore_by_coverage,
)
from heedful.tasks.batches import collate, source_tensors
from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class System:
    """One model or several, with what turns text into its ids and back."""

    models: Sequence[SequenceModel]  # several: an ensemble
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    device: torch.device
    max_length: int = 256  # tokens of a source
    engines: Engines = field(default_factory=dict, compare=False, repr=False)  # searches captured on a GPU
    checkpoint: Path | None = None  # where the weights come from; None: they are being trained

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("a system needs at least one model, but was given none")

    @property
    def batch_tokens(self) -> int:
        """How many tokens to work on at a time: enough to keep the machine busy, no more than fit into its memory."""
        if self.device.type != "cuda":
            return 2**13
        return 2**15 * max(1, torch.cuda.get_device_properties(self.device).total_memory >> 34)  # for every 16 GiB

    @property
    def scored_tokens(self) -> int:
        """How many to score at a time: each has logits for the whole vocabulary, which take far more room than its state."""
        return min(self.batch_tokens, 2**14)

    def not_finite(self, place: str) -> HeedfulError:
        """The error for scores that are NaN or infinite; place: of what text."""
        what = f"the model's scores are not finite at {place}"
        if self.checkpoint is None:
            return DivergedError(
                f"{what}: training diverged", hint="a lower training.schedule.learning_rate, or a longer warmup"
            )
        whose = self.checkpoint if len(self.models) == 1 else f"{self.checkpoint} or of another run of the ensemble"
        return CheckpointError(
            f"{what}; the weights of {whose} are damaged, or training diverged",
            hint="choose another --checkpoint, or train again",
        )


GATHER = 2048  # lines that are sorted by length together
LINE_BITS = 40  # of a piece's name: the number of its line; above them stands which part of the line it is


class Candidate(NamedTuple):
    text: str
    score: float
    log_probability: float
    tokens: list[int]


class Translation(NamedTuple):
    source: str
    candidates: list[Candidate]  # best first, at least one

    @property
    def text(self) -> str:
        return self.candidates[0].text


class Piece(NamedTuple):
    """Something to search for: a line, or a part of a long one."""

    name: int  # unique in this call
    ids: list[int]
    prefix: list[int]
    text: str


def translate(
    system: System, lines: Iterable[str], config: SearchConfig, prefixes: Iterable[str] | None = None
) -> Iterator[Translation]:
    """Translations in the order of the lines."""
    return translate_chunks(system, in_chunks(lines), config, prefixes)


def in_chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    """So many lines at a time; when the lines break off with an error, those before it come first."""
    chunk: list[str] = []
    try:
        for line in lines:
            chunk.append(line)
            if len(chunk) == GATHER:
                yield chunk
                chunk = []
    except HeedfulError:
        yield chunk
        raise
    if chunk:
        yield chunk


def translate_chunks(
    system: System, chunks: Iterable[Sequence[str]], config: SearchConfig, prefixes: Iterable[str] | None = None
) -> Iterator[Translation]:
    """As `translate`, for lines that come in chunks; each chunk is answered before the next is asked for."""
    starts = None if prefixes is None else iter(prefixes)
    number = 0
    for chunk in chunks:
        begun = [""] * len(chunk) if starts is None else list(islice(starts, len(chunk)))
        yield from translate_chunk(system, chunk[: len(begun)], begun, config, number)
        number += len(begun)
        if len(begun) < len(chunk):
            raise ConfigError(f"line {number + 1} has no prefix: {number} prefixes were given; expected one for each line")
    if starts is not None and next(starts, None) is not None:
        raise ConfigError(f"more prefixes were given than the {number} lines; expected one for each line")


def translate_chunk(
    system: System, lines: Sequence[str], prefixes: Sequence[str], config: SearchConfig, number: int
) -> list[Translation]:
    pieces: list[Piece] = []
    places: list[range] = []  # for each line where its pieces stand
    for at, (line, prefix) in enumerate(zip(lines, prefixes, strict=True), start=number + 1):
        refuse_too_long(line, f"line {at}")
        refuse_too_long(prefix, f"the prefix of line {at}")
    encoded = system.source_tokenizer.encode_many(lines)
    for index, (line, ids, prefix) in enumerate(zip(lines, encoded, prefixes, strict=True)):
        parts = parts_of(system, line, ids)
        places.append(range(len(pieces), len(pieces) + len(parts)))
        begun = system.target_tokenizer.encode(prefix) if prefix else []
        for at, (text, part) in enumerate(parts):
            pieces.append(Piece(number + index + (at << LINE_BITS), part, begun if at == 0 else [], text))
    found = search_all(system, pieces, config)
    return [
        Translation(line, join([found[place] for place in where], [pieces[place].text for place in where]))
        for line, where in zip(lines, places, strict=True)
    ]


def parts_of(system: System, line: str, ids: list[int]) -> list[tuple[str, list[int]]]:
    """The line and its ids, or where it is too long its parts and theirs."""
    if len(ids) <= system.max_length:
        return [(line, ids)]
    parts = split_to_fit(line, lambda text: len(system.source_tokenizer.encode(text)) <= system.max_length)
    return list(zip(parts, system.source_tokenizer.encode_many(parts), strict=True))


def join(found: list[list[Candidate]], parts: list[str]) -> list[Candidate]:
    """The k-th candidates of a long line's parts as its k-th, with the white space that stood between the parts."""
    if len(found) == 1:
        return found[0]
    return [
        Candidate(
            join_translations(parts, [one.text for one in kth]),
            sum(one.score for one in kth),
            sum(one.log_probability for one in kth),
            [token for one in kth for token in one.tokens],
        )
        for kth in zip(*found, strict=True)
    ]


def search_all(system: System, pieces: Sequence[Piece], config: SearchConfig) -> list[list[Candidate]]:
    """`config.n_best` candidates of each piece; those of like length are searched together, the longest first."""
    found: list[list[Candidate]] = [[Candidate("", 0.0, 0.0, [])] * config.n_best for _ in pieces]
    reader = attention_reader(system, config)
    found_by = config.model_copy(update={"n_best": config.beam}) if config.coverage else config
    place = {piece.name: i for i, piece in enumerate(pieces)}
    ordered = sorted((piece for piece in pieces if piece.ids), key=lambda piece: len(piece.ids), reverse=True)
    for alike in search_groups(system, ordered, config):
        for name, hypotheses in check_finite(system, search_pieces(system, alike, found_by)):
            i = place[name]
            if reader is not None and config.coverage:
                hypotheses = rescore_by_coverage(reader, pieces[i].ids, hypotheses, config)
            found[i] = [candidate(system, hypothesis) for hypothesis in hypotheses]
            found[i] += found[i][-1:] * (config.n_best - len(found[i]))
            if reader is not None and config.replace_unknown:
                found[i] = [replace_unknown(reader, pieces[i], one, config) for one in found[i]]
    return found


def check_finite(system: System, answers: Iterator[Answer]) -> Iterator[Answer]:
    """The answers; scores that are not finite are an error that names the line."""
    try:
        yield from answers
    except NonFiniteScores as error:
        raise system.not_finite(f"line {error.name % 2**LINE_BITS + 1}") from error


def attention_reader(system: System, config: SearchConfig) -> AttentionReader | None:
    model = attention_model(system.models, config)
    return None if model is None else AttentionReader(model, system.source_tokenizer, system.target_tokenizer, system.device)


def replace_unknown(reader: AttentionReader, piece: Piece, one: Candidate, config: SearchConfig) -> Candidate:
    known = {} if config.dictionary is None else read_dictionary(config.dictionary)
    text = replace_unknown_words(reader, piece.ids, piece.text, one.tokens, known)
    return one if text is None else one._replace(text=text)


def batch_capacity(system: System, longest: Piece, config: SearchConfig) -> int:
    """How many pieces can be searched at a time where none is longer than this one."""
    return max(1, system.batch_tokens // ((len(longest.ids) + 1) * config.rows))


def search_groups(system: System, ordered: Sequence[Piece], config: SearchConfig) -> Iterator[list[Piece]]:
    """A GPU takes as many steps for a few as for many, so all that fit at once are one group there."""
    if ordered and system.device.type == "cuda" and len(ordered) <= batch_capacity(system, ordered[0], config):
        return iter([list(ordered)])
    return similar_lengths(ordered)


def similar_lengths(ordered: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Cut where a piece is less than half as long as the first: what is searched together takes the room of the longest."""
    start = 0
    for at, piece in enumerate(ordered):
        if 2 * (len(piece.ids) + 1) < len(ordered[start].ids) + 1:
            yield list(ordered[start:at])
            start = at
    if start < len(ordered):
        yield list(ordered[start:])


def batches_of(order: Sequence[int], length: Callable[[int], int], budget: int) -> Iterator[list[int]]:
    """Longest first: each batch is as many as fit, one at least."""
    start = 0
    while start < len(order):
        count = max(1, budget // length(order[start]))
        yield list(order[start : start + count])
        start += count


@torch.inference_mode()
def search_pieces(system: System, pieces: Sequence[Piece], config: SearchConfig) -> Iterator[Answer]:
    """Answers as they are found; pieces wait until there is room for them."""
    lengths, begun = (torch.tensor([len(getattr(piece, part)) for piece in pieces]) for part in ("ids", "prefix"))
    limits = limits_for(config, lengths, begun)
    can_say = [model.max_length for model in system.models if model.max_length is not None]
    if can_say:
        limits = limits.clamp(max=min(can_say))
        if begun.max() >= min(can_say):
            raise ConfigError(f"a prefix has {int(begun.max())} tokens; this model generates at most {min(can_say) - 1}")
    capacity = batch_capacity(system, pieces[0], config)
    width, longest, prefix = len(pieces[0].ids) + 1, int(limits.max()), int(begun.max())
    captures = system.device.type == "cuda" and not any_hooks()  # a replayed step calls no hook
    if captures:  # few shapes, so that what was captured for one is used again
        capacity = min(capacity, 2 ** (len(pieces) - 1).bit_length())
        width, longest, prefix = round_up(width, 16), round_up(longest, 32), round_up(prefix, 16)
    more = len(pieces) > capacity
    arrived = 0

    def start(source: Tensor, mask: Tensor | None, slots: int) -> States:
        source, mask = source.to(system.device), None if mask is None else mask.to(system.device)
        states = tuple(model.start(source, mask, room=slots) for model in system.models)
        return states[0] if len(states) == 1 else states

    def blank(sources: int, slots: int) -> States:
        source = torch.full((sources, width), system.source_tokenizer.specials.end)
        return start(source, torch.ones_like(source, dtype=torch.bool), slots)

    def arrive(count: int, slots: int) -> Group | None:
        nonlocal arrived
        chosen = slice(arrived, arrived + count)
        arrived += count
        if not pieces[chosen]:
            return None
        source, mask = source_tensors([piece.ids for piece in pieces[chosen]], system.source_tokenizer.specials)
        if mask is None and (more or captures):
            mask = torch.ones_like(source, dtype=torch.bool)  # those who come later may need one
        names, prefixes = [piece.name for piece in pieces[chosen]], [piece.prefix for piece in pieces[chosen]]
        return Group(start(source, mask, slots), limits[chosen].to(system.device), names, prefixes)

    members = [step_function(model) for model in system.models]
    specials = system.target_tokenizer.specials
    query = Query(
        members[0] if len(members) == 1 else ensemble(members),
        arrive,
        specials.start,
        specials.end,
        capacity,
        longest,
        prefix,
        more,
        width,
        blank if captures else None,
        system.device,
    )
    yield from search(query, config, system.engines)


def round_up(number: int, pad_to_multiple_of: int) -> int:
    return -(-number // pad_to_multiple_of) * pad_to_multiple_of


def candidate(system: System, hypothesis: Hypothesis) -> Candidate:
    text = system.target_tokenizer.decode(hypothesis.tokens)
    return Candidate(text, hypothesis.score, hypothesis.log_probability, hypothesis.tokens)


def collate_one(system: System, source: list[int], target: list[int]) -> tuple[Tensor, Tensor]:
    batch = collate([source], [target], system.source_tokenizer.specials, system.target_tokenizer.specials)
    return batch.source.to(system.device), batch.target_in.to(system.device)
