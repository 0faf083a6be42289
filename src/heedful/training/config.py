"""What a training run is told."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from heedful.nn.gates import GatesConfig
from heedful.schema import Config, Probability, Problem, refuse, unused
from heedful.training.optimisers import OptimiserConfig
from heedful.training.schedules import ScheduleConfig


class TrainingConfig(Config):
    steps: PositiveInt = 100_000  # updates, at most
    minutes: NonNegativeFloat = 0.0  # wall time of the whole run, preparation included: fewer steps fit; 0: no limit
    save_every: PositiveInt = 1000
    validate_every: PositiveInt = 1000
    report_every: PositiveInt = 100
    optimiser: OptimiserConfig = OptimiserConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    gates: GatesConfig = GatesConfig()  # of heads that shall go; see nn/gates.py
    clip: NonNegativeFloat = 1.0  # largest norm of the gradient; 0: never cut
    accumulate: PositiveInt = 1  # batches to an update
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    compile: bool = False  # minutes of compilation for the quickest steps
    capture: bool = False  # on a GPU: record the kernels of each shape and replay them; needs no compilation
    recompute: bool = False  # forget activations and compute them again: less memory, more time
    deterministic: bool = False  # bit-identical runs on a GPU too; on a CPU they always are
    average: Literal["none", "last", "best", "ema"] = "none"
    average_count: PositiveInt = 5  # checkpoints to average
    ema_decay: Probability = 0.999  # smaller in the first updates: update n uses at most (1 + n) / (10 + n)
    metric: str = "loss"  # which validation figure says what is best
    patience: NonNegativeInt = 0  # stop after so many validations without a better one; 0: never
    keep_last: PositiveInt = 3  # checkpoints
    keep_best: PositiveInt = 1
    most_bad: PositiveInt = 20  # non-finite updates among the last 100 that end the run
    init: str | None = None  # a run folder to take the first weights and the vocabulary from; "": none
    vectors: str | None = None  # a file of word vectors that the embedding begins with
    vectors_side: Literal["both", "source", "target"] = "both"
    freeze_vectors: bool = False  # hold their rows fast
    tensorboard: bool = False
    threads: NonNegativeInt = Field(default=0, description="CPU threads; 0: as many as the machine has")

    @model_validator(mode="after")
    def _fits_together(self) -> TrainingConfig:
        idle = {}
        if self.average not in ("last", "best"):
            idle["average_count"] = f"training.average is {self.average!r}"
        if self.average != "ema":
            idle["ema_decay"] = f"training.average is {self.average!r}"
        if self.vectors is None:
            idle |= dict.fromkeys(("vectors_side", "freeze_vectors"), "training.vectors is not given")
        problems = unused(self, idle)
        if self.init is not None and self.vectors is not None:
            problems.append(Problem("vectors", "given beside training.init, whose embeddings they would overwrite; choose one"))
        if self.compile and self.capture:
            problems.append(Problem("capture", "given true beside training.compile, which captures by itself; choose one"))
        for name, kept in (("last", self.keep_last), ("best", self.keep_best)):
            if self.average == name and kept < self.average_count:
                problems.append(
                    Problem(f"keep_{name}", f"given {kept}, expected at least average_count, which is {self.average_count}")
                )
        refuse(problems)
        return self
