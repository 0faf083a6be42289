"""A model in a process of its own: a `Worker` there, whose requests and events travel through a socket.

    model = ModelProcess(partial(open_model, folder, loading), limits, metrics)
    model.submit(Request(["a text"], {}, listener=events.put))          # as to a Worker

A GPU computes a step in a few milliseconds, in which Python has to prepare the next one and to make texts of what is finished.
In the process of the HTTP front, both would wait for Python's interpreter lock. On a CPU the model itself takes the time, and
a thread is enough.

Messages wait a moment for others, so that under load one write and one read carry many of them. The front reads and writes in
its event loop: threads would compete with it for the interpreter lock. A process that ends by itself is started again; its
requests fail.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import signal
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from queue import SimpleQueue
from socket import socket, socketpair
from threading import Event as Flag
from threading import Thread
from time import sleep
from typing import Any, NamedTuple, cast

from heedful.errors import HeedfulError
from heedful.serving.failures import log_bug
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.worker import Draining, Event, Failed, Finished, ModelEnded, QueueFull, Request, Worker, WorkerError
from heedful.tasks.predictor import Predictor

log = logging.getLogger(__name__)
LINGER = 0.001  # seconds that a message waits for others: to wake a thread costs more than to send a message
HEADER = struct.Struct("!Q")  # the number of bytes that follow
Message = Any  # of those below; (request id, Event) to the front


class Cancel(NamedTuple):
    request_id: int


class Drain(NamedTuple):
    timeout: float


class Drained(NamedTuple):
    in_time: bool


class Observed(NamedTuple):
    """Calls of a metric, which are repeated in the front."""

    name: str
    method: str  # inc or observe
    labels: tuple[str, ...]
    values: list[float]


class Loaded(NamedTuple):
    error: Exception | None


class ModelFailure(Exception):
    """An error of the model's process that cannot be sent; its traceback is in the log."""


class ModelProcess(asyncio.Protocol):
    """The front's side: takes requests as a `Worker` does, and hands their events to their listeners."""

    def __init__(self, load: Callable[[], Predictor], limits: Limits, metrics: Metrics) -> None:
        """load: must be picklable."""
        self.load, self.limits, self.metrics = load, limits, metrics
        self.requests: dict[int, Request] = {}  # sent and not ended
        self.left: dict[int, int] = {}  # request id -> inputs without a result
        self.is_draining, self.drained, self.in_time = False, Flag(), False
        self.transport: asyncio.WriteTransport | None = None  # while the process runs
        self.outgoing: list[Message] = []  # those that wait for others
        self.received = bytearray()
        self.start()

    def start(self) -> None:
        """Start the process and wait until its model is loaded."""
        self.socket, other = socketpair()
        context = get_context("spawn")
        self.process = context.Process(target=run_model, args=(other, self.load, self.limits), name="model", daemon=True)
        self.process.start()
        other.close()
        try:
            (loaded,) = receive(self.socket)
        except EOFError:
            loaded = Loaded(HeedfulError("the process of the model ended while the model was loaded"))
        if loaded.error is not None:
            self.socket.close()
            raise loaded.error

    def predict_alone(self, request: Request) -> Event:
        """The last event of a request, before the process is attached to an event loop."""
        events: list[Event] = []
        self.accept(replace(request, listener=events.append))
        self.socket.sendall(pack([replace(request, listener=ignore)]))
        while request.id in self.requests:
            for message in receive(self.socket):
                self.take(message)
        return events[-1]

    async def attach(self) -> None:
        """Read and write in the running event loop from now on; all methods but `drain` must be called there."""
        self.loop = asyncio.get_running_loop()
        await self.loop.create_unix_connection(lambda: self, sock=self.socket)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= HEADER.size:
            end = HEADER.size + HEADER.unpack_from(self.received)[0]
            if len(self.received) < end:
                return
            messages = pickle.loads(self.received[HEADER.size : end])
            del self.received[:end]
            for message in messages:
                self.take(message)

    def connection_lost(self, error: Exception | None) -> None:
        """The process ended: fail its requests, and start it again."""
        self.transport, self.received = None, bytearray()
        failed, self.requests, self.left = list(self.requests.values()), {}, {}
        for request in failed:
            request.listener(Failed(ModelEnded()))
        if self.is_draining:
            self.drained.set()
        else:
            self.restarting = self.loop.create_task(self.restart())

    async def restart(self) -> None:
        await asyncio.to_thread(self.process.join, 5)
        log.error("error: the process of a model ended with code %s; it is started again", self.process.exitcode)
        self.metrics.queue_depth.set(0)
        self.metrics.running.set(0)
        try:
            await asyncio.to_thread(self.start)
        except Exception as error:
            log.error("error: the process of a model could not be started again: %s", error)
            return
        await self.attach()

    def submit(self, request: Request) -> None:
        """Send a request. Whether the queue has room for it is an event, too: Failed(QueueFull)."""
        if self.is_draining:
            raise Draining("the server is stopping")
        if self.transport is None:
            raise ModelEnded
        self.accept(request)
        self.send(replace(request, listener=ignore))

    def accept(self, request: Request) -> None:
        self.requests[request.id], self.left[request.id] = request, len(request.inputs)

    def cancel(self, request_id: int) -> None:
        """Forget a request whose client left; does nothing for one that is finished."""
        if self.requests.pop(request_id, None) is not None:
            del self.left[request_id]
            self.send(Cancel(request_id))

    def drain(self, timeout: float) -> bool:
        """Accept no more requests, finish the accepted ones and end the process; whether all are finished in time."""
        self.is_draining = True
        if self.transport is not None:
            self.loop.call_soon_threadsafe(self.send, Drain(timeout))
            self.drained.wait(timeout + 1)
            self.loop.call_soon_threadsafe(self.close)
        self.process.kill()  # its model is at rest, or out of time
        return self.in_time

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def send(self, message: Message) -> None:
        """Send a message, with those that follow soon."""
        self.outgoing.append(message)
        if len(self.outgoing) == 1:
            self.loop.call_later(LINGER, self.flush)

    def flush(self) -> None:
        messages, self.outgoing = self.outgoing, []
        if self.transport is not None:
            self.transport.write(pack(messages))

    def take(self, message: Message) -> None:
        if isinstance(message, Observed):
            metric = getattr(self.metrics, message.name)
            call = getattr(metric.labels(*message.labels) if message.labels else metric, message.method)
            for value in message.values:
                call(value)
        elif isinstance(message, Drained):
            self.in_time = message.in_time
            self.drained.set()
        else:
            request_id, event = message
            request = self.requests.get(request_id)
            if request is None:  # cancelled
                return
            self.left[request_id] -= isinstance(event, Finished)
            if isinstance(event, Failed) or not self.left[request_id]:
                del self.requests[request_id], self.left[request_id]
            request.listener(event)


def pack(messages: Sequence[Message]) -> bytes:
    """Messages as bytes, after their number."""
    data = pickle.dumps(messages)
    return HEADER.pack(len(data)) + data


def receive(source: socket) -> list[Message]:
    """Wait for the next messages; EOFError when the other process ended."""
    (size,) = HEADER.unpack(read_exactly(source, HEADER.size))
    messages: list[Message] = pickle.loads(read_exactly(source, size))
    return messages


def read_exactly(source: socket, size: int) -> bytes:
    parts = []
    while size:
        try:
            part = source.recv(min(size, 2**20))
        except OSError:
            part = b""
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def send_waiting(front: socket, waiting: SimpleQueue[Message]) -> None:
    """Send the messages of a queue for ever, those that wait together, from a thread of its own."""
    while True:
        messages = [waiting.get()]
        sleep(LINGER)
        while not waiting.empty():
            messages.append(waiting.get())
        try:
            front.sendall(pack(join_observed(messages)))
        except OSError:  # the front ended
            return


def join_observed(messages: Sequence[Message]) -> list[Message]:
    """The messages with all calls of a metric in one of them."""
    observed: dict[tuple[str, str, tuple[str, ...]], list[float]] = {}
    others = []
    for message in messages:
        if not isinstance(message, Observed):
            others.append(message)
        elif message.method == "inc":
            observed.setdefault(message[:3], [0.0])[0] += message.values[0]
        else:
            observed.setdefault(message[:3], []).extend(message.values)
    return [*others, *(Observed(*metric, values) for metric, values in observed.items())]


def ignore(event: Event) -> None:
    """The listener of a request on its way: the process has its own."""


@dataclass(frozen=True)
class SentMetric:
    """A metric whose calls are sent to the front."""

    send: Callable[[Message], None]
    name: str
    labeled: tuple[str, ...] = ()

    def labels(self, *labels: str) -> SentMetric:
        return replace(self, labeled=labels)

    def inc(self, value: float = 1) -> None:
        self.send(Observed(self.name, "inc", self.labeled, [value]))

    def dec(self, value: float = 1) -> None:
        self.inc(-value)

    def observe(self, value: float) -> None:
        self.send(Observed(self.name, "observe", self.labeled, [value]))


class SentMetrics:
    def __init__(self, send: Callable[[Message], None]) -> None:
        self.send = send

    def __getattr__(self, name: str) -> SentMetric:
        metric = SentMetric(self.send, name)
        setattr(self, name, metric)
        return metric


def run_model(front: socket, load: Callable[[], Predictor], limits: Limits) -> None:
    """The process of a model: answer messages until the front asks for the end or ends itself."""
    for number in (signal.SIGINT, signal.SIGTERM):  # for the front, which finishes the requests first
        signal.signal(number, signal.SIG_IGN)
    waiting = SimpleQueue[Message]()
    Thread(target=send_waiting, args=(front, waiting), daemon=True).start()
    metrics: Any = SentMetrics(waiting.put)
    try:
        worker = Worker(load, limits, metrics)
    except Exception as error:
        front.sendall(pack([Loaded(portable(error))]))
        return
    gc.freeze()
    front.sendall(pack([Loaded(None)]))
    while True:
        try:
            messages = receive(front)
        except EOFError:
            return
        for message in messages:
            if isinstance(message, Cancel):
                worker.cancel(message.request_id)
            elif isinstance(message, Drain):
                Thread(target=drain, args=(worker, message.timeout, waiting.put), daemon=True).start()
            else:
                accept(worker, message, waiting.put)


def drain(worker: Worker, timeout: float, send: Callable[[Message], None]) -> None:
    send(Drained(worker.drain(timeout)))


def accept(worker: Worker, request: Request, send: Callable[[Message], None]) -> None:
    """Submit a request whose events are sent to the front."""

    def report(event: Event) -> None:
        send((request.id, Failed(portable(event.error)) if isinstance(event, Failed) else event))

    try:
        worker.submit(replace(request, listener=report))
    except (QueueFull, Draining) as error:
        report(Failed(error))


def portable(error: Exception) -> Exception:
    """The error, if it can be sent to another process; a bug of ours is logged here, where its traceback is."""
    if isinstance(error, HeedfulError | WorkerError):
        try:
            pickle.loads(pickle.dumps(error))
            return error
        except Exception:
            return HeedfulError(str(error.args[0]) if error.args else type(error).__name__)
    log_bug(error)
    return ModelFailure(type(error).__name__)
