"""Systems in separate processes: in one process they slow each other down.

with apart({"ours": partial(make_ours, 2), "theirs": partial(make_theirs, 2)}) as systems:
    systems["ours"](5)          # calls make_ours(2)(5) in its process and returns the result
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

System = Callable[..., Any]


@contextmanager
def in_processes(makers: Mapping[str, Callable[[], System]]) -> Iterator[dict[str, System]]:
    """Yield functions that call the systems in their processes. Makers must be picklable."""
    spawn = multiprocessing.get_context("spawn")  # each with its own allocator and threads
    lines, processes = {}, []
    for name, make in makers.items():
        lines[name], theirs = spawn.Pipe()
        processes.append(spawn.Process(target=serve, args=(make, theirs), daemon=True))
        processes[-1].start()
        theirs.close()
    try:
        yield {name: caller(name, line) for name, line in lines.items()}
    finally:
        for line in lines.values():
            line.close()
        for process in processes:
            process.join()


def serve(make: Callable[[], System], line: Connection) -> None:
    """Answer calls until the pipe is closed; errors are returned as messages."""
    system = None
    while True:
        try:
            args = line.recv()
        except EOFError:
            return
        try:
            system = system or make()
            line.send((system(*args), None))
        except (Exception, SystemExit) as error:
            line.send((None, f"{type(error).__name__}: {error}"))


def caller(name: str, line: Connection) -> System:
    def call(*args: Any) -> Any:
        line.send(args)
        answer, error = line.recv()
        if error is not None:
            raise SystemExit(f"{name}: {error}")
        return answer

    return call
