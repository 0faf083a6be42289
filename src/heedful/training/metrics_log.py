"""metrics.jsonl: one JSON object a line, appended while training runs, cut back when it continues.

A line goes to the kernel in one piece, so a killed process leaves at most a torn last line, which readers pass over
and `cut_metrics` removes together with the lines of steps that will be trained again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heedful.storage.writing import replace_text


def append_metrics(path: Path, record: Mapping[str, Any]) -> None:
    """Add one line; a number that is not finite becomes null, which every JSON reader knows."""
    plain = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in record.items()}
    with path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(plain) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records, in order; what is not a whole line with an object in it is passed over."""
    return [record for _, record in _whole_lines(path)]


def cut_metrics(path: Path, step: int) -> None:
    """Take away the lines of later steps and whatever is torn; a line without a step stays."""
    lines = "".join(line for line, record in _whole_lines(path) if record.get("step", step) <= step)
    if path.exists() and path.read_bytes() != lines.encode():
        replace_text(path, lines)


def _whole_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    if not path.exists():
        return []
    whole = []
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if line.endswith(b"\n") and isinstance(record, dict):
            whole.append((line.decode(), record))
    return whole
