"""What people see of a run: a bar on a terminal, plain lines elsewhere, and always metrics.jsonl.

step 1200  loss 3.412  ppl 30.3  rate 8.2e-04  12.1k tokens/s
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from torch import Tensor

from heedful.nn.losses import Loss
from heedful.training.metrics_log import append_metrics


class Progress:
    def __init__(self, metrics: Path, *, report_every: int, console: Console | None = None, board: Any = None) -> None:
        self.metrics, self.report_every, self.board = metrics, report_every, board
        self.console = console or Console(stderr=True, highlight=False)
        self.sums: dict[str, Loss] = {}
        self.bar: Bar | None = None
        self.since = time.monotonic()

    def begin(self, step: int, steps: int) -> None:
        self.since = time.monotonic()
        if self.console.is_terminal and step < steps:
            columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[line]}"))
            self.bar = Bar(*columns, TextColumn("eta"), TimeRemainingColumn(compact=True), console=self.console)
            self.bar.add_task("training", total=steps, completed=step, line="")
            self.bar.start()

    def expect(self, steps: int) -> None:
        """The run will end with another step than was thought."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], total=steps)

    def updated(self, step: int, told: dict[str, Loss], extra: dict[str, float | Tensor]) -> None:
        for name, loss in told.items():
            before = self.sums.get(name)
            self.sums[name] = loss if before is None else Loss(before.total + loss.total, before.count + loss.count)
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=step)
        if step % self.report_every == 0:
            self.report(step, extra)

    def report(self, step: int, extra: dict[str, float | Tensor]) -> None:
        seconds = time.monotonic() - self.since
        means = {name: float(loss.total) / max(float(loss.count), 1.0) for name, loss in self.sums.items()}
        speed = float(self.sums["loss"].count) / max(seconds, 1e-9)
        values = means | {name: float(value) for name, value in extra.items()} | {"tokens_per_second": speed}
        self.write(step, "train", values)
        line = f"loss {means['loss']:.3f}  ppl {perplexity(means['loss']):.4g}  rate {values['rate']:.1e}"
        line += "".join(f"  {name} {value:.4g}" for name, value in means.items() if name != "loss")
        line = f"{line}  {speed / 1000:.1f}k tokens/s"
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], line=line)
        else:
            self.say(f"step {step}  {line}")
        self.sums = {}
        self.since = time.monotonic()

    def validated(self, step: int, metrics: dict[str, float], samples: list[str], *, remark: str, kind: str = "valid") -> None:
        self.write(step, kind, metrics)
        figures = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        self.say(f"step {step}  valid  {figures}{remark}")
        for sample in samples:
            self.say(f"  {sample}")

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def write(self, step: int, kind: str, values: dict[str, float]) -> None:
        append_metrics(self.metrics, {"step": step, "kind": kind, **values})
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def perplexity(nats: float) -> float:
    return math.exp(min(nats, 700.0))
