"""The process of `heed serve`: load the models, listen, and on SIGTERM finish what was accepted and exit.

On the first SIGTERM or SIGINT the server is no longer ready and answers new requests with 503; when the last accepted one is
answered, or after `grace` seconds, it ends. A second signal ends it at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

import uvicorn

from heedful.errors import ConfigError, Interrupted
from heedful.serving.app import create_app
from heedful.serving.calls import Service
from heedful.serving.detect import Detector
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.served import Loading, load_models

STOPPING = (signal.SIGTERM, signal.SIGINT)
SWITCH = 0.0005  # seconds after which a busy thread lets others run: those of the models wait for it at every operation
CHECK = 0.02  # seconds between two checks of the requests that are left


@dataclass(frozen=True)
class Access:
    """Who may use the server."""

    host: str = "127.0.0.1"
    port: int = 5000  # 0: any free one
    hosts: Sequence[str] = ()  # further names of the server
    origins: Sequence[str] = ()
    keys: Sequence[str] = ()  # hashes


class Server(uvicorn.Server):
    """uvicorn, with signals that drain it first."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self.drained: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in STOPPING:  # the process ends: a late signal must not change its exit code
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)

    def stop(self) -> None:
        """Start to drain; the second time, end at once."""
        if self.drained is not None:
            os._exit(Interrupted.exit_code)
        self.service.draining = True
        self.drained = asyncio.create_task(self.drain())

    async def drain(self) -> None:
        """Wait until every accepted request is answered."""
        until = monotonic() + self.service.limits.grace
        while self.service.in_flight and monotonic() < until:
            await asyncio.sleep(CHECK)
        for served in self.service.models:
            await asyncio.to_thread(served.worker.drain, max(0.0, until - monotonic()))
        self.should_exit = True


def make_service(runs: Sequence[str], loading: Loading, limits: Limits, access: Access, pivot: str | None) -> Service:
    """Load the models."""
    metrics = Metrics()
    models = load_models(runs, loading, limits, metrics, pivot)
    return Service(models, limits, metrics, Detector(models.sources), access.keys, [access.host, *access.hosts], access.origins)


def listen(access: Access) -> socket.socket:
    """A socket that listens; an error if the address cannot be used."""
    family = socket.AF_INET6 if ":" in access.host else socket.AF_INET
    # asyncio switches Nagle's algorithm, which delays replies by 40 ms, off only for sockets that name their protocol
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((access.host, access.port))
    except OSError as error:
        listener.close()
        reason = error.strerror or error
        raise ConfigError(f"cannot listen on {access.host}:{access.port}: {reason}", hint="choose another --port") from error
    return listener


def serve(service: Service, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Answer requests until a signal ends it; ready: called when the server accepts connections."""
    config = uvicorn.Config(
        create_app(service),
        log_config=None,
        log_level="error",
        access_log=False,  # a query string may contain text
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        ws="none",
        limit_concurrency=service.limits.max_connections,
        timeout_graceful_shutdown=1,
    )
    sys.setswitchinterval(SWITCH)
    server = Server(config, service)
    gc.freeze()  # modules and models stay: a collection need not visit their half a million objects
    listener.listen(config.backlog)
    ready()
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:  # uvloop where it is installed
        runner.run(run(server, listener))


async def run(server: Server, listener: socket.socket) -> None:
    for served in server.service.models:
        await served.attach()
    await server.serve(sockets=[listener])
