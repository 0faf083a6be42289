"""The queue of one model and the thread that computes its predictions.

    worker = Worker(lambda: load("runs/demo"), Limits())
    worker.submit(Request(["a text"], {"beam": 5}, listener=events.put))        # from any thread
    events.get()                                                                 # Finished(0, Translation(…))

Clients take turns, one input each, so that a long request does not hold up a short one. Outputs that are searched for token by
token are decoded by continuous batching: inputs join the batch at every step, leave it when they are finished, cancelled or
past their deadline, and may be read while they are generated. Inputs of other tasks are computed in batches of equal options:
those that arrive within `max_wait_ms`, up to `max_batch_tokens`. A batch that fails is computed again input by input, so that
an input that cannot be computed fails only its own request.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from queue import SimpleQueue
from threading import Condition, Thread
from time import monotonic
from typing import Any, NamedTuple

from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.tasks.continuous_batching import ContinuousBatch, Job
from heedful.tasks.predictor import Prediction, Predictor

MAX_RETRY = 60  # seconds that a client is asked to wait at most
RUNNING = {False: 64, True: 256}  # texts that are decoded at the same time, on a CPU and on a GPU
RECENT = 256  # finished inputs by which the rate is measured
MEASURED = 32  # finished inputs from which on the rate says how long a new one waits
WAITING = 0.4  # share of the time until its deadline that an input may have to wait, as far as that is known


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


class WorkerError(Exception):
    """Base class of the reasons why a request is not computed."""


class QueueFull(WorkerError):
    """The queue, or the client's share of it, is full."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"the queue is full; try again in {self.retry_after} s"


class Draining(WorkerError):
    """The worker accepts no more requests."""


class DeadlineExceeded(WorkerError):
    """The deadline of a request passed."""


class ModelEnded(WorkerError):
    """The process of the model ended by itself, for example because the machine was out of memory."""


class Cancelled(WorkerError):
    """The client of a request left."""


@dataclass(frozen=True)
class Request:
    inputs: Sequence[str]  # sources, prompts, texts to classify; a dialogue is turns joined by tabs
    options: Mapping[str, Any]  # of `Predictor.predictions`
    listener: Callable[[Event], None] = lambda event: None  # called from the worker's thread; must not block
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


@dataclass
class Running:
    """An input that is being decoded."""

    input: Input
    job: Job
    is_reported: bool = False  # whether some of its output was


