"""metrics.jsonl: one JSON object a line, appended while training runs, cut back when it continues.

A line goes to the kernel in one piece, so a killed process leaves at most a torn last line, which readers pass over
and `cut_metrics` removes together with the lines of steps that will be trained again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.errors import CheckpointError
from heedful.storage.reading import read_bytes
from heedful.storage.writing import append_line, replace_text


def append_metrics(path: Path, record: Mapping[str, Any]) -> None:
    """Add one line; a number that is not finite becomes null, which every JSON reader knows."""
    plain = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in record.items()}
    append_line(path, json.dumps(plain))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records, in order; what is not a whole line with an object in it is passed over."""
    return [record for _, record in _complete_lines(path)]


def truncate_metrics(path: Path, step: int) -> None:
    """Remove the lines of later steps, and those that are no record of a step: torn ones, or with a step that is no number."""
    lines = "".join(line for line, record in _complete_lines(path) if _is_until(record.get("step", step), step))
    if path.exists() and read_log(path) != lines.encode():
        replace_text(path, lines)


def _is_until(value: object, step: int) -> bool:
    return isinstance(value, int | float) and value <= step


def _complete_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    if not path.exists():
        return []
    whole = []
    for line in read_log(path).splitlines(keepends=True):
        try:
            text = line.decode()
            record = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if text.endswith("\n") and isinstance(record, dict):
            whole.append((text, record))
    return whole


def read_log(path: Path) -> bytes:
    """All bytes of a log."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}", hint="move it out of the run folder") from error
