"""The loop of every search: let sources in, take steps, and let out those that are done.

Sources that are done leave and waiting ones take their places, so that one long sentence does not hold up a batch. On a GPU
the step, from the last tokens to the next ones, is captured once and replayed: then Python only watches who is done, and makes
text of what was found while the GPU goes on. Where few are left and nobody waits, they move to an engine with fewer places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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
    keep_sources,
    nonfinite_sources,
    record_finished,
    start_sources,
)
from heedful.search.hypothesis import Hypothesis, SearchConfig
from heedful.search.step_function import StepFunction

TIDY_EVERY = 8  # steps after which slots that are nobody's are freed: moving the others costs something, too
MOST_ENGINES = 4  # captured ones that are kept: each holds the caches of its sources
CAPTURING = Lock()  # torch captures on one stream that all threads share
FEWER = 4  # times as few places has the next smaller engine
FEWEST = 64  # places of the smallest
MOST_BYTES = 2**31  # of one source's attention masks, which grow with the square of the beam
LARGEST_PENALTY = 1e30  # of a length: scores divided by it are still told apart in float32
LOOK_EVERY = 4  # steps of a captured search between two looks at who is done: each look waits for the GPU


class NonFiniteScores(DivergedError):
    """The logits of a source became NaN or infinite, or no hypothesis of it has a probability above zero."""

    def __init__(self, name: int) -> None:
        super().__init__("the model's scores are not finite", hint="its weights are damaged, or training diverged")
        self.name = name  # of the source


class Group(NamedTuple):
    """Sources that begin together."""

    states: States  # one row a source
    limits: Tensor  # (sources,) at most so many tokens, the end counted
    names: Sequence[int]  # one number a source, its own wherever it stands; answers and random draws go by it
    prefixes: Sequence[Sequence[int]]  # what each must begin with


Arrive = Callable[[int, int], Group | None]  # how many sources at most, slots for what they will write -> sources, if any


class Query(NamedTuple):
    """What to search: how to go on, with whom, and how far."""

    predict: StepFunction
    arrive: Arrive  # the longest source comes first
    start: int
    end: int
    capacity: int  # sources at a time
    longest: int  # no limit is larger
    prefix: int = 0  # no prefix is longer
    more: bool = False  # whether not all arrive at once
    width: int = 0  # tokens of the longest source that will come; told where steps are captured
    blank: Callable[[int, int], States] | None = None  # sources, slots -> the widest states; where given, steps are captured
    device: torch.device = torch.device("cpu")


Answer = tuple[int, list[Hypothesis]]  # a source's name and what was found for it
Engines = dict[Any, "Engine"]  # captured ones by their shape, to be used again: a query like an earlier one needs no capture


def search(query: Query, config: SearchConfig, engines: Engines | None = None) -> Iterator[Answer]:
    """Every source's hypotheses, soon after they are known: whoever asked reads them while the next steps are taken."""
    if query.blank is None:
        yield from run(Engine(query, config))
        return
    engines = {} if engines is None else engines
    shape = (config, query.capacity, query.width, query.longest, query.prefix)
    engine = engines.pop(shape, None) or Engine(query, config)  # taken out: no other thread may use it meanwhile
    engine.begin(query)
    yield from run(engine)
    engines[shape] = engine  # now the newest
    for old in list(engines)[:-MOST_ENGINES]:
        engines.pop(old, None)


def run(engine: Engine) -> Iterator[Answer]:
    """Step until every source is done."""
    known: list[Answer] = []
    while engine.busy:
        for _ in range(LOOK_EVERY if engine.captures else 1):
            engine.step()
        yield from known
        known = engine.answers()
        engine = engine.small_enough()
    yield from known


