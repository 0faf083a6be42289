"""Progress of word vector training: a bar on a terminal, otherwise a line for each epoch.

epoch 3  loss 2.412  lr 2.1e-02  312k words/s
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from heedful.vectors.training import VectorsStep


class VectorsProgress:
    def __init__(self, words: int, epochs: int, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self.words, self.started = words * epochs, time.monotonic()
        self.epoch, self.done = 0, 0.0
        self.total = self.count = 0.0
        self.line, self.loss = "", 0.0
        columns = (BarColumn(bar_width=24), TaskProgressColumn(), TextColumn("{task.fields[line]}"))
        self.bar = Progress(*columns, TextColumn("eta"), TimeRemainingColumn(compact=True), console=self.console)
        self.task = self.bar.add_task("vectors", total=1.0, line="")
        if self.console.is_terminal:
            self.bar.start()

    def report(self, step: VectorsStep) -> None:
        if step.epoch > self.epoch:
            self.end_epoch(step.epoch)
        self.total += float(step.loss.total)
        self.count += float(step.loss.count)
        self.loss = self.total / max(self.count, 1.0)
        speed = self.words * step.done / max(time.monotonic() - self.started, 1e-9)
        self.line = f"epoch {step.epoch + 1}  loss {self.loss:.3f}  lr {step.learning_rate:.1e}  {speed / 1000:.0f}k words/s"
        self.bar.update(self.task, completed=step.done, line=self.line)

    def end_epoch(self, next_epoch: int) -> None:
        if not self.console.is_terminal:
            self.console.print(self.line, markup=False, soft_wrap=True)
        self.epoch, self.total, self.count = next_epoch, 0.0, 0.0

    def close(self) -> None:
        self.end_epoch(self.epoch)
        if self.console.is_terminal:
            self.bar.update(self.task, completed=1.0)
            self.bar.stop()
