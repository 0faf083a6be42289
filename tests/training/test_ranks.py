"""Training with several processes, on a CPU over gloo."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from ranked import command, exit_codes, start_rank, start_ranks
from workshop import heed, write_recipe

import heedful
from heedful.errors import DataError, DivergedError
from heedful.nn.losses import Loss
from heedful.runs import processes
from heedful.tasks.system import System
from heedful.tasks.translation import evaluate
from heedful.training import checkpoint, sharded_checkpoint
from heedful.training.loop import Trainer
from heedful.training.ranks import Group

FAST = 'training.schedule={name="constant", learning_rate=1e-3, warmup=1}'
PLAIN = (FAST, "model.dropout=0")
# Weights are compared without what makes a difference of rounding large: Adam, which scales up the gradients of biases of keys,
# zero but for rounding, and ReLU, whose derivative jumps (at one token of this data, on processors of one kind).
SMOOTH = ("model.dropout=0", "model.activation=gelu")
MOMENTUM = ("training.optimizer={name='sgd', momentum=0.9}", FAST.replace("1e-3", "0.1"), *SMOOTH)


def train(count: int, *arguments: str | Path, before: Callable[[], object] = bool) -> list[int]:
    """Train with several ranks and return their exit codes; before: called on each first."""

    def run() -> None:
        before()
        command("train", *arguments)()

    return exit_codes(start_ranks(count, run))


def every(steps: int) -> list[str]:
    return [f"training.{name}={steps}" for name in ("steps", "save_every", "validate_every")]


def log_of(run: Path, name: str = "loss", kind: str = "train") -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record[name] for record in records if record["kind"] == kind]


def weights_of(run: Path, step: int, stem: str = "model") -> Mapping[str, torch.Tensor]:
    return checkpoint.load_tensors(run / "checkpoints" / f"step-{step}", stem)


def assert_same_bits(one: Path, other: Path, step: int) -> None:
    for stem in ("model", "optimizer"):
        first, second = weights_of(one, step, stem), weights_of(other, step, stem)
        assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def at_step(step: int, act: Callable[[Trainer], object], rank: int) -> Callable[[], None]:
    """A function that makes a rank act before an update."""

    def prepare() -> None:
        update = Trainer.update

        def patched(trainer: Trainer, streamed: Sequence[Any]) -> Any:
            if trainer.train_state.step + 1 == step and trainer.ranks.rank == rank:
                act(trainer)
            return update(trainer, streamed)

        Trainer.update = patched  # type: ignore[assignment, method-assign]

    return prepare


def at_validation(act: Callable[[Trainer], object], rank: int) -> Callable[[], None]:
    """A function that makes a rank act in the last validation."""

    def prepare() -> None:
        score = Trainer.score

        def patched(trainer: Trainer) -> Any:
            if trainer.train_state.step == trainer.last and trainer.ranks.rank == rank:
                act(trainer)
            return score(trainer)

        Trainer.score = patched  # type: ignore[assignment, method-assign]

    return prepare


def start_forked(before: Callable[[], object]) -> Callable[..., subprocess.Popen[bytes]]:
    """A replacement of `start_child`, which would spend seconds on importing torch."""

    def start_child(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        def run() -> None:
            before()
            command(*arguments)()

        return start_rank(int(environment["RANK"]), run, environment)

    return start_child


def test_losses_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    recipe, losses = write_recipe(tmp_path), {}
    for count in (1, 2, 4):
        run = tmp_path / str(count)
        assert train(count, recipe, *every(50), *PLAIN, "training.clip=0.5", "--run", run) == [0] * count
        losses[count] = log_of(run)
    assert len(losses[1]) == 50 and losses[1][-1] < 0.8 * losses[1][0]
    assert losses[2] == pytest.approx(losses[1], rel=1e-5)
    assert losses[4] == pytest.approx(losses[1], rel=1e-5)


def test_a_run_continues_with_another_number_of_processes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """From parts that all processes have saved as from whole weights; the samples come in the same order."""
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    options = [*every(12), *MOMENTUM, "training.average=ema", "training.accumulate=2"]
    assert heed("train", recipe, *options, "--run", tmp_path / "alone") == 0
    parts = ("training.distributed=fsdp", "training.sharded_save=true")
    ddp: tuple[str, ...] = ("training.distributed=ddp",)
    for count, step, how in ((2, 2, parts), (4, 4, parts), (3, 7, ddp), (3, 9, parts), (1, 10, ())):
        interrupt = at_step(step, lambda trainer: os.kill(os.getpid(), signal.SIGTERM), rank=count - 1)
        assert train(count, recipe, *options, *how, "--run", run, before=interrupt) == [75] * count
        files = sorted(path.name for path in (run / "checkpoints" / f"step-{step}").rglob("*.safetensors"))
        assert len(files) == (3 * count if how == parts else 3)
        assert heedful.load(run, "last").predict("w1 w2") is not None
    assert "processes was 2 and is now 4" in capfd.readouterr().err
    assert train(3, recipe, *options, *parts, "training.async_save=true", "--run", run) == [0, 0, 0]
    assert log_of(run) == pytest.approx(log_of(tmp_path / "alone"), rel=1e-5)
    assert log_of(run, kind="valid")[-1:] == pytest.approx(log_of(tmp_path / "alone", kind="valid"), rel=1e-5)
    for stem in ("model", "average", "optimizer"):
        torch.testing.assert_close(weights_of(run, 12, stem), weights_of(tmp_path / "alone", 12, stem), atol=1e-5, rtol=1e-4)
    names = {path.name for path in (tmp_path / "alone").iterdir()} - {".lock"}
    assert {path.name for path in run.iterdir()} - {".lock"} == names
    assert heedful.load(run).predict("w1 w2") is not None


def test_parts_of_an_optimizer_without_state_are_saved_and_loaded(tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    plain = (*every(4), "training.optimizer={name='sgd'}", "training.distributed=fsdp", "training.sharded_save=true")
    interrupt = at_step(2, lambda trainer: os.kill(os.getpid(), signal.SIGTERM), rank=1)
    assert train(2, recipe, *plain, "--run", run, before=interrupt) == [75, 75]
    assert not weights_of(run, 2, "optimizer") and weights_of(run, 2)
    assert train(2, recipe, *plain, "--run", run) == [0, 0]
    assert not weights_of(run, 4, "optimizer") and not checkpoint.is_sharded(run / "checkpoints" / "step-4")


def test_a_killed_process_is_replaced_and_the_weights_have_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe, killed = write_recipe(tmp_path), tmp_path / "killed"

    def kill(trainer: Trainer) -> None:
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(processes, "start_child", start_forked(at_step(5, kill, rank=2)))
    arguments: list[str | Path] = ["train", recipe, FAST, "training.async_save=true", "--processes", "4", "--max-restarts", "1"]
    assert heed(*arguments, "--run", tmp_path / "disturbed") == 0
    message = "the process of rank 2 was killed by SIGKILL (kill -9, or the machine's memory was full)"
    errors = capfd.readouterr().err
    assert f"{message}; starting all 4 again (restart 1 of 1)" in errors
    assert "continuing from step 4" in errors and "error:" not in errors
    assert heed(*arguments, "--run", tmp_path / "undisturbed") == 0
    assert_same_bits(tmp_path / "disturbed", tmp_path / "undisturbed", 6)
    killed.unlink()
    assert heed(*arguments[:-2], "--run", tmp_path / "ended") == 7
    assert capfd.readouterr().err.count("error:") == 1


def test_a_process_killed_while_all_save_their_parts_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe, killed = write_recipe(tmp_path), tmp_path / "killed"

    def kill_in_second_save() -> None:
        seal, saves = sharded_checkpoint.gather, []

        def gather(group: Group, value: Any) -> Any:
            saves.append(value)
            if len(saves) == 4 and group.rank == 1 and not killed.exists():  # its files of the second save are written
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return seal(group, value)

        sharded_checkpoint.gather = gather

    monkeypatch.setattr(processes, "start_child", start_forked(kill_in_second_save))
    restart = ("training.distributed=fsdp", "--processes", "2", "--max-restarts", "1")
    arguments: list[str | Path] = ["train", recipe, FAST, *restart]
    parts = ("training.sharded_save=true", "training.async_save=true")
    assert heed(*arguments, *parts, "--run", tmp_path / "disturbed") == 0
    errors = capfd.readouterr().err
    assert "the process of rank 1 was killed by SIGKILL" in errors and "continuing from step 2" in errors
    assert heed(*arguments, "--run", tmp_path / "undisturbed") == 0
    assert_same_bits(tmp_path / "disturbed", tmp_path / "undisturbed", 6)


@pytest.mark.parametrize(("rank", "where"), [(1, "update"), (0, "validation")])
def test_a_stopped_process_is_named_and_replaced(
    rank: int, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe, stopped = write_recipe(tmp_path), tmp_path / "stopped"

    def stop(trainer: Trainer) -> None:
        if not stopped.exists():
            stopped.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)

    monkeypatch.setattr(processes, "GRACE", 0.5)
    before = at_step(5, stop, rank=rank) if where == "update" else at_validation(stop, rank=rank)
    monkeypatch.setattr(processes, "start_child", start_forked(before))
    arguments: list[str | Path] = ["train", recipe, FAST, "training.rank_timeout=3", "--processes", "2", "--max-restarts", "1"]
    assert heed(*arguments, "--run", tmp_path / "run") == 0
    errors = capfd.readouterr().err
    named = f"the process of rank {rank} did not respond within training.rank_timeout; starting all 2 again (restart 1 of 1)"
    assert named in errors
    assert where == "update" or f"the process of rank {rank} has not responded for 3 seconds" in errors
    assert "continuing from step 4" in errors and log_of(tmp_path / "run")
    with pytest.raises(ProcessLookupError):
        os.kill(int(stopped.read_text()), 0)


def test_a_signal_to_one_process_stops_all_after_saving(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    interrupt = at_step(5, lambda trainer: os.kill(os.getpid(), signal.SIGTERM), rank=1)
    arguments = (recipe, FAST, "training.async_save=true", "--run", tmp_path / "run")
    assert train(2, *arguments, before=interrupt) == [75, 75]
    assert weights_of(tmp_path / "run", 5)
    assert train(2, *arguments) == [0, 0]
    assert train(2, *arguments[:-1], tmp_path / "undisturbed") == [0, 0]
    assert_same_bits(tmp_path / "run", tmp_path / "undisturbed", 6)


def test_a_nonfinite_loss_on_one_process_skips_the_update_on_all(tmp_path: Path) -> None:
    recipe, runs = write_recipe(tmp_path), {}

    def make_infinite(trainer: Trainer) -> None:
        accumulate = trainer.gradients.accumulate

        def once(batch: Any, factor: Any) -> dict[str, Loss]:
            trainer.gradients = trainer.gradients._replace(accumulate=accumulate)
            return accumulate(batch, math.inf)

        trainer.gradients = trainer.gradients._replace(accumulate=once)

    for count, how in ((1, "auto"), (3, "ddp"), (3, "fsdp")):
        run = runs[how] = tmp_path / how
        options: list[str | Path] = [*MOMENTUM, f"training.distributed={how}", "--run", run]
        assert train(count, recipe, *options, before=at_step(3, make_infinite, rank=count - 1)) == [0] * count
        assert log_of(run, "skipped") == [0, 0, 1, 1, 1, 1]
    torch.testing.assert_close(weights_of(runs["ddp"], 6), weights_of(runs["auto"], 6), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(weights_of(runs["fsdp"], 6), weights_of(runs["auto"], 6), atol=1e-5, rtol=1e-4)


def test_an_error_in_the_share_of_one_process_in_a_validation_is_printed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is raised on all processes, and the weights that could not be validated are saved."""

    def diverge() -> None:
        if os.environ["RANK"] == "1":
            evaluate.token_scores = lambda system, batch: torch.full(batch.target_out.shape, math.nan)
            System.batch_tokens = 40  # type: ignore[assignment, method-assign]

    monkeypatch.setattr(processes, "start_child", start_forked(diverge))
    assert heed("train", write_recipe(tmp_path), "--processes", "2", "--run", tmp_path / "run") == DivergedError.exit_code
    errors = capfd.readouterr().err
    assert errors.count("error:") == 1 and "the model's scores are not finite at pair" in errors
    assert weights_of(tmp_path / "run", 3)


