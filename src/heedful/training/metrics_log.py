"""metrics.jsonl: one JSON object per line, appended during training and truncated when training continues.

A line is one write, so a killed process leaves at most an incomplete last line, which readers skip and
`truncate_metrics` removes together with the lines of steps that will be trained again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.errors import CheckpointError
from heedful.storage.reading import read_bytes, reason_of
from heedful.storage.writing import append_line, replace_text


def append_metrics(path: Path, record: Mapping[str, Any]) -> None:
    """Append one line; non-finite numbers become null, since JSON has none."""
    plain = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in record.items()}
    append_line(path, json.dumps(plain))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the records in order; lines that are incomplete or no JSON object are skipped."""
    return [record for _, record in _complete_lines(path)]


def truncate_metrics(path: Path, step: int) -> None:
    """Remove the lines of later steps, incomplete lines, and lines whose step is not a number."""
    lines = "".join(line for line, record in _complete_lines(path) if _is_until(record.get("step", step), step))
    if path.exists() and read_log(path) != lines.encode():
        replace_text(path, lines)


def _is_until(value: object, step: int) -> bool:
    return isinstance(value, int | float) and value <= step


def _complete_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    if not path.exists():
        return []
    complete = []
    for line in read_log(path).splitlines(keepends=True):
        try:
            text = line.decode()
            record = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if text.endswith("\n") and isinstance(record, dict):
            complete.append((text, record))
    return complete


def read_log(path: Path) -> bytes:
    """Read a log file of the run."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {reason_of(error)}", hint="move it out of the run folder") from error
