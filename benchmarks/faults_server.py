"""Faults of clients of a server: too slow, too many, gone, invalid; and SIGTERM while it is busy."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from faults_workshop import Case, Finished, Outcome, Running, Sandbox, no_fault, patch, read_from_start

STEP = 0.02  # seconds of a decoding step of a slowed model
SERVE = ("--port", "0", "--json", "--device", "cpu")
GOOD = {"inputs": "w1 w2"}
BAD = {
    "invalid JSON": b'{"inputs": ',
    "text that is not UTF-8": b'{"inputs": "\xff"}',
    "a word of a megabyte": b'{"inputs": "' + b"w" * 2**20 + b'"}',
    "deep JSON": b'{"inputs": ' + b"[" * 100_000,
    "NUL": b'{"inputs": "a\\u0000b"}',
    "a number": b'{"inputs": 5}',
    "nothing": b"",
}


class Server(NamedTuple):
    running: Running
    host: str
    port: int

    def ask(self, body: Any = GOOD, path: str = "/api/predict", method: str = "POST") -> tuple[int, dict[str, str], str]:
        """Status, headers and body of a reply."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        try:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read().decode()
        finally:
            connection.close()


@contextmanager
def server(
    sandbox: Sandbox, *options: str, fault: Callable[[], object] = no_fault, runs: Sequence[str] = ()
) -> Iterator[Server]:
    """A server on a free port of the loopback interface; runs: folders in the sandbox, default: a trained run."""
    if not runs:
        sandbox.trained_run_copy()
    with started(sandbox.fork(fault, "serve", *(runs or ["run"]), *SERVE, *options)) as one:
        yield one


@contextmanager
def started(running: Running) -> Iterator[Server]:
    """A server that prints its address as JSON."""
    try:
        assert running.wait_for(lambda: "\n" in read_from_start(running.out)), read_from_start(running.err)
        host, port = json.loads(read_from_start(running.out).splitlines()[0])["url"].removeprefix("http://").split(":")
        yield Server(running, host, int(port))
    except BaseException:
        with suppress(ProcessLookupError):
            running.send(signal.SIGKILL)
        raise


def slow_down(seconds: float = STEP) -> None:
    from heedful.search.engine import Engine

    def step(engine: Engine) -> None:
        time.sleep(seconds)
        own(engine)

    own = patch(Engine, "step", step)


def end(sandbox: Sandbox, running: Running) -> Finished:
    running.send(signal.SIGTERM)
    return sandbox.finish(running, time.monotonic() - running.started + 60)


def result(sandbox: Sandbox, one: Server, right: bool, text: str) -> Outcome:
    """The server still answers, ends with 0 and has written no traceback."""
    status, _, _ = one.ask()
    done = end(sandbox, one.running)
    clean = "Traceback" not in done.err
    notes = "" if clean else "; a traceback"
    return Outcome(right and status == 200 and done.code == 0 and clean, f"{text}; then {status}, exit {done.code}{notes}")


def slow_clients(sandbox: Sandbox) -> Outcome:
    """Fifty connections send one byte of their headers at a time."""
    with server(sandbox) as one:
        connections = [socket.create_connection((one.host, one.port)) for _ in range(50)]
        codes, slowest = Counter[int](), 0.0
        for letter in b"POST / H":
            for connection in connections:
                connection.send(bytes([letter]))
            started = time.monotonic()
            codes[one.ask()[0]] += 1
            slowest = max(slowest, time.monotonic() - started)
        for connection in connections:
            connection.close()
        return result(sandbox, one, codes == {200: 8} and slowest < 30, f"{codes[200]} of 8 other requests answered")


def overload(sandbox: Sandbox) -> Outcome:
    with server(sandbox, "--max-queue", "8", "--max-batch-tokens", "16", fault=slow_down) as one:
        one.ask()  # so that the rate is known
        with ThreadPoolExecutor(80) as clients:
            replies = list(clients.map(lambda _: one.ask(), range(80)))
        codes = Counter(status for status, _, _ in replies)
        hints = all("retry-after" in headers for status, headers, _ in replies if status == 429)
        right = set(codes) == {200, 429} and hints
        return result(sandbox, one, right, "some requests answered, the others 429 with Retry-After" if right else f"{codes}")


