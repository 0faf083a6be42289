"""HTTP clients that need little CPU time, because they share the cores with the server that they measure: asyncio protocols
that write prepared requests to kept-alive connections and read replies by their Content-Length.

    closed_loop    clients that send their next request when they have their reply
    open_loop      requests at a given rate, whether or not earlier ones are answered; some clients leave before their reply

Each runs in a process of its own and returns a Load. Replies are counted by request, status and body, so that every one can be
checked afterwards.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
RETRY = re.compile(rb"\r\nretry-after: *(\d+)\r\n", re.IGNORECASE)
HOST = "127.0.0.1"
TICK = 0.005  # seconds between two checks for due requests in an open loop
LEAVES_AFTER = 0.1  # seconds after which a client leaves


class Reply(NamedTuple):
    status: int
    body: bytes
    retry_after: int | None


@dataclass
class Load:
    """What the clients of one process saw."""

    replies: Counter[tuple[int, int, bytes]] = field(default_factory=Counter)  # (request, status, body); of errors request -1
    answered: list[tuple[float, float]] = field(default_factory=list)  # (time, latency) of the replies with status 200
    refused: list[float] = field(default_factory=list)  # latencies of the replies with status 429
    lost: list[float] = field(default_factory=list)  # when requests without a reply were sent
    no_retry_after: int = 0  # replies 429 without a positive Retry-After
    sent: int = 0
    left: int = 0  # clients that left before their reply
    unsent: int = 0  # requests of an open loop for which no connection was free
    cpu_seconds: float = 0.0  # of this process
    started: float = 0.0
    seconds: float = 0.0

    def add(self, request: int, sent: float, reply: Reply | None) -> None:
        now = time.monotonic()
        if reply is None:
            self.lost.append(sent)
            return
        self.replies[request if reply.status == 200 else -1, reply.status, reply.body] += 1
        if reply.status == 200:
            self.answered.append((now, now - sent))
        elif reply.status == 429:
            self.refused.append(now - sent)
            self.no_retry_after += not reply.retry_after

    @property
    def rate(self) -> float:
        """Replies with status 200 per second, while requests were sent."""
        return sum(self.started <= at <= self.started + self.seconds for at, _ in self.answered) / self.seconds

    @property
    def statuses(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for (_, status, _), number in self.replies.items():
            found[status] += number
        return found


class Connection(asyncio.Protocol):
    """A kept-alive connection with one request at a time."""

    def __init__(self) -> None:
        self.received = b""
        self.reply: asyncio.Future[Reply | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    async def ask(self, request: bytes) -> Reply | None:
        """Send a request and wait for its reply; None if the connection is closed without one."""
        self.reply = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.reply

    def data_received(self, data: bytes) -> None:
        self.received += data
        reply = parse(self.received)
        if reply is not None:
            self.received = b""
            self.finish(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self.finish(None)

    def finish(self, reply: Reply | None) -> None:
        if self.reply is not None and not self.reply.done():
            self.reply.set_result(reply)


def parse(received: bytes) -> Reply | None:
    """The reply, if it is complete."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head, body = received[: end + 2], received[end + 4 :]
    length = LENGTH.search(head)
    if length is None or len(body) < int(length[1]):
        return None
    retry = RETRY.search(head)
    return Reply(int(head[9:12]), body, None if retry is None else int(retry[1]))


def post(path: str, fields: dict[str, object]) -> bytes:
    """A request with a JSON body."""
    body = json.dumps(fields).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def connect(port: int) -> Connection | None:
    """A new connection; None if the server accepts none."""
    try:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, HOST, port)
    except OSError:
        return None
    return connection


@dataclass(frozen=True)
class Closed:
    """Clients that send their next request when they have their reply."""

    port: int
    requests: list[bytes]
    clients: int
    seconds: float
    warm_up: float = 0.0  # seconds before; the replies are checked, their times are not counted
    first: int = 0  # request of the first client
    patience: float = 60.0  # seconds to wait for the last replies
    ends_at_error: bool = False  # a client ends at its first reply that is not 200