class Worker:
    """The queue and the thread of one model."""

    def __init__(self, load: Callable[[], Predictor], limits: Limits, metrics: Metrics | None = None) -> None:
        """load: called in the thread of the model, so that no other thread computes with it. OpenMP has a team of threads for
        every thread that computes; with more threads than cores, all of them wait more slowly."""
        self.limits, self.metrics = limits, metrics or Metrics()
        self.changed = Condition()  # guards everything below
        self.waiting: dict[str, deque[Input]] = {}  # of each client; the first one is served next
        self.requests: dict[int, Request] = {}  # accepted and not ended
        self.left: dict[int, int] = {}  # request id -> inputs without a result
        self.draining = False
        self.finished: deque[float] = deque(maxlen=RECENT)  # when the last inputs were finished
        loaded: Future[Predictor] = Future()
        self.thread = Thread(target=self.work, args=(load, loaded), name="model", daemon=True)
        self.thread.start()
        self.predictor = loaded.result()

    def submit(self, request: Request) -> None:
        """Accept a request, from any thread; QueueFull or Draining if it cannot be accepted."""
        now = monotonic()
        with self.changed:
            if self.draining:
                raise Draining("the server is stopping")
            own = self.waiting.get(request.client, deque())
            most, new = self.limits.max_queue, len(request.inputs)
            if self.depth + new > most or len(own) + new > max(1, most // 2) or self.is_too_late(request, len(own) + new):
                raise QueueFull(self.retry_after())
            self.requests[request.id], self.left[request.id] = request, new
            self.waiting.setdefault(request.client, own).extend(Input(request, index, now) for index in range(new))
            self.metrics.queue_depth.inc(new)
            self.changed.notify_all()

    def predict_alone(self, request: Request) -> Event:
        """Submit a request of one input and wait for its last event."""
        events: SimpleQueue[Event] = SimpleQueue()
        self.submit(replace(request, listener=events.put))
        return events.get()

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

    @property
    def rate(self) -> float:
        """Inputs per second, of those finished last without a pause."""
        return len(self.finished) / max(monotonic() - self.finished[0], 1e-6)

    def retry_after(self) -> int:
        """Seconds until half of the inputs that wait are computed, at the measured rate."""
        return 1 if len(self.finished) < 2 else min(MAX_RETRY, max(1, math.ceil(self.depth / 2 / self.rate)))

    def is_too_late(self, request: Request, own: int) -> bool:
        """Whether the last input of a request, one of `own` that its client then has in the queue, would probably be computed
        too late. Before it are those that run, and at most as many of each other client, since clients take turns."""
        if len(self.finished) < MEASURED:
            return False
        before = own + sum(min(len(queue), own) for client, queue in self.waiting.items() if client != request.client)
        before += max(0, sum(self.left.values()) - self.depth)  # of other requests, whose inputs run
        return before / self.rate > WAITING * (request.deadline - monotonic())

    def forget(self, request_id: int) -> None:
        """Remove the inputs of a request that wait."""
        for client, queue in list(self.waiting.items()):
            kept = deque(one for one in queue if one.request.id != request_id)
            self.metrics.queue_depth.dec(len(queue) - len(kept))
            self.waiting[client] = kept
            if not kept:
                del self.waiting[client]
        self.changed.notify_all()

    def work(self, load: Callable[[], Predictor], loaded: Future[Predictor]) -> None:
        """Load the model and compute until the worker is drained."""
        try:
            self.predictor = load()
        except BaseException as error:
            loaded.set_exception(error)
            return
        loaded.set_result(self.predictor)
        if self.predictor.decodes:
            self.decode()
        else:
            while batch := self.next_batch():
                alive = [one for one in batch if self.is_wanted(one)]
                if alive:
                    with suppress(Exception):  # a text that cannot be encoded fails, alone, when it is computed
                        rows = self.predictor.input_tokenizer.encode_many([one.text for one in alive])
                        self.observe_lengths(list(map(len, rows)))
                    self.compute(alive)

    def decode(self) -> None:
        """Decode the jobs of all inputs in one batch, which they join and leave at every step."""
        decoder = self.predictor.decoder()
        most = self.limits.max_running or RUNNING[decoder.system.device.type == "cuda"]
        batch = ContinuousBatch(decoder, capacity=most)
        running: dict[int, Running] = {}  # by the id() of the job
        while (joining := self.next_inputs(batch, bool(running))) is not None:
            before = len(running)
            try:
                self.step(batch, joining, running)
            except Exception as error:  # of the batch as a whole, such as out of memory
                for one in [*joining, *(one.input for one in running.values())]:
                    self.fail(one.request, error)
                batch, running = ContinuousBatch(decoder, capacity=most), {}
            self.metrics.running.inc(len(running) - before)

    def step(self, batch: ContinuousBatch, joining: Sequence[Input], running: dict[int, Running]) -> None:
        """Let inputs join, decode a token of each, and hand out what is finished."""
        self.start_jobs(batch, joining, running)
        for one in [one for one in running.values() if not self.is_still_wanted(one.input)]:
            batch.cancel(one.job)
            del running[id(one.job)]
        complete = batch.step() if batch.busy else []
        for one in running.values():
            self.report_progress(one)
        for job in complete:
            self.finish_job(running.pop(id(job)))
        for job, error in batch.failures:
            self.fail(running.pop(id(job)).input.request, error)
        batch.failures.clear()

    def next_inputs(self, batch: ContinuousBatch, is_busy: bool) -> list[Input] | None:
        """Inputs that may join, without waiting if others are being decoded; None when the worker is drained."""
        with self.changed:
            if not is_busy:
                if not self.waiting:
                    self.finished.clear()
                self.changed.wait_for(lambda: self.waiting or (self.draining and not self.requests))
                if not self.waiting:
                    return None
                until = min(queue[0].arrived for queue in self.waiting.values()) + self.limits.max_wait_ms / 1000
                self.changed.wait_for(lambda: self.depth >= batch.free, max(0.0, until - monotonic()))
            return self.take_turns(batch.free)

    def start_jobs(self, batch: ContinuousBatch, joining: Sequence[Input], running: dict[int, Running]) -> None:
        lengths = []
        for one in joining:
            if not self.is_wanted(one):
                continue
            request = one.request
            try:
                job = self.predictor.job(one.text, number=one.index, stream=request.stream, **request.options)
                complete = batch.submit(job)
            except Exception as error:
                self.fail(request, error)
                continue
            lengths.append(job.input_tokens)
            started = Running(one, job)
            if complete:
                self.finish_job(started)
            else:
                running[id(job)] = started
        if lengths:
            self.observe_lengths(lengths)

    def report_progress(self, one: Running) -> None:
        """Hand new text to a request that streams."""
        if one.input.request.stream and (text := one.job.new_text(0)):
            self.note_first_token(one)
            one.input.request.listener(Delta(one.input.index, text, one.job.output_tokens))

    def finish_job(self, one: Running) -> None:
        try:
            prediction = one.job.prediction()
        except Exception as error:
            self.fail(one.input.request, error)
            return
        self.report_progress(one)
        self.note_first_token(one)
        self.finish(one.input, prediction, one.job.output_tokens)

    def note_first_token(self, one: Running) -> None:
        if not one.is_reported:
            one.is_reported = True
            self.metrics.first_token_seconds.observe(monotonic() - one.input.arrived)

    def next_batch(self) -> list[Input]:
        """Wait for inputs and take those to compute together; none when the worker is drained."""
        with self.changed:
            if not self.waiting:
                self.finished.clear()
            self.changed.wait_for(lambda: self.waiting or (self.draining and not self.requests))
            if not self.waiting:
                return []
            until = min(queue[0].arrived for queue in self.waiting.values()) + self.limits.max_wait_ms / 1000
            enough = self.limits.max_batch_tokens // 8  # inputs: more would rarely fit into the batch
            self.changed.wait_for(lambda: self.depth >= enough, max(0.0, until - monotonic()))
            return self.take_turns()

    def take_turns(self, most: int | None = None) -> list[Input]:
        """Take one input of each client in turn: `most` of them, or as many as have equal options and fit into a batch."""
        batch: list[Input] = []
        left = self.limits.max_batch_tokens
        clients = deque(self.waiting)
        while clients and (most is None or len(batch) < most):
            client = clients.popleft()
            queue = self.waiting[client]
            if most is None:
                if batch and batch[0].request.options != queue[0].request.options:
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
        """Whether to compute an input that waited."""
        self.metrics.queue_seconds.observe(monotonic() - one.arrived)
        return self.is_still_wanted(one)

    def is_still_wanted(self, one: Input) -> bool:
        """Whether the result of an input is wanted; a request whose deadline passed is ended."""
        if monotonic() > one.request.deadline:
            self.fail(one.request, DeadlineExceeded())
        return one.request.id in self.requests

    def observe_lengths(self, lengths: Sequence[int]) -> None:
        """Count the tokens of inputs that are computed together, and their padding."""
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
                self.metrics.first_token_seconds.observe(monotonic() - one.arrived)
                self.finish(one, prediction, estimate_tokens(prediction.text))
        except Exception as error:
            if len(batch) == 1:
                self.fail(batch[0].request, error)
                return
            for one in batch[done:]:
                self.compute([one])

    def finish(self, one: Input, prediction: Prediction, tokens: int) -> None:
        """Hand a result to its request, unless that was cancelled; tokens: of the output."""
        with self.changed:
            self.finished.append(monotonic())
            if one.request.id not in self.requests:
                return
            self.left[one.request.id] -= 1
            if not self.left[one.request.id]:
                del self.requests[one.request.id], self.left[one.request.id]
                self.changed.notify_all()
        self.metrics.tokens.labels("out").inc(tokens)
        one.request.listener(Finished(one.index, prediction))

    def fail(self, request: Request, error: Exception) -> None:
        """End a request with an error."""
        with self.changed:
            if self.requests.pop(request.id, None) is None:
                return
            del self.left[request.id]
            self.forget(request.id)
        request.listener(Failed(error))


def estimate_tokens(text: str) -> int:
    """About the number of tokens; exact numbers are counted when the text is computed."""
    return 1 + len(text) // 4
