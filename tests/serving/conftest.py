"""A running server, shared by all tests of serving."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving.running_server import Running, run_server


@pytest.fixture(scope="session")
def server(tiny_runs: dict[str, Path]) -> Iterator[Running]:
    """A server with a model of every task, and a second translation model. Shared between tests: do not stop it."""
    named = [tiny_runs[task] for task in tiny_runs if task != "translation"]
    other = tiny_runs["translation"].parent / "other"
    with run_server(f"{tiny_runs['translation']}=en-de", f"{other}=de-it", *named, "--pivot", "de") as running:
        yield running
