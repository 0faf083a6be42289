"""Options of [training]."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from heedful.config.base import (
    Config,
    Count,
    NonNegativeNumber,
    PathName,
    PositiveNumber,
    Probability,
    Problem,
    SmallCount,
    ZeroOrCount,
    refuse,
    unused,
)
from heedful.config.bounds import MAX_THREADS
from heedful.nn.gates import GatesConfig
from heedful.training.optimizers import OptimizerConfig
from heedful.training.schedules import ScheduleConfig
from heedful.training.trackers import Name as TrackerName

Threads = Annotated[int, Field(ge=0, le=MAX_THREADS)]


class TrainingConfig(Config):
    steps: Count = 100_000
    """Maximum number of updates."""
    minutes: NonNegativeNumber = 0.0
    """Time limit of the run in minutes, including preparation; the schedule is shortened to fit; 0: no limit."""
    save_every: Count = 1000
    """Updates between checkpoints."""
    validate_every: Count = 1000
    """Updates between validations."""
    report_every: Count = 100
    """Updates between progress lines."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer."""
    schedule: ScheduleConfig = ScheduleConfig()
    """Learning rate schedule."""
    gates: GatesConfig = GatesConfig()
    """Gates that prune attention heads."""
    clip: NonNegativeNumber = 1.0
    """Maximum gradient norm; 0: no clipping."""
    accumulate: SmallCount = 1
    """Batches per update (gradient accumulation)."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Precision of the forward and backward pass; bf16 and fp16 use autocast; auto: bf16 on a GPU, else fp32."""
    compile: bool = False
    """Use torch.compile: faster steps after some minutes of compilation."""
    cuda_graphs: bool | Literal["auto"] = "auto"
    """Use CUDA graphs: capture the kernels of each batch shape and replay them; auto: on a GPU, if possible."""
    distributed: Literal["auto", "ddp", "fsdp"] = "auto"
    """Training with several processes: ddp: each has all weights; fsdp: each has a part of them; auto: ddp for several."""
    sharded_save: bool = False
    """Every process writes its part of a checkpoint; needs training.distributed = "fsdp". Else rank 0 writes whole weights."""
    rank_timeout: PositiveNumber = 1800.0
    """Seconds that processes wait for one that does not answer in an update or a save, before the run ends with code 7."""
    async_save: bool = False
    """Write checkpoints in the background while training continues."""
    recompute: bool = False
    """Activation checkpointing: less memory, more time."""
    deterministic: bool = False
    """Bit-identical results on a GPU; on a CPU they always are."""
    average: Literal["none", "last", "best", "ema"] = "none"
    """Average the last or best checkpoints, or keep an exponential moving average (ema)."""
    average_count: Count = 5
    """Number of checkpoints to average."""
    ema_decay: Probability = 0.999
    """Decay of the moving average; update n uses at most (1 + n) / (10 + n)."""
    metric: str = "loss"
    """Validation metric that selects the best checkpoint."""
    patience: ZeroOrCount = 0
    """Stop after this many validations without improvement; 0: never."""
    keep_last: Count = 3
    """Number of newest checkpoints to keep."""
    keep_best: Count = 1
    """Number of best checkpoints to keep."""
    max_nonfinite_steps: Count = 20
    """Stop when more than this many of the last 100 updates had a non-finite loss or gradient."""
    init: PathName | None = None
    """Run folder to load the initial weights and the vocabulary from; "": none."""
    vectors: PathName | None = None
    """File of pretrained word vectors to initialize the embeddings."""
    vectors_side: Literal["both", "source", "target"] = "both"
    """Embeddings to initialize from the word vectors."""
    freeze_vectors: bool = False
    """Freeze the embeddings initialized from word vectors."""
    trackers: tuple[TrackerName, ...] = ()
    """Experiment tracking tools that receive the metrics."""
    threads: Threads = 0
    """CPU threads; 0: PyTorch's default."""

    @model_validator(mode="after")
    def _fits_together(self) -> TrainingConfig:
        unused_options = {}
        if self.average not in ("last", "best"):
            unused_options["average_count"] = f"training.average is {self.average!r}"
        if self.distributed != "fsdp":
            unused_options["sharded_save"] = f"training.distributed is {self.distributed!r}"
        if self.average != "ema":
            unused_options["ema_decay"] = f"training.average is {self.average!r}"
        if self.vectors is None:
            unused_options |= dict.fromkeys(("vectors_side", "freeze_vectors"), "training.vectors is not set")
        problems = unused(self, unused_options)
        if self.init is not None and self.vectors is not None:
            problems.append(Problem("vectors", "given together with training.init, whose embeddings it overwrites; set one"))
        if self.compile and self.cuda_graphs is True:
            problems.append(
                Problem("cuda_graphs", "given true together with training.compile, which uses CUDA graphs itself; set one")
            )
        if self.distributed == "fsdp":
            problems += [
                Problem(name, "given true, which cannot be combined with training.distributed = 'fsdp'; set one")
                for name in ("compile", "cuda_graphs", "freeze_vectors")
                if getattr(self, name) is True
            ]
            if self.gates.penalty:  # the penalty reads all gates, and they have a group of the optimizer of their own
                given = f"given {self.gates.penalty:g}, which cannot be combined with training.distributed = 'fsdp'; use 'ddp'"
                problems.append(Problem("gates.penalty", given))
        if len(set(self.trackers)) < len(self.trackers):
            problems.append(Problem("trackers", f"given {list(self.trackers)!r}, expected each name once"))
        for name, kept in (("last", self.keep_last), ("best", self.keep_best)):
            if self.average == name and kept < self.average_count:
                problems.append(
                    Problem(f"keep_{name}", f"given {kept}, expected at least average_count = {self.average_count}")
                )
        refuse(problems)
        return self
