"""A server with a model of each of several tasks, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving.running_server import run_server

import heedful


@pytest.fixture(scope="session")
def url(tiny_runs: dict[str, Path]) -> Iterator[str]:
    """One server for all tests of the studio."""
    with run_server(*(tiny_runs[task] for task in ("translation", "classification", "tagging", "language"))) as running:
        yield running.url


@pytest.fixture(scope="session")
def translator(tiny_runs: dict[str, Path]) -> Any:
    return heedful.load(tiny_runs["translation"])
