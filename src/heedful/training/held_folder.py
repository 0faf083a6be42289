"""Detects that a run folder was renamed or deleted during training, so that it is not silently created again."""

from __future__ import annotations

from pathlib import Path

from heedful.errors import CheckpointError


class HeldFolder:
    """A path and the identity (device, inode) of the folder that it named at first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = self._identity()
        if self.identity is None:
            raise CheckpointError(f"run folder {path} was renamed or deleted", hint="start the run again")

    def check(self) -> None:
        """Raise CheckpointError if the path no longer names this folder."""
        if self._identity() != self.identity:
            raise CheckpointError(
                f"run folder {self.path} was renamed or deleted during training; nothing was written since",
                hint="move it back and run the same command again to continue from its last checkpoint",
            )

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino
