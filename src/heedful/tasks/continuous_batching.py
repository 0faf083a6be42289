"""Continuous batching: pieces of text join a running batch at any step, and leave it as soon as they are finished (Orca, Yu et
al., 2022).

    batch = ContinuousBatch(decoder, capacity=64)
    batch.submit(job)
    while batch.busy:
        for job in batch.step(): …                    job.prediction()

A job is one input of a predictor: a line, which may have several parts, or a prompt with several samples. Pieces of similar
size and the same search options share an engine, so that long texts do not hold up short ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import torch

from heedful.search import GraphInputs, Hypothesis, SearchConfig, SourceBatch, Sources
from heedful.search.engine import MAX_ENGINES, POLL_EVERY, Engine
from heedful.tasks.decoding import Decoder, Piece, batch_capacity

MIN_SIZE = 32  # sizes of engines are powers of two from here on
MIN_PAIR_SIZE = 128  # of targets; on a GPU, where a step costs about the same for few rows as for many, of sources, too
MAX_CAPACITY = 256  # pieces of one engine
SPARSE = 8  # cache slots of an engine / tokens that are decoded at a time
# Pieces join when they are this part of those that are decoded (1 / the first number), or after so many calls of `step`. With
# captured steps, a joining piece costs little, but the encoding of those that join together costs as much as several steps.
ADMIT = {False: (16, 4), True: (4, 4)}  # by whether the engine captures its steps
MAX_IDLE = 6  # captured engines that are kept although no piece uses them


class Job(Protocol):
    """One input on its way to its prediction."""

    config: SearchConfig  # of the search; options of sampling may differ between pieces
    watched: bool  # whether `progress` is to be called after each step
    place: str  # what an error calls the input, as "line 3"

    @property
    def input_tokens(self) -> int: ...

    @property
    def output_tokens(self) -> int:
        """So far."""

    def pieces(self) -> list[Piece]:
        """What to decode first; numbered from 0 by their source ids."""

    def progress(self, piece: int, tokens: list[int]) -> bool:
        """Read the tokens so far of a piece; return whether it is complete, although its search is not."""

    def complete(self, piece: int, hypotheses: Sequence[Hypothesis] | None) -> list[Piece]:
        """Take the result of a piece, None if `progress` has completed it; return pieces to decode next."""

    def new_text(self, sample: int) -> str:
        """The text of a sample since the last call; only of a job that is watched."""

    def prediction(self) -> Any:
        """The result, when all pieces are complete."""


Result = tuple[int, Sequence[Hypothesis] | None]  # (source id, hypotheses); None: the job has stopped the search


class Shape(NamedTuple):
    """Pieces of the same shape share an engine."""

    config: SearchConfig
    source_length: int
    max_limit: int
    max_prefix: int


@dataclass
class Lane:
    """An engine and the pieces that wait for it."""

    shape: Shape
    waiting: deque[Piece] = field(default_factory=deque)
    engine: Engine | None = None
    waited: int = 0  # steps since the last pieces joined

    def is_time_to_admit(self) -> bool:
        """Whether waiting pieces join now: a few together are encoded faster than one by one."""
        self.waited += 1
        active = 0 if self.engine is None else sum(source_id is not None for source_id in self.engine.source_ids)
        share, every = ADMIT[self.engine is not None and self.engine.captures]
        if not self.waiting or (len(self.waiting) * share < active and self.waited < every):
            return False
        self.waited = 0
        return True

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or (self.engine is not None and self.engine.has_sources)


@dataclass
class Running:
    """A piece in the batch."""

    job: Job
    number: int  # among the pieces of its job
    shape: Shape


class ContinuousBatch:
    """All methods must be called from one thread."""

    def __init__(self, decoder: Decoder, capacity: int = MAX_CAPACITY) -> None:
        self.decoder, self.capacity = decoder, capacity
        self.lanes: dict[Shape, Lane] = {}
        self.running: dict[int, Running] = {}  # by source id
        self.left: dict[int, int] = {}  # unfinished pieces of each job, by its id()
        self.next_id = 0
        self.failures: list[tuple[Job, Exception]] = []  # jobs that ended with an error since the last call of `step`

    @property
    def busy(self) -> bool:
        return bool(self.running)

    @property
    def free(self) -> int:
        """Number of jobs that may still join. The pieces of a job with many take turns with those of others."""
        return self.capacity - len(self.left)

    def submit(self, job: Job) -> bool:
        """Queue the pieces of a job; return whether it has none and is complete."""
        pieces = job.pieces()
        if pieces:
            self.left[id(job)] = len(pieces)
            self.queue(job, pieces)
        return not pieces

    def queue(self, job: Job, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            limit = self.decoder.limit(piece, job.config)
            shape = self.shape_of(piece, limit, job.config)
            sampling = piece.sampling or job.config.sampling(piece.source_id)
            lane = self.lanes.setdefault(shape, Lane(shape))
            lane.waiting.append(piece._replace(source_id=self.next_id, limit=limit - 1, sampling=sampling))
            self.running[self.next_id] = Running(job, piece.source_id, shape)
            self.next_id += 1

    def shape_of(self, piece: Piece, limit: int, config: SearchConfig) -> Shape:
        length, longest = self.decoder.source_length(piece), self.decoder.system.max_length
        is_pair = self.decoder.ends_source
        source = max(length, min(next_size(length, MIN_PAIR_SIZE if is_pair and self.decoder.captures else MIN_SIZE), longest))
        target = next_size(limit - 1, MIN_PAIR_SIZE if is_pair else MIN_SIZE) + 1  # and the end token
        prefix = next_size(len(piece.prefix)) if piece.prefix else 0
        return Shape(engine_config(config), source, target, prefix)

    @torch.inference_mode()
    def cancel(self, job: Job) -> None:
        """Remove the pieces of a job."""
        self.remove([source_id for source_id, running in self.running.items() if running.job is job])
        self.left.pop(id(job), None)

    def remove(self, source_ids: Iterable[int]) -> None:
        for source_id in source_ids:
            lane = self.lanes[self.running.pop(source_id).shape]
            lane.waiting = deque(piece for piece in lane.waiting if piece.source_id != source_id)
            if lane.engine is not None and source_id in lane.engine.source_ids:
                lane.engine.stop([lane.engine.source_ids.index(source_id)])

    @torch.inference_mode()
    def step(self) -> list[Job]:
        """Let waiting pieces join, decode one token (a few with CUDA graphs) of every piece, and return the jobs that are
        complete. Jobs that failed are added to `failures`."""
        complete: list[Job] = []
        for lane in [lane for lane in self.lanes.values() if lane.busy]:
            for source_id, hypotheses in self.step_lane(lane):
                running = self.running.pop(source_id)
                if self.finish(running, hypotheses):
                    complete.append(running.job)
        self.drop_idle()
        return complete

    def finish(self, running: Running, hypotheses: Sequence[Hypothesis] | None) -> bool:
        """Give a job the result of a piece; return whether it is complete."""
        job = running.job
        try:
            if hypotheses is not None and not hypotheses:
                raise self.decoder.system.nonfinite_error(job.place)
            following = job.complete(running.number, hypotheses)
            self.queue(job, following)
        except Exception as error:
            self.cancel(job)
            self.failures.append((job, error))
            return False
        self.left[id(job)] += len(following) - 1
        if self.left[id(job)]:
            return False
        del self.left[id(job)]
        return True

    def step_lane(self, lane: Lane) -> Iterator[Result]:
        """Take steps in one engine and yield its results; those that a job has stopped have no hypotheses."""
        if lane.engine is None:
            lane.engine = self.start_engine(lane)
        elif lane.is_time_to_admit():
            if not lane.engine.has_sources:
                lane.engine.rewind()
            lane.engine.admit()
        engine = lane.engine
        watched = self.watched(engine)
        for _ in range(POLL_EVERY if engine.captures and not watched else 1):
            engine.step()
        yield from engine.collect_finished()
        yield from self.report_progress(engine)
        if not engine.captures and not engine.has_sources:
            lane.engine = None

    def watched(self, engine: Engine) -> list[int]:
        """Batch indices of the pieces whose jobs want to know their tokens."""
        return [
            i for i, source_id in enumerate(engine.source_ids) if source_id is not None and self.running[source_id].job.watched
        ]

    def report_progress(self, engine: Engine) -> Iterator[Result]:
        watched = self.watched(engine)
        for i, tokens in zip(watched, engine.unfinished_tokens(watched) if watched else (), strict=True):
            source_id = engine.source_ids[i]
            assert source_id is not None, "a watched piece is active"
            running = self.running[source_id]
            if running.job.progress(running.number, tokens):
                engine.stop([i])
                yield source_id, None

    def start_engine(self, lane: Lane) -> Engine:
        """An engine for the shape of a lane, with the first waiting pieces in it."""
        decoder, shape = self.decoder, lane.shape
        capacity = self.lane_capacity(shape)
        graph = None
        if decoder.captures:
            length = shape.source_length
            graph = GraphInputs(length, decoder.placeholder_states(length), decoder.system.device)

        def start_batch(count: int, slots: int) -> SourceBatch | None:
            pieces = self.take_turns(lane, count)
            if not pieces:
                return None
            return decoder.source_batch(pieces, slots, shape.config, length=shape.source_length, masked=True)

        sources = Sources(start_batch, capacity, shape.max_limit, shape.max_prefix, exceed_capacity=True, graph=graph)
        engine = decoder.system.engines.pop((shape, capacity), None) or Engine(
            decoder.next_token(), sources, shape.config, start=decoder.start, end=decoder.end
        )
        if engine.captures:
            engine.restart(decoder.next_token(), sources)
        engine.waiting = False  # `admit` starts waiting pieces
        engine.shrink_at = 2  # shrinking copies the cache, and other pieces may take the free places soon
        return engine

    def take_turns(self, lane: Lane, count: int) -> list[Piece]:
        """Take up to `count` waiting pieces, one of each job in turn, so that a long text does not hold up short ones."""
        if count <= 0 or not lane.waiting:
            return []
        turns: dict[int, int] = {}  # job -> pieces before
        order = []
        for at, piece in enumerate(lane.waiting):
            job = id(self.running[piece.source_id].job)
            order.append((turns.get(job, 0), at))
            turns[job] = turns.get(job, 0) + 1
        chosen = [at for _, at in sorted(order)[:count]]
        pieces = [lane.waiting[at] for at in chosen]
        taken = set(chosen)
        lane.waiting = deque(piece for at, piece in enumerate(lane.waiting) if at not in taken)
        return pieces

    def lane_capacity(self, shape: Shape) -> int:
        slots = shape.source_length + shape.max_limit  # of a row, few of them in use at a time
        return min(self.capacity, SPARSE * batch_capacity(self.decoder.system, slots, shape.config))

    def drop_idle(self) -> None:
        """Forget the lanes without work; captured engines of the last `MAX_IDLE` are kept."""
        idle = [shape for shape, lane in self.lanes.items() if not lane.busy]
        captured = [shape for shape in idle if self.lanes[shape].engine is not None]
        for shape in idle:
            if shape not in captured[-MAX_IDLE:]:
                del self.lanes[shape]

    def close(self) -> None:
        """Keep captured engines for the next batch."""
        for shape, lane in self.lanes.items():
            if lane.engine is not None and lane.engine.captures and not lane.busy:
                self.decoder.system.engines[shape, self.lane_capacity(shape)] = lane.engine
        for old in list(self.decoder.system.engines)[:-MAX_ENGINES]:
            self.decoder.system.engines.pop(old, None)


def next_size(number: int, smallest: int = MIN_SIZE) -> int:
    """The smallest size of an engine that is at least `number`: few sizes, so that engines are shared and reused."""
    return max(smallest, 1 << (number - 1).bit_length())


@lru_cache(maxsize=64)
def engine_config(config: SearchConfig) -> SearchConfig:
    """The options that all pieces of an engine share: not those that every piece has for itself."""
    defaults = SearchConfig()
    own = ("max_length", "max_extra", "replace_unknown", "dictionary", "temperature", "seed", "top_k", "top_p")
    shared = {name: getattr(defaults, name) for name in own}
    return config.model_copy(update=shared | ({"top_k": 1} if config.method == "sample" and config.truncates else {}))


def run_jobs(decoder: Decoder, jobs: Sequence[Job]) -> Iterator[Any]:
    """Yield the prediction of each job, in order."""
    batch = ContinuousBatch(decoder, capacity=min(MAX_CAPACITY, 1 << (len(jobs) - 1).bit_length()))
    complete = {id(job) for job in jobs if batch.submit(job)}
    for job in jobs:
        while id(job) not in complete:
            complete.update(map(id, batch.step()))
            for _, error in batch.failures:
                raise error
        yield job.prediction()
    batch.close()
