"""The queue of one model and the thread that computes its predictions.

    worker = Worker(predictor, Limits())
    worker.submit(Request(["a text"], {"beam": 5}, listener=events.put))        # from any thread
    events.get()                                                                 # Finished(0, Translation(…))

Inputs with equal options are computed together: those that arrive within `max_wait_ms`, up to `max_batch_tokens`. Clients take
turns, one input each, so that a long request does not hold up a short one. A batch that fails is computed again input by input,
so that an input that cannot be computed fails only its own request. Deadlines and cancellations are checked between batches.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import Condition, Thread
from time import monotonic
from typing import Any, NamedTuple

from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.tasks.predictor import Prediction, Predictor

MAX_RETRY = 60  # seconds that a client is asked to wait at most
SAMPLING = {"seed", "temperature", "top_k", "top_p"}  # samples depend on the place in a batch, so these are computed alone


class Delta(NamedTuple):
    """New text of an input."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    text: str
    tokens: int


class Finished(NamedTuple):
    """The prediction of an input."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    prediction: Prediction


class Failed(NamedTuple):
    """The end of a request: an error of the client (HeedfulError), DeadlineExceeded, Cancelled, or a bug."""

    error: Exception


Event = Delta | Finished | Failed
ids = count(1)


class QueueFull(Exception):
    """The queue, or the client's share of it, is full."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after} s")
        self.retry_after = retry_after


class Draining(Exception):
    """The worker accepts no more requests."""


class DeadlineExceeded(Exception):
    """The deadline of a request passed."""


class Cancelled(Exception):
    """The client of a request left."""


@dataclass(frozen=True)
class Request:
    inputs: Sequence[str]  # sources, prompts, texts to classify; a dialogue is turns joined by tabs
    options: Mapping[str, Any]  # of `Predictor.predictions`
    listener: Callable[[Event], None]  # called from the worker's thread; must not block
    client: str = ""  # clients take turns
    deadline: float = math.inf  # of time.monotonic()
    stream: bool = False  # whether it wants Delta events
    id: int = field(default_factory=lambda: next(ids))


class Input(NamedTuple):
    """A text of a request that waits."""

    request: Request
    index: int  # type: ignore[assignment]  # hides tuple.index
    arrived: float

    @property
    def text(self) -> str:
        return self.request.inputs[self.index]


