"""`heed serve` in a child process, on a free port of the loopback interface."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from workshop import start_heed


class Running(NamedTuple):
    url: str
    process: subprocess.Popen[Any]
    http: httpx.Client

    def stop(self, timeout: float = 20) -> tuple[int, str]:
        """SIGTERM; the exit code and the messages."""
        self.process.send_signal(signal.SIGTERM)
        messages = self.process.communicate(timeout=timeout)[1]
        return self.process.returncode, messages


@contextmanager
def run_server(*arguments: str | Path, before: Callable[[], object] | None = None) -> Iterator[Running]:
    """A server, which is stopped at the end; before: called in its process first."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start_heed("serve", *arguments, "--port", "0", "--json", before=before, **streams) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            url = json.loads(line)["url"]
            with httpx.Client(base_url=url, timeout=20) as http:
                yield Running(url, process, http)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=20) == 0
        finally:
            process.kill()
