"""Time of an update with several processes, and while a checkpoint is written in the background, compared with one process.

    python benchmarks/distributed.py --output benchmarks/results/distributed.json
    python benchmarks/distributed.py --tiny --output /tmp/distributed.json     # on a CPU, in a minute

    alone, alone_eager    one process, with and without CUDA graphs
    ddp_1, fsdp_1         one process in a process group of its own (NCCL on a GPU): what the exchange costs by itself
    ddp_2, fsdp_2         two processes that share the GPU (or CPU) over gloo: forward and backward pass captured in CUDA graphs
                          with the exchange outside (ddp), eager (fsdp)
    async                 one process: updates while a checkpoint is written in the background, and a plain save

Transformer base, vocabulary 37,000, 800 x 32 random tokens per side and update, whatever the number of processes; bf16 on a
GPU. Two processes on one GPU are no faster than one: the figures show that it works and what the exchange costs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.losses import cross_entropy
from heedful.runs.processes import free_port
from heedful.tasks.batches import Batch, split_batch
from heedful.training.config import TrainingConfig
from heedful.training.loop import StreamedBatch, Trainer, Validation
from heedful.training.ranks import Group, Ranks
from heedful.training.sharding import Replica, Shards, copy_without_weights
from heedful.training.sharding_units import find_units
from heedful.training.update import Objective

PAD, START = 0, 1
WARMUP = 20  # updates before timing starts
EXCHANGES = 10  # timed after the updates, since waiting for the GPU before and after each makes an update slower
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Size(NamedTuple):
    dim: int
    layers: int
    heads: int
    vocab: int
    rows: int
    time: int


SIZES = {"base": Size(512, 6, 8, 37_000, 800, 32), "tiny": Size(32, 2, 2, 200, 16, 8)}
CASES = {  # name -> processes, training.distributed, CUDA graphs
    "alone": (1, "auto", True),
    "alone_eager": (1, "auto", False),
    "ddp_1": (1, "ddp", True),
    "fsdp_1": (1, "fsdp", False),
    "ddp_2": (2, "ddp", True),
    "fsdp_2": (2, "fsdp", False),
}


class RandomTokens:
    """A task of random sentence pairs."""

    config = SimpleNamespace(unit="tokens", compares_rows=False, metrics={"loss": "lower"})

    def __init__(self, size: Size) -> None:
        generator = torch.Generator().manual_seed(1)
        self.batches = []
        for _ in range(4):
            source, target = (torch.randint(4, size.vocab, (size.rows, size.time), generator=generator) for _ in range(2))
            target_in = torch.cat((torch.full((size.rows, 1), START), target[:, :-1]), dim=1)
            batch = Batch(source, None, target_in, target, size.rows * size.time)
            self.batches.append(batch.pin() if DEVICE.type == "cuda" else batch)

    def stream(self, epoch: int, cursor: int) -> Generator[StreamedBatch, None, None]:
        while True:
            for number, batch in enumerate(self.batches, start=1):
                yield StreamedBatch(batch, 0, number)

    def count(self, batch: Batch) -> int:
        return batch.tokens

    def split(self, batch: Batch, parts: int) -> Sequence[Batch]:
        return split_batch(batch, parts, PAD)

    def loss(self, model: Any, batch: Batch) -> Objective:
        batch = batch.to(DEVICE)
        hidden = model.forced(batch.source, batch.source_mask, batch.target_in).hidden
        logits = model.project(hidden.flatten(0, 1))
        loss, plain = cross_entropy(logits, batch.target_out.flatten(), padding=PAD, smoothing=0.1)
        return Objective(loss, {"loss": plain})

    def validate(self, model: Any) -> Validation:
        return Validation({"loss": 0.0}, {}, [])

    def describe(self) -> str:
        return "random tokens"

    def statistics(self) -> dict[str, float]:
        return {}


def make_trainer(size: Size, how: str, graphs: bool, folder: Path, *, async_save: bool = False) -> Trainer:
    config = TrainingConfig(
        precision="bf16" if DEVICE.type == "cuda" else "fp32",
        cuda_graphs=graphs and DEVICE.type == "cuda",
        distributed=how,  # type: ignore[arg-type]
        async_save=async_save,
        keep_last=1,
    )
    torch.manual_seed(1)
    family = TransformerConfig(dim=size.dim, layers=size.layers, heads=size.heads, feed_forward=4 * size.dim)
    model, task = Transformer(family, size.vocab, size.vocab).to(DEVICE), RandomTokens(size)
    ranks: Ranks = Ranks() if how == "auto" else Group(DEVICE, sharded=how == "fsdp")
    shards = None
    if isinstance(ranks, Group) and ranks.sharded:
        replica = Replica(copy_without_weights(model), task, forget=bool)
        part = task.split(task.batches[0], 8)[0]
        units = find_units(model, model.blocks(), lambda: task.loss(model, part))
        shards = Shards(model, units, ranks, replica)
    trainer = Trainer(model, task, config, folder, seed=1, dim=size.dim, ranks=ranks, shards=shards)
    if ranks.exchanges and shards is None:
        ranks.copy_from_first(list(model.state_dict().values()))
    model.train()
    return trainer


def finish() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def timed_updates(trainer: Trainer, steps: int, seconds: float) -> list[float]:
    """Seconds of each update after the warm-up; at most as many as fit into the given time, by the clock of rank 0."""
    times: list[float] = []
    began = time.perf_counter()
    with closing(trainer.task.stream(0, 0)) as stream:
        for number in range(WARMUP + steps):
            start = time.perf_counter()
            trainer.update([next(stream)])
            trainer.guard.read_pending()
            finish()
            if number >= WARMUP:
                times.append(time.perf_counter() - start)
            if number % 10 == 9 and trainer.ranks.from_first(lambda: time.perf_counter() - began > seconds) and len(times) > 9:
                break
    return times


def timed_exchanges(trainer: Trainer) -> list[float]:
    """Seconds of the exchange of some updates, each begun and ended with the GPU idle."""
    times: list[float] = []
    add_up = trainer.ranks.add_up

    def timed_add_up(tensors: Sequence[torch.Tensor]) -> None:
        finish()
        start = time.perf_counter()
        add_up(tensors)
        finish()
        times.append(time.perf_counter() - start)

    trainer.ranks.add_up = timed_add_up  # type: ignore[method-assign]
    with closing(trainer.task.stream(0, 0)) as stream:
        for _ in range(EXCHANGES):
            trainer.update([next(stream)])
    return times


def measure_case(name: str, size: Size, steps: int, seconds: float, folder: Path) -> dict[str, float]:
    """The median time of an update and of its exchange, and the memory; called on every rank."""
    _, how, graphs = CASES[name]
    trainer = make_trainer(size, how, graphs, folder)
    times = timed_updates(trainer, steps, seconds)
    figures = {f"{name}_ms": 1000 * statistics.median(times), f"{name}_steps": float(len(times))}
    if how == "ddp":
        figures[f"{name}_exchange_ms"] = 1000 * statistics.median(timed_exchanges(trainer))
    if DEVICE.type == "cuda":
        figures[f"{name}_memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return figures


def measure_async(size: Size, steps: int, seconds: float, folder: Path) -> dict[str, float]:
    """Updates while a checkpoint is written in the background, compared with others of the same process."""
    trainer = make_trainer(size, "auto", True, folder, async_save=True)
    plain = timed_updates(trainer, steps, seconds / 3)
    during: list[float] = []
    saves: list[float] = []
    starts: list[float] = []
    with closing(trainer.task.stream(0, 0)) as stream:
        for number in range(6):
            began = time.perf_counter()
            trainer.save()
            starts.append(time.perf_counter() - began)
            own: list[float] = []
            while trainer.writer.thread is not None and trainer.writer.thread.is_alive():
                start = time.perf_counter()
                trainer.update([next(stream)])
                trainer.guard.read_pending()
                finish()
                own.append(time.perf_counter() - start)
            if own and number:  # the first allocates pinned memory
                own[0] += starts[-1]  # starting the save delays the next update
                during += own
                saves.append(time.perf_counter() - began)
            trainer.writer.wait()
            for _ in range(10):
                start = time.perf_counter()
                trainer.update([next(stream)])
                trainer.guard.read_pending()
                finish()
                plain.append(time.perf_counter() - start)
    trainer.config = trainer.config.model_copy(update={"async_save": False})
    began = time.perf_counter()
    trainer.save()
    blocking = time.perf_counter() - began
    update, saving = statistics.median(plain), statistics.mean(during)
    return {
        "async_update_ms": 1000 * update,
        "async_update_during_save_ms": 1000 * saving,
        "async_update_during_save_median_ms": 1000 * statistics.median(during),
        "async_ratio": saving / statistics.mean(plain),
        "async_ratio_median": statistics.median(during) / update,
        "async_start_ms": 1000 * statistics.median(starts[1:]),
        "async_save_seconds": statistics.median(saves),
        "async_updates_during_saves": float(len(during)),
        "plain_save_seconds": blocking,
    }


def run_child(name: str, options: argparse.Namespace) -> None:
    """Measure one case on this rank; rank 0 writes the figures."""
    size, folder = SIZES[options.size], Path(options.folder) / f"{name}-{os.environ.get('RANK', '0')}"
    folder.mkdir(parents=True)
    torch.set_float32_matmul_precision("high")
    arguments = (size, options.steps, options.seconds, folder)
    figures = measure_async(*arguments) if name == "async" else measure_case(name, *arguments)
    if os.environ.get("RANK", "0") == "0":
        Path(options.output).write_text(json.dumps(figures))
    os._exit(0)  # without waiting for the other rank


def start_case(name: str, options: argparse.Namespace, folder: Path) -> Mapping[str, float]:
    """Measure one case in processes of its own."""
    count, output = CASES[name][0] if name in CASES else 1, folder / f"{name}.json"
    command = [sys.executable, __file__, "--child", name, "--size", options.size, "--steps", str(options.steps)]
    command += ["--seconds", str(options.seconds), "--folder", str(folder), "--output", str(output)]
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
    shared["MASTER_PORT"] = str(free_port())
    if DEVICE.type == "cpu":
        shared["OMP_NUM_THREADS"] = "1"
    ranks = [
        subprocess.Popen(command, env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(count)
    ]
    try:
        codes = [rank.wait(options.seconds * 2 + 120) for rank in ranks]
    except subprocess.TimeoutExpired:
        codes = [-1]
    finally:
        for rank in ranks:
            rank.kill()
    if any(codes) or not output.exists():
        print(f"{name}: failed with exit codes {codes}", flush=True)
        return {f"{name}_failed": 1.0}
    figures: Mapping[str, float] = json.loads(output.read_text())
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True)
    parser.add_argument("--tiny", action="store_true", help="a tiny model and few updates")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=40.0, help="the longest time of one case")
    parser.add_argument("--cases", nargs="+", choices=[*CASES, "async"], default=[*CASES, "async"])
    parser.add_argument("--size", choices=list(SIZES), default="base", help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(options.child, options)
    if options.tiny:
        options.size, options.steps, options.seconds = "tiny", 20, 10.0
    device = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "cpu"
    figures: dict[str, Any] = {"date": date.today().isoformat(), "device": device, "torch": torch.__version__}
    figures |= {"size": options.size, "rows": SIZES[options.size].rows, "time": SIZES[options.size].time}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.cases:
            figures |= start_case(name, options, Path(folder))
            print(f"{name} done", flush=True)
            if "alone_ms" in figures:
                base = figures["alone_eager_ms" if name.startswith("fsdp") and "alone_eager_ms" in figures else "alone_ms"]
                if f"{name}_ms" in figures:
                    figures[f"{name}_overhead_ms"] = figures[f"{name}_ms"] - base
            Path(options.output).write_text(json.dumps(figures, indent=1) + "\n")
    print(f"{'case':<14}{'update ms':>12}{'overhead ms':>14}{'exchange ms':>14}")
    for name in CASES:
        values = [figures.get(f"{name}_{kind}") for kind in ("ms", "overhead_ms", "exchange_ms")]
        print(
            f"{name:<14}"
            + "".join(f"{'-' if v is None else f'{v:.1f}':>{w}}" for v, w in zip(values, (12, 14, 14), strict=True))
        )
    if "async_ratio" in figures:
        print(f"updates during a save: {figures['async_ratio']:.3f} x (median {figures['async_ratio_median']:.3f} x), saves of "
              f"{figures['async_save_seconds']:.2f} s; a plain save takes {figures['plain_save_seconds']:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
