"""The decoding loop of every search: add sources to the batch, decode tokens, and remove sources that are finished.

Waiting sources replace finished ones, so that one long sentence does not hold up a batch. On a GPU the step, from the last
tokens to the next ones, is captured in a CUDA graph and replayed: Python then only polls which sources are finished and
decodes text while the GPU computes. When few sources are left and none wait, they move to an engine with a smaller batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError, DivergedError
from heedful.nn.decoder_state import (
    State,
    States,
    compact,
    copy_states,
    expand_rows,
    insert_sources,
    map_tree,
    mask_finished,
    move_sources,
    pad_sources,
    select_rows,
    select_sources,
)
from heedful.nn.kernels import blockwise_logsumexp, reduce_logsumexp
from heedful.search import beam_kernels
from heedful.search.constraints import at_length_limit, constrain
from heedful.search.expand import BLOCK, EndRule, expand_beam, sample_tokens
from heedful.search.frontier import (
    collect_hypotheses,
    empty_frontier,
    insert,
    join_frontiers,
    keep_sources,
    nonfinite_sources,
    record_finished,
    start_sources,
)
from heedful.search.hypothesis import Hypothesis, Sampling, SearchConfig
from heedful.search.step_function import StepFunction

COMPACT_EVERY = 8  # steps between two compactions of the cache: moving the used slots also has a cost
MAX_ENGINES = 4  # captured engines that are kept: each holds the caches of its sources
CAPTURE_LOCK = Lock()  # torch captures on one stream that all threads share
SHRINK_FACTOR = 4  # batch size of an engine / batch size of the next smaller one
MIN_CAPACITY = 64  # batch size of the smallest engine
MAX_MASK_BYTES = 2**31  # attention masks of one source, which grow with the square of the beam
MAX_PENALTY = 1e30  # length penalty: scores divided by it still differ in float32
POLL_EVERY = 4  # steps of a captured search between two checks of which sources are finished: each check waits for the GPU


class NonFiniteScores(DivergedError):
    """The logits of a source became NaN or infinite, or none of its hypotheses has a probability above zero."""

    def __init__(self, source_id: int) -> None:
        super().__init__("the model's scores are not finite", hint="its weights are damaged, or training diverged")
        self.source_id = source_id


class SourceBatch(NamedTuple):
    """Encoded sources that are started together."""

    states: States  # one row for each source
    limits: Tensor  # (sources,) maximum tokens of a hypothesis, the end token included
    source_ids: Sequence[int]  # a unique number for each source
    prefixes: Sequence[Sequence[int]]  # tokens that the hypotheses of each source must start with
    starts: Sequence[int] | None = None  # first input of the decoder for each source; None: the start token
    samplings: Sequence[Sampling] | None = None  # of each source; None: by the config, with the source id as random stream


class GraphInputs(NamedTuple):
    """What is needed to capture a step in a CUDA graph, whose shapes are fixed before any source is started."""

    source_length: int  # tokens of the longest source, the end token included
    placeholder_states: Callable[[int, int], States]  # (sources, cache slots of each) -> states of the largest shapes
    device: torch.device


@dataclass(frozen=True)
class Sources:
    """The sources of one search, started in batches: the first `capacity`, then others in place of those that are finished."""

    start_batch: Callable[[int, int], SourceBatch | None]
    """(maximum number of sources, cache slots of each) -> the next sources, longest first; None when there are no more."""
    capacity: int  # sources decoded at a time
    max_limit: int  # the largest of all their `limits`
    max_prefix: int = 0  # tokens of the longest of all their prefixes
    exceed_capacity: bool = False  # whether some of them have to wait
    graph: GraphInputs | None = None  # where given, steps are captured in a CUDA graph


SearchResult = tuple[int, list[Hypothesis]]  # (source id, hypotheses, best first; none: its scores were not finite)
Engines = dict[Any, "Engine"]  # captured engines by their shape: a search of the same shape reuses the captured step


def search(
    predict: StepFunction,
    sources: Sources,
    config: SearchConfig,
    *,
    start: int,
    end: int,
    engines: Engines | None = None,
) -> Iterator[SearchResult]:
    """Yield the hypotheses of each source soon after it is finished; the caller reads them while the GPU takes the next steps.

    start, end: special tokens; engines: cache of captured engines, read and updated."""
    if sources.graph is None:
        yield from run(Engine(predict, sources, config, start=start, end=end))
        return
    engines = {} if engines is None else engines
    shape = (config, sources.capacity, sources.graph.source_length, sources.max_limit, sources.max_prefix, start, end)
    # The engine is removed from the cache, so that no other thread uses it at the same time.
    engine = engines.pop(shape, None) or Engine(predict, sources, config, start=start, end=end)
    engine.restart(predict, sources)
    yield from run(engine)
    engines[shape] = engine  # now the newest
    for old in list(engines)[:-MAX_ENGINES]:
        engines.pop(old, None)


def run(engine: Engine) -> Iterator[SearchResult]:
    """Take steps until every source is finished."""
    results: list[SearchResult] = []
    while engine.has_sources:
        for _ in range(POLL_EVERY if engine.captures else 1):
            engine.step()
        yield from check_finite(results)
        results = engine.collect_finished()
        engine = engine.move_to_smaller()
    yield from check_finite(results)


def check_finite(results: list[SearchResult]) -> list[SearchResult]:
    """The results; a source without a hypothesis is an error."""
    for source_id, hypotheses in results:
        if not hypotheses:
            raise NonFiniteScores(source_id)
    return results


class Engine:
    """The state of a search: a batch of sources, each with `beam` rows. Batch indices are those of `source_ids`."""

    def __init__(self, predict: StepFunction, sources: Sources, config: SearchConfig, *, start: int, end: int) -> None:
        self.predict, self.sources, self.config, self.beam = predict, sources, config, config.rows
        self.start, self.end = start, end
        self.captures, self.waiting = sources.graph is not None, sources.exceed_capacity
        self.cuda_graph: torch.cuda.CUDAGraph | None = None
        self.smaller: Engine | None = None  # continues the search when few sources are left
        self.steps = 0
        self.shrink_at = 8  # the batch shrinks when this fraction of it, 1 / shrink_at, is finished
        batch = None
        if sources.graph is not None:
            self.states = expand_to_beam(sources.graph.placeholder_states(sources.capacity, self.slots()), self.beam)
            count, device = sources.capacity, sources.graph.device
        else:
            batch = sources.start_batch(sources.capacity, self.slots())
            assert batch is not None, "there is nothing to search"
            self.states, count, device = expand_to_beam(batch.states, self.beam), len(batch.limits), batch.limits.device
        self.penalty = torch.tensor(penalties(config, sources.max_limit), device=device)  # (max_limit + 1,)
        if self.captures:
            self.states = copy_for_graph(self.states, device)
        self.frontier = empty_frontier(count, sources.max_limit, sources.max_prefix, config, device)
        self.source_ids: list[int | None] = [None] * count  # None: the batch index is free
        self.compact_at = COMPACT_EVERY * self.beam  # slots
        if batch is not None:
            self.add(batch, list(range(count)))

    def restart(self, predict: StepFunction, sources: Sources) -> None:
        """Search other sources of the same shape."""
        self.predict, self.sources, self.waiting = predict, sources, True
        self.frontier.done.fill_(True)
        self.source_ids = [None] * sources.capacity
        self.rewind()
        self.refill(list(range(sources.capacity)))
        self.waiting = sources.exceed_capacity

    def rewind(self) -> None:
        """Use the cache from its first slot on: attention reads the slots up to the last one in use."""
        assert not self.has_sources, "the slots of active sources are in use"
        rewind(self.states)

    def slots(self) -> int:
        """Number of cache slots of one source: its maximum length, and spare ones if queued sources replace finished ones.

        Steps in a CUDA graph use the slots as a ring buffer and need no spare ones."""
        spare = COMPACT_EVERY if self.sources.exceed_capacity and not self.captures else 0
        return (self.sources.max_limit + spare) * self.beam

    @property
    def has_sources(self) -> bool:
        return any(source_id is not None for source_id in self.source_ids)

    def add(self, batch: SourceBatch, indices: Sequence[int]) -> None:
        """Start the sources of a batch at these batch indices."""
        device = batch.limits.device
        samplings = batch.samplings or [self.config.sampling(source_id) for source_id in batch.source_ids]
        starts = batch.starts or [self.start] * len(batch.source_ids)
        new = start_sources(self.config, batch.limits, samplings, batch.prefixes, starts, self.sources.max_limit)
        insert(self.frontier, new, torch.tensor(indices, device=device))
        for at, source_id in zip(indices, batch.source_ids, strict=True):
            self.source_ids[at] = source_id

    def step(self) -> None:
        """Decode one more token in every row; with CUDA graphs, capture the step once and then replay it."""
        self.steps += 1
        if self.cuda_graph is not None:
            self.cuda_graph.replay()
            return
        if self.captures and self.steps > 2:  # the first steps are the warm-up
            self.cuda_graph = torch.cuda.CUDAGraph()
            with CAPTURE_LOCK, torch.cuda.graph(self.cuda_graph, capture_error_mode="thread_local"):
                self.compute_step()
            self.cuda_graph.replay()
            return
        self.compute_step()

    def compute_step(self) -> None:
        frontier, config = self.frontier, self.config
        logits, states = self.predict(frontier.last_token.view(-1, 1), self.states)
        if beam_kernels.fits(logits, frontier, config):
            row = beam_kernels.advance(frontier, logits, config, self.end, self.penalty)
        else:
            row = self.advance(logits)
        if config.method == "beam" and self.beam > 1:
            sources = torch.arange(len(row), device=row.device)[:, None]
            states = select_rows(states, (sources * self.beam + row).flatten())
        if self.captures:
            copy_states(self.states, mask_finished(states, frontier.done))
        else:
            self.states = states

    def advance(self, logits: Tensor) -> Tensor:
        """Choose the next tokens and update the frontier; return the row that each hypothesis continues, (sources, beam)."""
        frontier, config, end = self.frontier, self.config, self.end
        largest, parts = blockwise_logsumexp(logits, BLOCK)  # (rows, blocks) each
        normalize = reduce_logsumexp(largest, parts)
        nonfinite = nonfinite_sources(frontier, normalize)
        logits, largest = constrain(logits, largest, frontier, config, end)
        end_rule = EndRule(at_length_limit(frontier), end)
        if config.method == "sample":
            expansion = sample_tokens(frontier, logits, normalize, end_rule, config)
        else:
            expansion = expand_beam(frontier, logits, largest, normalize, end_rule)
        expansion = expansion._replace(scores=expansion.scores.masked_fill(nonfinite, math.nan))
        record_finished(frontier, *expansion, expansion.finished_index(frontier, config, end), self.penalty, config.n_best)
        return expansion.row

    def collect_finished(self) -> list[SearchResult]:
        """Return the hypotheses of the sources that are finished, and start waiting ones in their place."""
        results: list[SearchResult] = []
        flags = self.frontier.done.tolist()
        done = [i for i, source_id in enumerate(self.source_ids) if source_id is not None and flags[i]]
        if done:
            for i, hypotheses in zip(done, collect_hypotheses(self.frontier, done, self.config), strict=True):
                source_id = self.source_ids[i]
                assert source_id is not None
                self.source_ids[i] = None
                results.append((source_id, hypotheses))
        free = [i for i, source_id in enumerate(self.source_ids) if source_id is None]
        if free and self.waiting and len(free) >= max(1, len(self.source_ids) // (2 if self.captures else 8)):
            self.refill(free)
        elif not self.captures and not self.waiting and len(free) * self.shrink_at >= len(self.source_ids) and self.has_sources:
            self.drop_finished()
        if not self.captures:
            self.compact_cache()
        return results

    def unfinished_tokens(self, indices: Sequence[int]) -> list[list[int]]:
        """The tokens so far of the first hypothesis at each of these batch indices, without an end token."""
        at = torch.tensor(indices, device=self.frontier.done.device)
        counts = self.frontier.count.index_select(0, at).tolist()
        rows = self.frontier.tokens[:, 0].index_select(0, at).tolist()
        rows = [row[:count] for row, count in zip(rows, counts, strict=True)]
        return [row[: row.index(self.end)] if self.end in row else row for row in rows]

    def stop(self, indices: Sequence[int]) -> None:
        """End the search of the sources at these batch indices without a result; their places are free."""
        if indices:
            at = torch.tensor(indices, device=self.frontier.done.device)
            self.frontier.done.index_fill_(0, at, True)
            self.frontier.scores.index_fill_(0, at, -math.inf)
        for i in indices:
            self.source_ids[i] = None

    def admit(self) -> None:
        """Start waiting sources now: at free batch indices, or else at new ones, as far as the capacity allows."""
        free = [i for i, source_id in enumerate(self.source_ids) if source_id is None]
        batch = self.sources.start_batch(self.sources.capacity - len(self.source_ids) + len(free), 0)
        if batch is None:
            return
        count, places = len(batch.limits), len(self.source_ids)
        if (missing := count - len(free)) > 0:
            assert not self.captures, "a captured step has a fixed number of sources"
            new = empty_frontier(missing, self.sources.max_limit, self.sources.max_prefix, self.config, batch.limits.device)
            self.states, self.frontier = pad_sources(self.states, missing, self.beam), join_frontiers(self.frontier, new)
            self.source_ids += [None] * missing
            free += range(places, places + missing)
        self.insert(batch, free[:count])

    def move_to_smaller(self) -> Engine:
        """The engine to continue with: a smaller one where a captured step would mostly compute finished sources."""
        active = [i for i, source_id in enumerate(self.source_ids) if source_id is not None]
        capacity = len(self.source_ids) // SHRINK_FACTOR
        if not self.captures or self.waiting or not active or len(active) > capacity or capacity < MIN_CAPACITY:
            return self
        if self.smaller is None:
            sources = replace(self.sources, capacity=capacity)
            self.smaller = Engine(self.predict, sources, self.config, start=self.start, end=self.end)
        self.smaller.take_over(self, active)
        return self.smaller.move_to_smaller()

    def take_over(self, larger: Engine, active: list[int]) -> None:
        """Continue the search of these sources of a larger engine."""
        self.predict, self.waiting = larger.predict, False
        self.sources = replace(larger.sources, capacity=len(self.source_ids))
        index = torch.tensor(active, device=self.frontier.done.device)
        move_sources(self.states, larger.states, index, self.beam)
        self.frontier.done.fill_(True)
        for own, given in zip(self.frontier.tensors(), larger.frontier.tensors(), strict=True):
            own[: len(active)] = given.index_select(0, index)
        self.source_ids = [*(larger.source_ids[i] for i in active), *[None] * (len(self.source_ids) - len(active))]
        larger.source_ids = [None] * len(larger.source_ids)

    def refill(self, free: list[int]) -> None:
        """Start waiting sources at free batch indices."""
        batch = self.sources.start_batch(len(free), 0)
        if batch is None:
            self.waiting = False
            return
        self.insert(batch, free[: len(batch.limits)])

    def insert(self, batch: SourceBatch, indices: list[int]) -> None:
        """Replace the states of free batch indices by those of new sources, and start their search."""
        insert_sources(self.states, batch.states, torch.tensor(indices, device=batch.limits.device), self.beam)
        self.add(batch, indices)

    def drop_finished(self) -> None:
        """Shrink the batch to the sources that are not finished."""
        kept = [i for i, source_id in enumerate(self.source_ids) if source_id is not None]
        index = torch.tensor(kept, device=self.frontier.done.device)
        self.states = select_sources(self.states, index, self.beam)
        self.frontier = keep_sources(self.frontier, index)
        self.source_ids = [self.source_ids[i] for i in kept]

    def compact_cache(self) -> None:
        """Free the cache slots that no row uses, every `COMPACT_EVERY` steps."""
        if slots_used(self.states) < self.compact_at:
            return
        self.states = compact(self.states, self.frontier.scores.isfinite() & ~self.frontier.done[:, None])
        self.compact_at = slots_used(self.states) + COMPACT_EVERY * self.beam


def penalties(config: SearchConfig, longest: int) -> list[float]:
    """The divisor of the log-probability of a hypothesis, for each length from 0 to `longest`."""
    divisors = [config.length_penalty_fn(max(length, 1)) for length in range(longest + 1)]
    if divisors[-1] > MAX_PENALTY:
        raise ConfigError(
            f"search.length_penalty = {config.length_penalty} divides the score of {longest} tokens by {divisors[-1]:.0e}; "
            f"expected at most {MAX_PENALTY:.0e}",
            hint="choose a smaller search.length_penalty or search.max_length",
        )
    return divisors


def expand_to_beam(states: States, beam: int) -> States:
    """`expand_rows`, with an error where the attention masks of one source's rows would need too much memory."""
    needed = beam * mask_bytes(states)
    if beam > 1 and needed > MAX_MASK_BYTES:
        raise ConfigError(
            f"a beam (or number of samples) of {beam} needs {needed / 2**30:.1f} GiB for the attention masks of one source; "
            f"expected at most {MAX_MASK_BYTES / 2**30:.0f} GiB",
            hint="choose a smaller search.beam, search.n_best, search.max_length or search.max_extra",
        )
    return expand_rows(states, beam)


def mask_bytes(states: States) -> int:
    """Bytes of one row's attention mask: one for each slot of its source."""
    if isinstance(states, State):
        return 0 if states.owned_slots is None else states.owned_slots.shape[1]
    return sum(map(mask_bytes, states))


def slots_used(states: States) -> int:
    """Number of filled cache slots; the same in all states that have slots."""
    if isinstance(states, State):
        return 0 if states.owned_slots is None else int(states.filled) - states.reserved
    return max(map(slots_used, states))


def rewind(states: States) -> None:
    """Set the next slot of captured states to the first one after the prompt."""
    if not isinstance(states, State):
        for state in states:
            rewind(state)
    elif isinstance(states.filled, Tensor):
        states.filled.fill_(states.reserved)


def copy_for_graph(states: States, device: torch.device) -> States:
    """Copy states for a CUDA graph: tensors of their own, and the next slot as a tensor that a captured step can advance."""
    if isinstance(states, State):
        memory = map_tree(Tensor.clone, states.memory)
        return states._replace(memory=memory, filled=torch.tensor(int(states.filled), device=device))
    return tuple(copy_for_graph(state, device) for state in states)
