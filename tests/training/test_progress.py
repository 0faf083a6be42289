"""Progress of training: the first line is early, and console errors never stop a run."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from workshop import heed, start_heed, write_recipe

from heedful.errors import CheckpointError
from heedful.nn.losses import Loss
from heedful.training.metrics_log import read_metrics
from heedful.training.progress import LenientStream, Progress, duration, lenient
from heedful.training.time_limit import Stopwatch


class FakeClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(folder: Path, seconds: float, **options: Any) -> list[tuple[float, str]]:
    """The lines, each with its time, of a run of one update per second that reports rarely."""
    clock, file = FakeClock(), io.StringIO()
    progress = Progress(
        folder / "metrics.jsonl", report_every=1000, console=Console(file=file), watch=Stopwatch(0.0, clock), **options
    )
    progress.begin(0, 1000)
    lines = []
    while clock.now < seconds:
        clock.now += 1
        loss = {"loss": Loss(torch.tensor(20.0), torch.tensor(10))}
        before = file.tell()
        progress.report_update(int(clock.now), loss, {"rate": 1e-3}, left=240.0)
        lines += [(clock.now, line) for line in file.getvalue()[before:].splitlines()]
    return lines


def test_without_a_terminal_the_first_line_is_early_and_the_interval_is_bounded(tmp_path: Path) -> None:
    lines = shown(tmp_path, 200)
    times = [when for when, _ in lines]
    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert times[0] <= 5 and gaps == sorted(gaps) and max(gaps) <= 30 and 6 <= len(lines) <= 20
    assert lines[0][1] == "step 3  loss 2.000  ppl 7.389  lr 1.0e-03  10 tokens/s  about 4 min left"
    assert not (tmp_path / "metrics.jsonl").exists(), "metrics.jsonl is written every report_every steps only"


def test_the_throughput_is_in_the_unit_of_the_task(tmp_path: Path) -> None:
    lines = shown(tmp_path, 3, unit="examples", perplexity=False)
    assert lines[0][1] == "step 3  loss 2.000  lr 1.0e-03  10 examples/s  about 4 min left"


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (40, "40 s"), (240, "4 min"), (9000, "2.5 h")])
def test_a_duration_is_formatted(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_records_have_the_time_which_continues_in_a_resumed_run(tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    for steps in (3, 6):
        assert heed("train", recipe, f"training.steps={steps}", "--run", run) == 0
    records = read_metrics(run / "metrics.jsonl")
    seconds, times = [one["seconds"] for one in records], [one["time"] for one in records]
    assert seconds == sorted(seconds) and times == sorted(times) and seconds[0] > 0
    state = json.loads((run / "checkpoints" / "step-6" / "state.json").read_text())
    assert state["train_state"]["seconds"] == pytest.approx(seconds[-1], abs=0.5)


class Failing(io.StringIO):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error

    flush = write  # type: ignore[assignment]


@pytest.mark.parametrize("error", [BrokenPipeError(32, "gone"), OSError(28, "full"), ValueError("closed")], ids=repr)
def test_errors_of_the_console_are_ignored(error: Exception) -> None:
    stream = Failing(error)
    console = lenient(Console(file=stream, force_terminal=True))
    console.print("one")
    console.print("two")
    assert isinstance(console.file, LenientStream) and console.file.stream is not stream


def test_text_that_the_console_cannot_encode_is_written_as_escapes() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, "ascii")
    lenient(Console(file=file)).print("naïve")
    assert raw.getvalue() == b"na\\xefve\n"
    file.close()


def test_control_characters_in_samples_are_escaped(tmp_path: Path) -> None:
    file = io.StringIO()
    progress = Progress(tmp_path / "metrics.jsonl", report_every=1, console=Console(file=file))
    progress.report_validation(1, {"loss": 1.0}, ["\x1b]0;pwned\x07 ->  \x9b2J"], remark="")
    assert file.getvalue().endswith("  \\u001b]0;pwned\\u0007 ->  \\u009b2J\n")


def test_a_folder_that_was_renamed_gets_no_new_metrics(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    progress = Progress(tmp_path / "run" / "metrics.jsonl", report_every=1, console=Console(file=io.StringIO()))
    (tmp_path / "run").rename(tmp_path / "moved")
    for made_anew in (False, True):
        if made_anew:
            (tmp_path / "run").mkdir()
        with pytest.raises(CheckpointError, match="was renamed or deleted"):
            progress.write(1, "train", {"loss": 1.0})
    assert list((tmp_path / "run").iterdir()) == []


def test_training_finishes_when_stderr_cannot_be_written(tmp_path: Path) -> None:
    """Two processes: the disk behind stderr is full, and the pipe is closed."""
    command = ("train", write_recipe(tmp_path), "--run")
    with Path("/dev/full").open("w") as full:
        processes = {
            "full": start_heed(*command, tmp_path / "full", stderr=full),
            "pipe": start_heed(*command, tmp_path / "pipe", stderr=subprocess.PIPE),
        }
    reader = processes["pipe"].stderr
    assert reader is not None
    reader.close()
    for name, process in processes.items():
        assert process.wait(timeout=60) == 0, name
        assert (tmp_path / name / "checkpoints" / "step-6").is_dir() and (tmp_path / name / "README.md").exists()
        assert len(read_metrics(tmp_path / name / "metrics.jsonl")) == 8