def leaves(sandbox: Sandbox) -> Outcome:
    """The client closes the connection after the first part of a streamed reply."""
    with server(sandbox, "--max-queue", "4", fault=slow_down) as one:
        body = json.dumps({"model": "run", "messages": [{"role": "user", "content": "w1 w2"}], "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        started = 0
        for _ in range(6):
            with socket.create_connection((one.host, one.port), timeout=30) as connection:
                connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
                started += b"200" in connection.recv(200)
        limit = time.monotonic() + 30
        while (depth := queue_depth(one)) and time.monotonic() < limit:
            time.sleep(0.05)
        return result(sandbox, one, started == 6 and depth == 0, f"{started} streams left, nothing waits")


def queue_depth(one: Server) -> float:
    return gauges(one, "heedful_queue_depth")


def in_server(one: Server) -> float:
    """The requests that wait or are decoded: all that were accepted and not answered."""
    return gauges(one, "heedful_queue_depth", "heedful_running")


def gauges(one: Server, *names: str) -> float:
    lines = one.ask(b"", "/metrics", "GET")[2].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(names))


def bad_requests(sandbox: Sandbox) -> Outcome:
    with server(sandbox) as one:
        codes = {name: one.ask(body)[0] for name, body in BAD.items()}
        right = all(400 <= code < 500 for code in codes.values())
        return result(sandbox, one, right, ", ".join(f"{name} {code}" for name, code in codes.items()))


def poison_text(sandbox: Sandbox) -> Outcome:
    """A text that the tokenizer fails on, among nine others at the same time."""

    def poison() -> None:
        from heedful.text.tokenizer import Tokenizer

        def encode(tokenizer: Tokenizer, text: str, *rest: Any, **options: Any) -> Any:
            if "w13" in text:
                raise RuntimeError("poison")
            return own(tokenizer, text, *rest, **options)

        own = patch(Tokenizer, "encode", encode)
        slow_down()

    with server(sandbox, fault=poison) as one:
        texts = ["w13", *(f"w{number} w2" for number in range(1, 10))]
        with ThreadPoolExecutor(10) as clients:
            codes = [reply[0] for reply in clients.map(lambda text: one.ask({"inputs": text}), texts)]
        status, _, _ = one.ask()
        done = end(sandbox, one.running)
    right = codes[0] == 500 and codes[1:] == [200] * 9 and status == 200 and done.code == 0
    return Outcome(right, f"{codes[0]} for the text, {codes[1:].count(200)} of 9 others answered; exit {done.code}")


def full_memory(sandbox: Sandbox) -> Outcome:
    """One step of the batch runs out of memory: its requests fail, the others are answered."""
    marker = sandbox.folder / "full"

    def fail_once() -> None:
        import torch

        from heedful.tasks.continuous_batching import ContinuousBatch

        def step(batch: Any) -> Any:
            if marker.exists():
                marker.unlink()
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free.")
            return own(batch)

        own = patch(ContinuousBatch, "step", step)
        slow_down()

    with server(sandbox, fault=fail_once) as one:
        marker.touch()
        with ThreadPoolExecutor(6) as clients:
            codes = Counter(reply[0] for reply in clients.map(lambda _: one.ask(), range(6)))
        right = 1 <= codes[500] <= 6 and set(codes) <= {200, 500}
        return result(sandbox, one, right, "the requests of the step 500, the others 200" if right else f"{codes}")


def stopped_when_busy(sandbox: Sandbox) -> Outcome:
    with server(sandbox, fault=partial(slow_down, 5 * STEP)) as one:
        with ThreadPoolExecutor(12) as clients:
            asked = [clients.submit(one.ask) for _ in range(12)]
            limit = time.monotonic() + 30
            while sum(reply.done() for reply in asked) + in_server(one) < 12 and time.monotonic() < limit:
                time.sleep(0.005)
            one.running.send(signal.SIGTERM)
            codes = Counter(reply.result()[0] for reply in asked)
        done = sandbox.finish(one.running, time.monotonic() - one.running.started + 60)
    return Outcome(codes == {200: 12} and done.code == 0, f"{codes[200]} of 12 accepted requests answered; exit {done.code}")


CASES = [
    Case(17, "fifty clients send one byte at a time", "other requests are answered", slow_clients),
    Case(17, "ten times more requests than places", "answered, or 429 with Retry-After", overload),
    Case(17, "clients leave in the middle of a stream", "their places are free again", leaves),
    Case(17, "invalid JSON and UTF-8, a word of a megabyte, NUL", "400 or 413 each; others are not disturbed", bad_requests),
    Case(17, "a text that makes the tokenizer fail", "500 for this one, the others are answered", poison_text),
    Case(9, "out of memory in a server", "500 for the requests that are decoded, later ones are answered", full_memory),
    Case(17, "SIGTERM while requests wait", "all accepted requests are answered; exit 0", stopped_when_busy),
]