class Engine:
    """What lives through a search."""

    def __init__(self, query: Query, config: SearchConfig) -> None:
        self.query, self.config, self.beam = query, config, config.rows
        self.captures, self.waiting = query.blank is not None, query.more
        self.graph: torch.cuda.CUDAGraph | None = None
        self.smaller: Engine | None = None  # for when few are left
        self.steps = 0
        group = None
        if query.blank is not None:
            self.states = expand_to_beam(query.blank(query.capacity, self.slots()), self.beam)
            count, device = query.capacity, query.device
        else:
            group = query.arrive(query.capacity, self.slots())
            assert group is not None, "there is nothing to search"
            self.states, count, device = expand_to_beam(group.states, self.beam), len(group.limits), group.limits.device
        self.penalty = torch.tensor(penalties(config, query.longest), device=device)  # (longest + 1,)
        if self.captures:
            self.states = copy_for_graph(self.states, device)
        self.frontier = empty_frontier(count, query.longest, query.prefix, config, device)
        self.names: list[int | None] = [None] * count  # whose place it is
        self.tidy_at = TIDY_EVERY * self.beam  # slots
        if group is not None:
            self.let_in(group, list(range(count)))

    def begin(self, query: Query) -> None:
        """Answer another query of the same shape."""
        self.query, self.waiting = query, True
        self.frontier.done.fill_(True)
        self.names = [None] * query.capacity
        self.refill(list(range(query.capacity)))
        self.waiting = query.more

    def slots(self) -> int:
        """For what the rows of a source write: all that they may say, and some to spare where others take their place.

        Captured steps use the slots in turn and need none to spare."""
        return (self.query.longest + (TIDY_EVERY if self.query.more and not self.captures else 0)) * self.beam

    @property
    def busy(self) -> bool:
        return any(name is not None for name in self.names)

    def let_in(self, group: Group, where: Sequence[int]) -> None:
        device = group.limits.device
        new = start_sources(self.config, group.limits, group.names, group.prefixes, self.query.start, self.query.longest)
        insert(self.frontier, new, torch.tensor(where, device=device))
        for at, name in zip(where, group.names, strict=True):
            self.names[at] = name

    def step(self) -> None:
        """Say one more token in every row."""
        self.steps += 1
        if self.graph is not None:
            self.graph.replay()
            return
        if self.captures and self.steps > 2:  # the first steps have warmed everything up
            self.graph = torch.cuda.CUDAGraph()
            with CAPTURING, torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.take_step()
            self.graph.replay()
            return
        self.take_step()

    def take_step(self) -> None:
        frontier, config = self.frontier, self.config
        logits, states = self.query.predict(frontier.last.view(-1, 1), self.states)
        if beam_kernels.fits(logits, frontier, config):
            row = beam_kernels.advance(frontier, logits, config, self.query.end, self.penalty)
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
        """Choose what comes next and note it; returns which row each beginning goes on from, (sources, beam)."""
        frontier, config, end = self.frontier, self.config, self.query.end
        largest, parts = blockwise_logsumexp(logits, BLOCK)  # (rows, blocks) each
        normalize = reduce_logsumexp(largest, parts)
        broken = nonfinite_sources(frontier, normalize)
        logits, largest = constrain(logits, largest, frontier, config, end)
        allowed = EndRule(at_length_limit(frontier), end)
        if config.method == "sample":
            choice = sample_tokens(frontier, logits, normalize, allowed, config)
        else:
            choice = expand_beam(frontier, logits, largest, normalize, allowed)
        choice = choice._replace(scores=choice.scores.masked_fill(broken, math.nan))
        record_finished(frontier, *choice, choice.places(frontier, config, end), self.penalty, config.n_best)
        return choice.row

    def answers(self) -> list[Answer]:
        """Of the sources that are done; others take their places."""
        found: list[Answer] = []
        flags = self.frontier.done.tolist()
        done = [i for i, name in enumerate(self.names) if name is not None and flags[i]]
        if done:
            for i, hypotheses in zip(done, collect_hypotheses(self.frontier, done, self.config), strict=True):
                name = self.names[i]
                assert name is not None
                if not hypotheses:
                    raise NonFiniteScores(name)
                self.names[i] = None
                found.append((name, hypotheses))
        free = [i for i, name in enumerate(self.names) if name is None]
        if free and self.waiting and len(free) >= max(1, len(self.names) // (2 if self.captures else 8)):
            self.refill(free)
        elif not self.captures and not self.waiting and len(free) >= max(1, len(self.names) // 8) and self.busy:
            self.shrink()
        if not self.captures:
            self.clear_away()
        return found

    def small_enough(self) -> Engine:
        """The engine to go on with: another one where a captured step would mostly be about sources that are done."""
        living, places = [i for i, name in enumerate(self.names) if name is not None], len(self.names) // FEWER
        if not self.captures or self.waiting or not living or len(living) > places or places < FEWEST:
            return self
        query = self.query._replace(capacity=places)
        self.smaller = self.smaller or Engine(query, self.config)
        self.smaller.go_on_for(self, living)
        return self.smaller.small_enough()

    def go_on_for(self, other: Engine, living: list[int]) -> None:
        """Take these sources over from an engine with more places."""
        self.query, self.waiting = other.query._replace(capacity=len(self.names)), False
        index = torch.tensor(living, device=self.query.device)
        move_sources(self.states, other.states, index, self.beam)
        self.frontier.done.fill_(True)
        for mine, theirs in zip(self.frontier.tensors(), other.frontier.tensors(), strict=True):
            mine[: len(living)] = theirs.index_select(0, index)
        self.names = [*(other.names[i] for i in living), *[None] * (len(self.names) - len(living))]
        other.names = [None] * len(other.names)

    def refill(self, free: list[int]) -> None:
        group = self.query.arrive(len(free), 0)
        if group is None:
            self.waiting = False
            return
        where = free[: len(group.limits)]
        insert_sources(self.states, group.states, torch.tensor(where, device=group.limits.device), self.beam)
        self.let_in(group, where)

    def shrink(self) -> None:
        """Nobody waits: go on with those who are still there."""
        kept = [i for i, name in enumerate(self.names) if name is not None]
        index = torch.tensor(kept, device=self.frontier.done.device)
        self.states = select_sources(self.states, index, self.beam)
        self.frontier = keep_sources(self.frontier, index)
        self.names = [self.names[i] for i in kept]

    def clear_away(self) -> None:
        """Free what is nobody's, once in a while."""
        if slots_used(self.states) < self.tidy_at:
            return
        self.states = compact(self.states, self.frontier.scores.isfinite() & ~self.frontier.done[:, None])
        self.tidy_at = slots_used(self.states) + TIDY_EVERY * self.beam


def penalties(config: SearchConfig, longest: int) -> list[float]:
    """What the log-probability of a hypothesis is divided by, for each length."""
    found = [config.length_penalty_fn(max(length, 1)) for length in range(longest + 1)]
    if found[-1] > LARGEST_PENALTY:
        raise ConfigError(
            f"search.length_penalty = {config.length_penalty} divides the score of {longest} tokens by {found[-1]:.0e}; "
            f"expected at most {LARGEST_PENALTY:.0e}",
            hint="a smaller search.length_penalty or search.max_length",
        )
    return found


def expand_to_beam(states: States, beam: int) -> States:
    """As `widen`, but refused where the masks of one source's rows would take more memory than they may."""
    needed = beam * mask_bytes(states)
    if beam > 1 and needed > MOST_BYTES:
        raise ConfigError(
            f"a beam (or number of samples) of {beam} needs {needed / 2**30:.1f} GiB for the attention masks of one source; "
            f"expected at most {MOST_BYTES / 2**30:.0f} GiB",
            hint="a smaller search.beam, search.n_best, search.max_length or search.max_extra",
        )
    return expand_rows(states, beam)


def mask_bytes(states: States) -> int:
    """Of one row: a byte for each slot of its source."""
    if isinstance(states, State):
        return 0 if states.owned_slots is None else states.owned_slots.shape[1]
    return sum(map(mask_bytes, states))


def slots_used(states: States) -> int:
    """Of the states that have slots; all of them are filled alike."""
    if isinstance(states, State):
        return 0 if states.owned_slots is None else int(states.filled) - states.reserved
    return max(map(slots_used, states))


def copy_for_graph(states: States, device: torch.device) -> States:
    """States whose tensors are nobody else's, with the next slot as a tensor that a captured step can advance."""
    if isinstance(states, State):
        memory = map_tree(Tensor.clone, states.memory)
        return states._replace(memory=memory, filled=torch.tensor(int(states.filled), device=device))
    return tuple(copy_for_graph(state, device) for state in states)
