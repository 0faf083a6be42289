"""After truncating, the metrics log has complete lines only, and none of later steps."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.training.metrics_log import append_metrics, read_metrics, truncate_metrics


def test_records_are_read_in_the_order_of_appending(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [{"step": 1, "loss": 3.5}, {"step": 2, "sample": "Grüße\n\u2028"}, {"start": "now"}]
    for record in records:
        append_metrics(tmp_path / "metrics.jsonl", record)
    assert read_metrics(tmp_path / "metrics.jsonl") == records
    assert read_metrics(tmp_path / "none.jsonl") == []


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    append_metrics(tmp_path / "metrics.jsonl", {"step": 1, "loss": math.nan, "norm": math.inf})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "loss": None, "norm": None}


@settings(deadline=None)
@given(logged=st.lists(st.integers(0, 9)), step=st.integers(0, 9), incomplete=st.binary(max_size=12), begun=st.booleans())
def test_truncating_keeps_complete_lines_up_to_the_step(
    tmp_path_factory: pytest.TempPathFactory, logged: list[int], step: int, incomplete: bytes, begun: bool
) -> None:
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    for number in logged:
        append_metrics(path, {"step": number, "loss": 1.0})
    with path.open("ab") as file:
        file.write(b'{"step": 0, "l' if begun else incomplete.replace(b"\n", b""))
    truncate_metrics(path, step)
    assert [record["step"] for record in read_metrics(path)] == [number for number in logged if number <= step]
    assert path.read_bytes() == b"" or path.read_bytes().endswith(b"\n")
    append_metrics(path, {"step": step + 1})
    assert read_metrics(path)[-1] == {"step": step + 1}


def test_a_line_without_a_step_stays_and_a_missing_log_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    truncate_metrics(path, 0)
    assert not path.exists()
    append_metrics(path, {"start": "now"})
    append_metrics(path, {"step": 5})
    truncate_metrics(path, 4)
    assert read_metrics(path) == [{"start": "now"}]
