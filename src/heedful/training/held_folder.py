"""A run folder that must stay where it is: renamed or deleted while a run writes to it, it is not made anew elsewhere."""

from __future__ import annotations

from pathlib import Path

from heedful.errors import CheckpointError


class HeldFolder:
    """Remembers which folder the path meant when it was made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = self._identity()
        if self.identity is None:
            raise CheckpointError(f"run folder {path} is gone: it was renamed or deleted", hint="start the run again")

    def check(self) -> None:
        """Raise CheckpointError if the path no longer means this folder."""
        if self._identity() != self.identity:
            raise CheckpointError(
                f"run folder {self.path} was renamed or deleted while training wrote to it; nothing was written since",
                hint="move it back and run the same command again to continue from its last checkpoint",
            )

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
