"""Files and folders of a run that may be absent, but must be readable where they exist.

If a folder of checkpoints that cannot be read counted as empty, training would start again, and the checkpoints in it would no
longer belong to the run. So only a missing folder is empty; anything else that cannot be listed is an error."""

from __future__ import annotations

from pathlib import Path

from heedful.errors import CheckpointError
from heedful.storage.reading import open_plain, reason_of


def list_folder(folder: Path) -> list[Path]:
    """Everything in a folder, sorted by name; nothing if it does not exist. CheckpointError if it is no readable folder."""
    try:
        entries = sorted(folder.iterdir())
        (folder / "..").stat()  # names alone are useless: opening the files needs the permission to search the folder
    except FileNotFoundError as error:
        refuse_broken_link(folder, error)
        return []
    except NotADirectoryError as error:
        raise CheckpointError(f"{folder} is a file; expected a folder", hint="restore the folder") from error
    except OSError as error:
        raise unreadable(folder, error) from error
    return entries


def exists(path: Path) -> bool:
    """Whether there is a file or folder of this name; CheckpointError if that cannot be determined."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        refuse_broken_link(path, error)
        return False
    except OSError as error:
        raise unreadable(path, error) from error
    return True


def require_readable(path: Path) -> None:
    """Raise CheckpointError if this file exists but cannot be opened."""
    if exists(path):
        try:
            open_plain(path).close()
        except OSError as error:
            raise unreadable(path, error) from error


def refuse_broken_link(path: Path, error: OSError) -> None:
    """Raise CheckpointError if a missing file is a symbolic link: its target may be on a disk that is not mounted."""
    if path.is_symlink():
        raise CheckpointError(
            f"{path} is a symbolic link to {path.readlink()}, which does not exist",
            hint="mount the disk that it is on, or restore it, then run the command again",
        ) from error


def unreadable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"{path} cannot be read: {reason_of(error)}", hint="make it readable, then run the command again")