def closed_loop(plan: Closed) -> Load:
    return asyncio.run(run_closed(plan))


async def run_closed(plan: Closed) -> Load:
    load, turns = Load(), count(plan.first)
    started = time.monotonic() + plan.warm_up
    clients = [asyncio.create_task(be_client(plan, turns, load, started + plan.seconds)) for _ in range(plan.clients)]
    await asyncio.sleep(plan.warm_up)
    cpu = time.process_time()
    await asyncio.wait(clients, timeout=started + plan.seconds - time.monotonic())
    load.cpu_seconds = time.process_time() - cpu
    _, pending = await asyncio.wait(clients, timeout=plan.patience)
    for one in pending:
        load.lost.append(time.monotonic() - plan.patience)
        one.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    load.started, load.seconds = started, plan.seconds
    load.answered = [(at, latency) for at, latency in load.answered if started <= at <= started + plan.seconds]
    return load


async def be_client(plan: Closed, turns: Iterator[int], load: Load, until: float) -> None:
    connection = await connect(plan.port)
    try:
        while connection is not None and time.monotonic() < until:
            request, sent = next(turns) % len(plan.requests), time.monotonic()
            load.sent += 1
            reply = await connection.ask(plan.requests[request])
            load.add(request, sent, reply)
            if plan.ends_at_error and (reply is None or reply.status != 200):
                break
            if not connection.is_open:
                connection = await connect(plan.port)
    finally:
        if connection is not None:
            connection.transport.close()


@dataclass(frozen=True)
class Open:
    """Requests at a rate that does not depend on the replies."""

    port: int
    requests: list[bytes]
    rate: float  # requests per second
    seconds: float
    leaving: int = 0  # every N-th client leaves before its reply; 0: none
    connections: int = 900  # at the same time; servers have limits
    patience: float = 60.0


def open_loop(plan: Open) -> Load:
    return asyncio.run(run_open(plan))


async def run_open(plan: Open) -> Load:
    load = Load()
    idle: list[Connection] = []
    asked: set[asyncio.Task[None]] = set()
    started, cpu, due = time.monotonic(), time.process_time(), 0
    while (elapsed := time.monotonic() - started) < plan.seconds:
        for number in range(due, due := int(plan.rate * elapsed)):
            if len(asked) >= plan.connections:
                load.unsent += 1
                continue
            leaves = bool(plan.leaving) and number % plan.leaving == 0
            task = asyncio.create_task(ask_once(plan, number % len(plan.requests), idle, load, leaves=leaves))
            asked.add(task)
            task.add_done_callback(asked.discard)
        await asyncio.sleep(TICK)
    load.started, load.seconds, load.cpu_seconds = started, time.monotonic() - started, time.process_time() - cpu
    if asked:
        _, pending = await asyncio.wait(asked, timeout=plan.patience)
        for one in pending:
            load.lost.append(time.monotonic() - plan.patience)
            one.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    for connection in idle:
        connection.transport.close()
    return load


async def ask_once(plan: Open, request: int, idle: list[Connection], load: Load, *, leaves: bool) -> None:
    """Send one request over an idle connection, or over a new one."""
    connection: Connection | None = None
    while idle and (connection is None or not connection.is_open):
        connection = idle.pop()
    if connection is None or not connection.is_open:
        connection = await connect(plan.port)
    if connection is None:
        load.unsent += 1
        return
    sent = time.monotonic()
    load.sent += 1
    try:
        reply = await asyncio.wait_for(connection.ask(plan.requests[request]), LEAVES_AFTER if leaves else None)
    except TimeoutError:
        load.left += 1
        connection.transport.abort()
        return
    except asyncio.CancelledError:
        connection.transport.abort()
        raise
    load.add(request, sent, reply)
    if connection.is_open:
        idle.append(connection)
