"""Progress of training: a bar on a terminal, lines otherwise, and always metrics.jsonl.

    step 1200  loss 3.412  ppl 30.3  lr 8.2e-04  12.1k tokens/s  about 4 min left

Without a terminal the first line is printed after a few seconds, further ones at most half a minute apart. Console output
that cannot be written is dropped: a closed pipe or a full disk behind stderr does not stop a run.
"""

from __future__ import annotations

import io
import math
import time
from pathlib import Path
from typing import IO, Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from torch import Tensor

from heedful.nn.losses import Loss
from heedful.storage.terminal import printable, redirect_to_null
from heedful.training.held_folder import HeldFolder
from heedful.training.metrics_log import append_metrics
from heedful.training.time_limit import Stopwatch
from heedful.training.trackers import Trackers

FIRST_LINE, LONGEST_INTERVAL = 3.0, 30.0  # seconds before the first line, and at most between lines, without a terminal
GROWTH = 1.5


class Progress:
    """Prints the progress of a run, appends it to metrics.jsonl and sends it to the trackers."""

    def __init__(
        self,
        metrics: Path,
        *,
        report_every: int,
        unit: str = "tokens",
        perplexity: bool = True,
        console: Console | None = None,
        trackers: Trackers | None = None,
        watch: Stopwatch | None = None,
    ) -> None:
        """unit: what the task counts, tokens or examples; perplexity: whether exp(loss) is a perplexity."""
        self.metrics, self.report_every = metrics, report_every
        self.trackers = trackers or Trackers((), metrics.parent, {})
        self.unit, self.perplexity = unit, perplexity
        self.console = lenient(console or Console(stderr=True, highlight=False))
        self.folder = HeldFolder(metrics.parent)
        self.watch = watch or Stopwatch()
        self.sums: dict[str, Loss] = {}
        self.bar: Bar | None = None
        self.since = self.last_line = self.watch.clock()
        self.interval = FIRST_LINE

    def begin(self, step: int, steps: int) -> None:
        """Open the trackers, and start timing, and the bar on a terminal."""
        self.trackers.open(step, self.print)
        self.since = self.last_line = self.watch.clock()
        if self.console.is_terminal and step < steps:
            columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[line]}"))
            self.bar = Bar(*columns, TextColumn("eta"), TimeRemainingColumn(compact=True), console=self.console)
            self.bar.add_task("training", total=steps, completed=step, line="")
            self.bar.start()

    def set_total(self, steps: int) -> None:
        """Set the number of steps of the run, which a time limit may change."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], total=steps)

    def report_update(
        self, step: int, losses: dict[str, Loss], extra: dict[str, float | Tensor], *, left: float | None = None
    ) -> None:
        """Report an update; left: estimated seconds to the end of the run."""
        for name, loss in losses.items():
            before = self.sums.get(name)
            self.sums[name] = loss if before is None else Loss(before.total + loss.total, before.count + loss.count)
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=step)
        if step % self.report_every == 0:
            values = self.values(extra)
            self.write(step, "train", values)
            self.show(step, values, left)
            self.sums = {}
            self.since = self.watch.clock()
        elif self.bar is None and self.watch.clock() - self.last_line >= self.interval:
            self.show(step, self.values(extra), left)
            self.interval = min(GROWTH * self.interval, LONGEST_INTERVAL)

    def values(self, extra: dict[str, float | Tensor]) -> dict[str, float]:
        """Mean losses and throughput since the last report."""
        seconds = self.watch.clock() - self.since
        means = {name: float(loss.total) / max(float(loss.count), 1.0) for name, loss in self.sums.items()}
        speed = float(self.sums["loss"].count) / max(seconds, 1e-9)
        return means | {name: float(value) for name, value in extra.items()} | {f"{self.unit}_per_second": speed}

    def show(self, step: int, values: dict[str, float], left: float | None) -> None:
        line = f"loss {values['loss']:.3f}"
        if self.perplexity:
            line += f"  ppl {perplexity(values['loss']):.4g}"
        line += f"  lr {values['rate']:.1e}"
        line += "".join(f"  {name} {values[name]:.4g}" for name in self.sums if name != "loss")
        line += f"  {short(values[f'{self.unit}_per_second'])} {self.unit}/s"
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], line=line)
        else:
            self.print(f"step {step}  {line}" + ("" if left is None else f"  about {duration(left)} left"))

    def report_validation(
        self, step: int, metrics: dict[str, float], samples: list[str], *, remark: str, kind: str = "valid"
    ) -> None:
        self.write(step, kind, metrics)
        values = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        self.print(f"step {step}  valid  {values}{remark}")
        for sample in samples:
            self.print(f"  {sample}")

    def print(self, text: str) -> None:
        """Print a line on the console, with control characters escaped."""
        print_line(self.console, text)
        self.last_line = self.watch.clock()

    def write(self, step: int, kind: str, values: dict[str, float]) -> None:
        """Append to metrics.jsonl, with the wall time of the run in all sessions (seconds) and the Unix time (time)."""
        self.folder.check()
        times = {"seconds": round(self.watch.seconds(), 3), "time": round(time.time(), 3)}
        append_metrics(self.metrics, {"step": step, "kind": kind, **values, **times})
        self.trackers.log(step, {f"{kind}/{name}": value for name, value in values.items()})

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


class NoProgress(Progress):
    """Reports nothing: for the ranks other than 0, whose progress is the same."""

    def begin(self, step: int, steps: int) -> None: ...

    def report_update(
        self, step: int, losses: dict[str, Loss], extra: dict[str, float | Tensor], *, left: float | None = None
    ) -> None: ...

    def report_validation(
        self, step: int, metrics: dict[str, float], samples: list[str], *, remark: str, kind: str = "valid"
    ) -> None: ...

    def print(self, text: str) -> None: ...


class LenientStream:
    """A text stream whose writes never fail: after the first error, output is dropped."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        try:
            self.stream.write(text)
        except UnicodeEncodeError:
            self.write(text.encode("ascii", "backslashreplace").decode())
        except (OSError, ValueError):  # closed pipe, full disk, closed file
            self.drop()
        return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except (OSError, ValueError):
            self.drop()

    def drop(self) -> None:
        """Redirect the file to /dev/null, so that other writers, and the interpreter at exit, do not fail either."""
        if not redirect_to_null(self.stream):
            self.stream = io.StringIO()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def print_line(console: Console, text: str) -> None:
    """Print a line on a console as it is, without rich's markup, and with control characters escaped."""
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def lenient(console: Console) -> Console:
    """Make writes to the console never fail."""
    if not isinstance(console.file, LenientStream):
        console.file = cast("IO[str]", LenientStream(console.file))
    return console


def perplexity(nats: float) -> float:
    return math.exp(min(nats, 700.0))


def short(number: float) -> str:
    """12100 -> 12.1k"""
    return f"{number / 1000:.1f}k" if number >= 1000 else f"{number:.3g}"


def duration(seconds: float) -> str:
    """Format seconds: 40 s, 4 min, 2.5 h."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def long_run_warning(seconds: float, advice: str) -> str:
    return f"warning: this run will take about {duration(seconds)}; {advice}"
