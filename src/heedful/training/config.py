"""What a training run is told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from heedful.bounds import MAX_THREADS
from heedful.nn.gates import GatesConfig
from heedful.schema import Config, Count, NonNegativeNumber, Probability, Problem, SmallCount, ZeroOrCount, refuse, unused
from heedful.training.optimizers import OptimizerConfig
from heedful.training.schedules import ScheduleConfig

Threads = Annotated[int, Field(ge=0, le=MAX_THREADS)]


class TrainingConfig(Config):
    steps: Count = 100_000
    """Maximum number of updates."""
    minutes: NonNegativeNumber = 0.0
    """Wall time of the whole run, preparation included; the schedule ends with it; 0: no limit."""
    save_every: Count = 1000
    """Updates between checkpoints."""
    validate_every: Count = 1000
    """Updates between validations."""
    report_every: Count = 100
    """Updates between lines of progress."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer."""
    schedule: ScheduleConfig = ScheduleConfig()
    """Learning rate schedule."""
    gates: GatesConfig = GatesConfig()
    """Gates that prune attention heads."""
    clip: NonNegativeNumber = 1.0
    """Maximum norm of the gradient; 0: no clipping."""
    accumulate: SmallCount = 1
    """Batches per update (gradient accumulation)."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of computation."""
    compile: bool = False
    """Use torch.compile: minutes of compilation, faster steps."""
    cuda_graphs: bool = False
    """Use CUDA graphs: record the kernels of each shape and replay them."""
    recompute: bool = False
    """Activation checkpointing: less memory, more time."""
    deterministic: bool = False
    """Bit-identical runs on a GPU as well; on a CPU they always are."""
    average: Literal["none", "last", "best", "ema"] = "none"
    """Average the weights of checkpoints, or keep a moving average."""
    average_count: Count = 5
    """Number of checkpoints to average."""
    ema_decay: Probability = 0.999
    """Decay of the moving average; update n uses at most (1 + n) / (10 + n)."""
    metric: str = "loss"
    """Validation metric that selects the best checkpoint."""
    patience: ZeroOrCount = 0
    """Stop after this many validations without improvement; 0: never."""
    keep_last: Count = 3
    """Newest checkpoints to keep."""
    keep_best: Count = 1
    """Best checkpoints to keep."""
    max_nonfinite_steps: Count = 20
    """Stop after this many non-finite updates among the last 100."""
    init: str | None = None
    """Run folder that gives the initial weights and the vocabulary; "": none."""
    vectors: str | None = None
    """File of word vectors that initialize the embeddings."""
    vectors_side: Literal["both", "source", "target"] = "both"
    """Embeddings that the vectors initialize."""
    freeze_vectors: bool = False
    """Do not train the embeddings that come from vectors."""
    tensorboard: bool = False
    """Log to TensorBoard."""
    threads: Threads = 0
    """CPU threads; 0: as many as the machine has."""

    @model_validator(mode="after")
    def _fits_together(self) -> TrainingConfig:
        unused_options = {}
        if self.average not in ("last", "best"):
            unused_options["average_count"] = f"training.average is {self.average!r}"
        if self.average != "ema":
            unused_options["ema_decay"] = f"training.average is {self.average!r}"
        if self.vectors is None:
            unused_options |= dict.fromkeys(("vectors_side", "freeze_vectors"), "training.vectors is not given")
        problems = unused(self, unused_options)
        if self.init is not None and self.vectors is not None:
            problems.append(Problem("vectors", "given beside training.init, whose embeddings they would overwrite; choose one"))
        if self.compile and self.cuda_graphs:
            problems.append(Problem("capture", "given true beside training.compile, which captures by itself; choose one"))
        for name, kept in (("last", self.keep_last), ("best", self.keep_best)):
            if self.average == name and kept < self.average_count:
                problems.append(
                    Problem(f"keep_{name}", f"given {kept}, expected at least average_count, which is {self.average_count}")
                )
        refuse(problems)
        return self
