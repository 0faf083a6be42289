"""A request at work: what its handler is given, and how it asks a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from starlette.requests import Request

from heedful.serving.body import Body
from heedful.serving.detect import Detector
from heedful.serving.downloads import Downloads
from heedful.serving.failures import ApiError
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.served import Models, Served
from heedful.serving.worker import Cancelled, DeadlineExceeded, Event, Failed, Finished
from heedful.serving.worker import Request as Work
from heedful.tasks.predictor import Prediction


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
    draining: bool = False
    in_flight: int = 0  # requests that are being answered
    watched: Sequence[Path] = ()  # folders whose training runs are shown
    checked: dict[str, float] = field(default_factory=dict)  # model id -> when its canary was last correct


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

        def report(event: Event) -> None:
            with suppress(RuntimeError):  # the loop is closed: no one waits any more
                loop.call_soon_threadsafe(reported.put_nowait, event)

        deadline = self.arrived + self.service.limits.deadline
        work = Work(texts, options, report, self.client, deadline, stream)
        served.worker.submit(work)
        watch = asyncio.create_task(self.report_leaving(reported))
        left = len(texts)
        try:
            while left:
                try:
                    event = await asyncio.wait_for(reported.get(), max(0.0, deadline - monotonic()))
                except TimeoutError:
                    raise DeadlineExceeded from None
                if isinstance(event, Failed):
                    raise event.error
                left -= isinstance(event, Finished)
                yield event
        finally:
            watch.cancel()
            served.worker.cancel(work.id)

    async def report_leaving(self, reported: asyncio.Queue[Event]) -> None:
        """Wait until the client closes the connection."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
        reported.put_nowait(Failed(Cancelled()))

    def check_texts(self, texts: Sequence[str], name: str) -> None:
        """Raise an error for too many or too long texts."""
        limits = self.service.limits
        if len(texts) > limits.max_texts:
            raise ApiError(400, f"{name}: given {len(texts):,} texts, expected at most {limits.max_texts:,}", param=name)
        longest = max(map(len, texts), default=0)
        if longest > limits.max_characters:
            message = f"{name}: given a text of {longest:,} characters, expected at most {limits.max_characters:,}"
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
