"""A resumed run is bit-identical to an uninterrupted one, however it was stopped."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import kill
import pytest
import torch
from workshop import heed, start_heed, write_recipe

from heedful.training import facts
from heedful.training.loop import Trainer

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


def weights(run: Path, step: int) -> dict[str, bytes]:
    files = sorted((run / "checkpoints" / f"step-{step}").glob("*.safetensors"))
    assert files, "there is a checkpoint to compare"
    return {file.name: file.read_bytes() for file in files}


def last_checkpoint(run: Path) -> int:
    names = [path.name.removeprefix("step-") for path in (run / "checkpoints").glob("step-*")]
    return max((int(step) for step in names if step.isdigit()), default=0)


def kill_when(reached: Callable[[], bool], recipe: Path, run: Path) -> None:
    """Start or continue the run, and kill it shortly after the condition holds."""
    with run.with_suffix(".log").open("ab") as log:
        process = start_heed("train", recipe, "--run", run, "--device", "cpu", stdout=subprocess.DEVNULL, stderr=log)
    try:
        while not reached():
            assert process.poll() is None, run.with_suffix(".log").read_text()
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.1))
        assert process.poll() is None, "a run of a million steps is still running"
    finally:
        process.kill()
        process.wait()


def test_a_run_killed_three_times_ends_with_identical_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As soon as it has a folder, and after two checkpoints. It could not finish before, so its number of steps is set
    afterwards."""
    options, run = {"save_every": 10, "validate_every": 30}, tmp_path / "killed"
    endless = kill.write_recipe(tmp_path, steps=1_000_000, **options)
    kill_when(run.exists, endless, run)
    for _ in range(2):
        before = last_checkpoint(run)
        kill_when(lambda before=before: last_checkpoint(run) > before, endless, run)  # type: ignore[misc]
    last = last_checkpoint(run) + 20
    recipe = kill.write_recipe(tmp_path, steps=last, **options)
    assert (tmp_path / "killed.log").read_text().count("continuing from step") >= 1
    assert heed("train", recipe, "--run", run, "--device", "cpu") == 0
    assert "continuing from step" in capsys.readouterr().err
    assert heed("train", recipe, "--run", tmp_path / "whole", "--device", "cpu") == 0
    assert kill.fingerprint(run, last) == kill.fingerprint(tmp_path / "whole", last)
    samples = (run / "samples.jsonl").read_text()
    assert samples == (tmp_path / "whole" / "samples.jsonl").read_text() and samples.count("\n") == -(-last // 30)


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_run_killed_while_its_first_file_is_written_starts_again(
    dictionary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    (tmp_path / "words.tsv").write_text("w1\tw2\n")
    options = (f"search.dictionary={tmp_path / 'words.tsv'}", "search.replace_unknown=true") if dictionary else ()

    def die(run: Path, content: object) -> None:
        (run / ".tmp-run.json-9717-831ddddb").write_text("{")  # as a killed process leaves it
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(facts, "write_facts", die)
        heed("train", recipe, *options, "--run", run)
    assert [path.name for path in run.iterdir() if path.name != ".lock"] == [".tmp-run.json-9717-831ddddb"]
    assert heed("train", recipe, *options, "training.steps=2", "--run", run) == 0
    assert not list(run.glob(".tmp-*")) and weights(run, 2)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("training.average=ema",),
        ("training.accumulate=3",),
        ("task.r_drop=1.0",),
        ("task.sequence.method=risk", "task.sequence.samples=3", "training.accumulate=2"),
        ("tokenizer.kind=bpe", "tokenizer.vocab=60", "tokenizer.dropout=0.1"),
        ("training.precision=bf16",),
    ],
    ids=str,
)
def test_raising_steps_continues_to_identical_weights(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    recipe = write_recipe(tmp_path)
    schedule = ("training.schedule.name=constant", *overrides)
    assert heed("train", recipe, *schedule, "--run", tmp_path / "whole") == 0
    for steps in (5, 6) if overrides else (2, 5, 6):
        assert heed("train", recipe, *schedule, f"training.steps={steps}", "--run", tmp_path / "parts") == 0
    assert weights(tmp_path / "parts", 6) == weights(tmp_path / "whole", 6)


def flip_a_bit(content: bytearray) -> None:
    content[-100] ^= 1


def zero_all(content: bytearray) -> None:
    content[:] = bytes(len(content))


@pytest.mark.parametrize("damage", [flip_a_bit, zero_all])
def test_damage_is_detected_and_the_previous_checkpoint_used(
    damage: Callable[[bytearray], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    assert heed("train", recipe, "training.steps=4", "--run", run) == 0
    assert heed("train", recipe, "training.steps=4", "--run", tmp_path / "whole") == 0
    damaged = run / "checkpoints" / "step-4" / "model.safetensors"
    content = bytearray(damaged.read_bytes())
    damage(content)
    damaged.write_bytes(content)
    capsys.readouterr()
    assert heed("train", recipe, "training.steps=6", "--run", run) == 0
    stderr = capsys.readouterr().err
    assert "step-4" in stderr and "model.safetensors" in stderr
    assert "continuing from step 2" in stderr
    assert heed("train", recipe, "training.steps=6", "--run", tmp_path / "whole") == 0
    assert weights(run, 6) == weights(tmp_path / "whole", 6)


def test_sigterm_saves_and_exits_with_75_and_the_same_command_continues(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    steps = [f"training.{name}=4000" for name in ("steps", "save_every", "validate_every")]
    process = start_heed("train", recipe, *steps, "--run", tmp_path / "run", stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count("\n") < 3:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 75
    assert "stopped: saved at step" in stderr and "hint: run the same command again to continue" in stderr
    assert "error" not in stderr
    reached = json.loads(metrics.read_text().splitlines()[-1])["step"]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")] == [f"step-{reached}"]


def test_a_finished_run_is_reported_as_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    assert heed("train", recipe, "--run", run) == 0
    before = weights(run, 6)
    capsys.readouterr()
    assert heed("train", recipe, "--run", run, "--json") == 0
    output = capsys.readouterr()
    assert output.err == f"{run} is finished: 6 steps\n"
    assert json.loads(output.out)["already_done"] is True
    assert weights(run, 6) == before


def test_a_run_killed_after_its_last_save_is_completed(tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    assert heed("train", recipe, "--run", run) == 0
    before, card = weights(run, 6), (run / "README.md").read_text()
    (run / "README.md").unlink()  # it is written last
    assert heed("train", recipe, "--run", run) == 0
    assert (weights(run, 6), (run / "README.md").read_text()) == (before, card)


def test_a_different_config_is_refused_and_the_difference_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    assert heed("train", recipe, "training.steps=2", "--run", run) == 0
    capsys.readouterr()
    assert heed("train", recipe, "model.dim=32", "training.validate_every=5", "--run", run) == 2
    assert capsys.readouterr().err == (
        f"error: {run} is a run with another config:\n  model.dim: given 32, but the run has 16\n\n"
        f"hint: continue with its own config, `heed train {run}`, or choose another folder with --run\n"
    )


def test_two_processes_cannot_train_in_one_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from heedful.training.run_folder import lock

    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    with lock(run):
        assert heed("train", recipe, "--run", run) == 4
    assert f"run folder {run} is in use by process {os.getpid()}" in capsys.readouterr().err


def test_a_diverging_run_exits_with_5_and_keeps_its_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from heedful.tasks.translation.task import TranslationTask
    from heedful.training.checkpoint import verify

    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    assert heed("train", recipe, "training.max_nonfinite_steps=2", "training.steps=2", "--run", run) == 0
    good = weights(run, 2)
    whole = TranslationTask.loss

    def broken(self: TranslationTask, model: object, batch: object) -> object:
        objective = whole(self, model, batch)  # type: ignore[arg-type]
        return objective._replace(minimize=replace(objective.minimize, total=objective.minimize.total * torch.nan))

    monkeypatch.setattr(TranslationTask, "loss", broken)
    capsys.readouterr()
    assert heed("train", recipe, "training.max_nonfinite_steps=2", "training.steps=20", "--run", run) == 5
    assert "3 of the last 100 updates up to step 5" in capsys.readouterr().err
    verify(run / "checkpoints" / "step-2")
    assert weights(run, 2) == good


def test_a_batch_that_does_not_fit_is_split_and_recorded_with_the_same_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heedful.tasks.translation.task import TranslationTask

    recipe = write_recipe(tmp_path)
    plain = ("model.dropout=0.0", "training.steps=2", "training.save_every=1")
    assert heed("train", recipe, *plain, "--run", tmp_path / "whole") == 0
    whole = TranslationTask.loss
    failed: list[object] = []

    def short_of_memory(self: TranslationTask, model: object, batch: object) -> object:
        if not failed:
            failed.append(batch)
            raise torch.OutOfMemoryError("as if")
        return whole(self, model, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(TranslationTask, "loss", short_of_memory)
    assert heed("train", recipe, *plain, "--run", tmp_path / "split") == 0
    assert (tmp_path / "split" / "splits.jsonl").read_text() == '{"step": 1, "parts": 2}\n'
    from safetensors.torch import load

    one, other = (load(weights(tmp_path / run, 2)["model.safetensors"]) for run in ("whole", "split"))
    assert one.keys() == other.keys() and len(one) > 10
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=1e-4)


def test_a_validation_that_fails_costs_no_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, rare = write_recipe(tmp_path), "training.save_every=100"
    assert heed("train", recipe, rare, "--run", tmp_path / "whole") == 0

    def short_of_memory(self: Trainer) -> None:
        raise torch.OutOfMemoryError("as if")

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "score", short_of_memory)
        assert heed("train", recipe, rare, "--run", tmp_path / "run") == 6
    assert last_checkpoint(tmp_path / "run") == 3
    assert heed("train", recipe, rare, "--run", tmp_path / "run") == 0
    assert weights(tmp_path / "run", 6) == weights(tmp_path / "whole", 6)


def test_a_disk_that_is_too_full_for_a_checkpoint_is_an_error_after_the_first_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 50_000))
    run = tmp_path / "run"
    assert heed("train", write_recipe(tmp_path), "--run", run) == 4
    assert re.search(
        r"checkpoint .*step-1: it needs 1\d\d,\d{3} bytes .* but 50,000 are free; there is no earlier", capsys.readouterr().err
    )
    assert not (run / "checkpoints").exists()


def test_a_finished_run_whose_newest_checkpoint_is_damaged_continues_from_the_one_before(tmp_path: Path) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    assert heed("train", recipe, "training.save_every=3", "training.validate_every=3", "--run", run) == 0
    before = weights(run, 6)
    damaged = run / "checkpoints" / "step-6" / "MANIFEST.json"
    damaged.write_text(damaged.read_text()[:-10])
    assert (run / "checkpoints" / "best").resolve().name == "step-6"
    assert heed("train", recipe, "training.save_every=3", "training.validate_every=3", "--run", run) == 0
    assert weights(run, 6) == before