class Worker:
    """The queue and the thread of one model."""

    def __init__(self, predictor: Predictor, limits: Limits, metrics: Metrics | None = None) -> None:
        self.predictor, self.limits, self.metrics = predictor, limits, metrics or Metrics()
        self.changed = Condition()  # guards everything below
        self.waiting: dict[str, deque[Input]] = {}  # of each client; the first one is served next
        self.requests: dict[int, Request] = {}  # accepted and not ended
        self.left: dict[int, int] = {}  # request id -> inputs without a result
        self.draining = False
        self.rate = 0.0  # inputs per second, measured
        self.thread = Thread(target=self.work, name="model", daemon=True)
        self.thread.start()

    def submit(self, request: Request) -> None:
        """Accept a request, from any thread; QueueFull or Draining if it cannot be accepted."""
        now = monotonic()
        with self.changed:
            if self.draining:
                raise Draining("the server is stopping")
            own = self.waiting.get(request.client, deque())
            most, new = self.limits.max_queue, len(request.inputs)
            if self.depth + new > most or len(own) + new > max(1, most // 2):
                raise QueueFull(self.retry_after())
            self.requests[request.id], self.left[request.id] = request, new
            self.waiting.setdefault(request.client, own).extend(Input(request, index, now) for index in range(new))
            self.metrics.queue_depth.inc(new)
            self.changed.notify_all()

    def cancel(self, request_id: int) -> None:
        """Forget a request whose client left; does nothing for one that is finished."""
        with self.changed:
            request = self.requests.get(request_id)
        if request is not None:
            self.fail(request, Cancelled())

    def drain(self, timeout: float) -> bool:
        """Accept no more requests, finish the accepted ones and end the thread; whether all are finished in time."""
        with self.changed:
            self.draining = True
            self.changed.notify_all()
            return self.changed.wait_for(lambda: not self.requests, timeout)

    @property
    def depth(self) -> int:
        """Inputs that wait."""
        return sum(map(len, self.waiting.values()))

    def retry_after(self) -> int:
        """Seconds until half of the inputs that wait are computed, at the measured rate."""
        return min(MAX_RETRY, max(1, math.ceil(self.depth / 2 / self.rate))) if self.rate else 1

    def forget(self, request_id: int) -> None:
        """Remove the inputs of a request that wait."""
        for client, queue in list(self.waiting.items()):
            kept = deque(one for one in queue if one.request.id != request_id)
            self.metrics.queue_depth.dec(len(queue) - len(kept))
            self.waiting[client] = kept
            if not kept:
                del self.waiting[client]
        self.changed.notify_all()

    def work(self) -> None:
        """Compute batches until the worker is drained."""
        while batch := self.next_batch():
            started = monotonic()
            alive = [one for one in batch if self.is_wanted(one)]
            if alive:
                self.observe_lengths(alive)
                self.compute(alive)
            seconds = max(monotonic() - started, 1e-6)
            with self.changed:
                rate = len(batch) / seconds
                self.rate = rate if not self.rate else 0.8 * self.rate + 0.2 * rate

    def next_batch(self) -> list[Input]:
        """Wait for inputs and take those to compute together; none when the worker is drained."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or (self.draining and not self.requests))
            if not self.waiting:
                return []
            until = min(queue[0].arrived for queue in self.waiting.values()) + self.limits.max_wait_ms / 1000
            enough = self.limits.max_batch_tokens // 8  # inputs: more would rarely fit into the batch
            self.changed.wait_for(lambda: self.depth >= enough, max(0.0, until - monotonic()))
            return self.take_turns()

    def take_turns(self) -> list[Input]:
        """Take one input of each client in turn, as long as they have equal options and fit into the batch."""
        batch: list[Input] = []
        left = self.limits.max_batch_tokens
        clients = deque(self.waiting)
        while clients:
            client = clients.popleft()
            queue = self.waiting[client]
            if batch and not go_together(batch[0].request, queue[0].request):
                continue
            cost = estimate_tokens(queue[0].text)
            if batch and cost > left:
                break
            left -= cost
            batch.append(queue.popleft())
            if queue:
                clients.append(client)
            else:
                del self.waiting[client]
        served = {one.request.client for one in batch}
        for client in [client for client in self.waiting if client in served]:  # the others are first in the next batch
            self.waiting[client] = self.waiting.pop(client)
        self.metrics.queue_depth.dec(len(batch))
        return batch

    def is_wanted(self, one: Input) -> bool:
        """Whether the result of an input is still wanted; a request whose deadline passed is ended."""
        self.metrics.queue_seconds.observe(monotonic() - one.arrived)
        if monotonic() > one.request.deadline:
            self.fail(one.request, DeadlineExceeded())
        return one.request.id in self.requests

    def observe_lengths(self, batch: Sequence[Input]) -> None:
        """Count the tokens of a batch and its padding."""
        lengths = list(map(len, self.predictor.input_tokenizer.encode_many([one.text for one in batch])))
        self.metrics.batch_tokens.observe(sum(lengths))
        self.metrics.padding.observe(1 - sum(lengths) / max(1, max(lengths) * len(lengths)))
        self.metrics.tokens.labels("in").inc(sum(lengths))

    def compute(self, batch: Sequence[Input]) -> None:
        """Compute inputs together; after an error those without a result one by one."""
        done = 0
        try:
            predictions = self.predictor.predictions([one.text for one in batch], **batch[0].request.options)
            for one, prediction in zip(batch, predictions, strict=True):
                done += 1
                self.finish(one, prediction)
        except Exception as error:
            if len(batch) == 1:
                self.fail(batch[0].request, error)
                return
            for one in batch[done:]:
                self.compute([one])

    def finish(self, one: Input, prediction: Prediction) -> None:
        """Hand a result to its request, unless that was cancelled."""
        with self.changed:
            if one.request.id not in self.requests:
                return
            self.left[one.request.id] -= 1
            if not self.left[one.request.id]:
                del self.requests[one.request.id], self.left[one.request.id]
                self.changed.notify_all()
        self.metrics.first_token_seconds.observe(monotonic() - one.arrived)
        self.metrics.tokens.labels("out").inc(estimate_tokens(prediction.text))
        one.request.listener(Finished(one.index, prediction))

    def fail(self, request: Request, error: Exception) -> None:
        """End a request with an error."""
        with self.changed:
            if self.requests.pop(request.id, None) is None:
                return
            del self.left[request.id]
            self.forget(request.id)
        request.listener(Failed(error))


def go_together(first: Request, other: Request) -> bool:
    """Whether inputs of both requests can be computed in one batch."""
    return first.options == other.options and not SAMPLING & first.options.keys()


def estimate_tokens(text: str) -> int:
    """About the number of tokens; exact numbers are counted when the text is computed."""
    return 1 + len(text) // 4
