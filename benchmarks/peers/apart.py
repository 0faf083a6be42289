"""A system in a process of its own, as its users run it: in one process several were seen to slow each other down.

with apart({"ours": partial(make_ours, 2), "theirs": partial(make_theirs, 2)}) as systems:
    systems["ours"](5)          # calls there what make_ours(2) gave, with 5, and gives back the answer
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

Made = Callable[..., Any]


@contextmanager
def apart(makers: Mapping[str, Callable[[], Made]]) -> Iterator[dict[str, Made]]:
    """Functions of the same names that answer from there; what a maker makes stays there. Makers must be picklable."""
    spawn = multiprocessing.get_context("spawn")  # each with an allocator and threads of its own
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


def serve(make: Callable[[], Made], line: Connection) -> None:
    """Answer until nobody asks any more; an error is an answer, too."""
    made = None
    while True:
        try:
            given = line.recv()
        except EOFError:
            return
        try:
            made = made or make()
            line.send((made(*given), None))
        except (Exception, SystemExit) as error:
            line.send((None, f"{type(error).__name__}: {error}"))


def caller(name: str, line: Connection) -> Made:
    def call(*given: Any) -> Any:
        line.send(given)
        answer, error = line.recv()
        if error is not None:
            raise SystemExit(f"{name}: {error}")
        return answer

    return call
