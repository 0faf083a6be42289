"""A request at work: what its handler is given, and how it asks a model."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from starlette.requests import Request

from heedful.serving.body import Body
from heedful.serving.demo_training import DemoTraining
from heedful.serving.detect import Detector
from heedful.serving.downloads import Downloads
from heedful.serving.failures import ApiError
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.served import Models, Served
from heedful.serving.worker import Cancelled, DeadlineExceeded, Event, Failed, Finished
from heedful.serving.worker import Request as Work
from heedful.tasks.predictor import Prediction

WATCHED_AFTER = 0.1  # seconds after which it is checked whether the client is still there: most requests are answered by then


class Mailbox:
    """Calls of functions in the event loop, from other threads. The loop wakes up once for all that wait."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[[Any], object], Any]] = deque()
        self.is_scheduled = False

    def post(self, loop: asyncio.AbstractEventLoop, function: Callable[[Any], object], argument: Any) -> None:
        """Call function(argument) soon."""
        self.waiting.append((function, argument))
        if not self.is_scheduled:
            self.is_scheduled = True
            with suppress(RuntimeError):  # the loop is closed: no one waits any more
                loop.call_soon_threadsafe(self.deliver)

    def deliver(self) -> None:
        self.is_scheduled = False  # first: what is posted from here on needs another wake-up
        while self.waiting:
            function, argument = self.waiting.popleft()
            function(argument)


@dataclass
class Service:
    """What all requests share."""

    models: Models
    limits: Limits
    metrics: Metrics
    detector: Detector
    keys: Sequence[str] = ()  # hashes; none: no key is needed
    hosts: Sequence[str] = ()  # further names of this server
    origins: Sequence[str] = ()  # of pages that may use it
    downloads: Downloads = field(default_factory=Downloads)
    mailbox: Mailbox = field(default_factory=Mailbox)
    draining: bool = False
    in_flight: int = 0  # requests that are being answered
    watched: Sequence[Path] = ()  # folders whose training runs are shown
    demo: DemoTraining | None = None  # of a studio without a run
    checked: dict[str, float] = field(default_factory=dict)  # model id -> when its canary was last correct

    def add(self, served: Served) -> None:
        """Serve one more model."""
        self.models = Models([*self.models, served], self.models.pivot)
        self.detector = Detector(self.models.sources)


@dataclass(frozen=True)
class Call:
    """One request."""

    service: Service
    request: Request
    client: str  # its key, or its address
    arrived: float
    fields: Mapping[str, Any] = field(default_factory=dict)

    async def predict(self, served: Served, texts: Sequence[str], options: Mapping[str, Any]) -> list[Prediction]:
        """The predictions for some texts."""
        found: dict[int, Prediction] = {}
        if texts:
            async for event in self.events(served, texts, options):
                if isinstance(event, Finished):
                    found[event.index] = event.prediction
        return [found[index] for index in range(len(texts))]

    async def events(
        self, served: Served, texts: Sequence[str], options: Mapping[str, Any], *, stream: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Submit texts and yield what the worker reports, until all are finished. The work is cancelled if the client leaves,
        if the deadline passes, or if the caller stops."""
        most = max(1, self.service.limits.max_queue // 2)
        if len(texts) > most:
            raise ApiError(413, f"the request has {len(texts):,} lines or passages of text; expected at most {most:,}")
        loop, reported = asyncio.get_running_loop(), asyncio.Queue[Event]()
        deadline = self.arrived + self.service.limits.deadline
        report = partial(self.service.mailbox.post, loop, reported.put_nowait)
        work = Work(texts, options, report, self.client, deadline, stream)
        served.worker.submit(work)
        expiry = loop.call_later(max(0.0, deadline - monotonic()), reported.put_nowait, Failed(DeadlineExceeded()))
        watch: asyncio.Task[None] | None = None

        def start_watch() -> None:
            nonlocal watch
            watch = loop.create_task(self.report_leaving(reported))

        watched = loop.call_later(WATCHED_AFTER, start_watch)
        left = len(texts)
        try:
            while left:
                event = await reported.get()
                if isinstance(event, Failed):
                    raise event.error
                left -= isinstance(event, Finished)
                yield event
        finally:
            expiry.cancel()
            watched.cancel()
            if watch is not None:
                watch.cancel()
            served.worker.cancel(work.id)

    async def report_leaving(self, reported: asyncio.Queue[Event]) -> None:
        """Wait until the client closes the connection."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
        reported.put_nowait(Failed(Cancelled()))

    def longest_input(self, served: Served) -> int:
        """The most characters of an input of a model."""
        limits = self.service.limits
        return limits.max_characters if served.predictor.reads_text else limits.max_data

    def check_texts(self, texts: Sequence[str], name: str, served: Served | None = None) -> None:
        """Raise an error for too many or too long texts; served: the model whose inputs they are."""
        limits = self.service.limits
        most = limits.max_characters if served is None else self.longest_input(served)
        if len(texts) > limits.max_texts:
            raise ApiError(400, f"{name}: given {len(texts):,} texts, expected at most {limits.max_texts:,}", param=name)
        longest = max(map(len, texts), default=0)
        if longest > most:
            message = f"{name}: given a text of {longest:,} characters, expected at most {most:,}"
            raise ApiError(400, message, param=name)


Handler = Callable[[Call, Any], Awaitable[Any]]


class Endpoint(NamedTuple):
    """A route, and what the OpenAPI document says about it."""

    method: str
    path: str  # {name} is a part of it
    handler: Handler  # (call, fields) -> an object for JSON, or a response
    summary: str
    api: str = "heedful"  # whose form errors have: libretranslate, openai or heedful
    fields: type[Body] | None = None
    answer: Any = dict[str, Any]  # the type of the reply; None: not JSON
    needs_key: bool = True  # where keys are used
    while_draining: bool = False
    choices: Sequence[str] = ()  # the values of the part of its path; none: any
