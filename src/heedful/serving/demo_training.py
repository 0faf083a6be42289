"""The demo model of a studio that was started without a run: it is trained in a child process, then loaded and served.

    absent -> training -> loading -> ready
                       -> stopped, by request or because the studio ends; the same command continues
                       -> failed

The child has a session of its own, so that Ctrl-C in a terminal reaches only the studio, which then stops the child: a second
signal would end it without saving.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Literal

from heedful.errors import HeedfulError, Interrupted
from heedful.serving.served import Served

State = Literal["absent", "training", "loading", "ready", "stopped", "failed"]
SAVING = 60.0  # seconds to finish an update and save it


class DemoTraining:
    """Training of the demo model, at most one at a time."""

    def __init__(self, folder: Path, load: Callable[[], Served], add: Callable[[Served], None]) -> None:
        """load: the model of the folder; add: serve it."""
        self.folder, self.load, self.add = folder, load, add
        self.state: State = "stopped" if folder.is_dir() else "absent"
        self.message = ""
        self.options: Sequence[str] = ()  # overrides of the recipe
        self.process: subprocess.Popen[bytes] | None = None
        self.changing = Lock()

    def start(self) -> None:
        """Start or continue training; without effect while it runs or when the model is ready."""
        with self.changing:
            if self.state in ("training", "loading", "ready"):
                return
            command = [sys.executable, "-m", "heedful", "train", "demo", *self.options, "--run", str(self.folder)]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
            self.state, self.message = "training", ""
            Thread(target=self.finish, args=(self.process,), name="demo", daemon=True).start()

    def finish(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the child, then load its model."""
        code = process.wait()
        if code in (Interrupted.exit_code, -signal.SIGTERM):  # the signal itself ends a child that has hardly started
            self.state = "stopped"
        elif code != 0:
            self.state, self.message = "failed", f"Training ended with exit code {code}; the terminal shows why."
        else:
            self.state = "loading"
            try:
                self.add(self.load())
                self.state = "ready"
            except HeedfulError as error:
                self.state, self.message = "failed", str(error)

    def stop(self) -> None:
        """Ask the child to save and end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Stop the child and wait for it."""
        self.stop()
        if self.process is not None:
            try:
                self.process.wait(SAVING)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def describe(self) -> dict[str, Any]:
        model = self.folder.resolve().name
        return {"state": self.state, "message": self.message, "folder": str(self.folder), "model": model}