def test_a_device_that_does_not_exist_is_printed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(processes, "start_child", start_forked(bool))
    assert heed("train", write_recipe(tmp_path), "--processes", "2", "--device", "cuda", "--run", tmp_path / "run") == 2
    assert capfd.readouterr().err == "error: device: given 'cuda', but this machine has: cpu\n"


@pytest.mark.parametrize("option", ["--processes=2", "--max-restarts=1"])
def test_processes_of_torchrun_start_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], option: str
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert heed("train", write_recipe(tmp_path), option, "--run", tmp_path / "run") == 2
    assert "hint: use --nproc-per-node and --max-restarts of torchrun, before the program" in capfd.readouterr().err


def test_an_error_of_one_process_ends_all_with_its_exit_code_and_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(trainer: Trainer) -> None:
        raise DataError("line 7 is gone", hint="restore it")

    monkeypatch.setattr(processes, "start_child", start_forked(at_step(2, fail, rank=1)))
    arguments = ("--processes", "2", "--max-restarts", "3", "--run", tmp_path / "run")
    assert heed("train", write_recipe(tmp_path), *arguments) == DataError.exit_code
    errors = capfd.readouterr().err
    assert errors.count("error:") == 1 and "error: line 7 is gone\n\nhint: restore it" in errors
    assert heed("train", tmp_path / "recipe.toml", "model.heads=3", *arguments[:-1], tmp_path / "other") == 2
    assert capfd.readouterr().err.count("error:") == 1


def test_a_tensor_on_the_device_of_the_backend_is_not_copied() -> None:
    group = object.__new__(Group)
    group.device = torch.device("cpu", 0)
    tensor = torch.zeros(1)
    assert tensor.device != group.device, "the index of a device is often left out"
    assert group.readable(tensor) is tensor
