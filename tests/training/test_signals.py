"""Signals to stop: before training they exit with a message, during training a checkpoint is saved first."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from workshop import heed, start, write_recipe

from heedful.errors import Interrupted
from heedful.runs import build
from heedful.runs import train as training
from heedful.tasks.translation.data import TranslationData
from heedful.tasks.translation.task import TranslationTask
from heedful.training import retention
from heedful.training.signals import Stop, interruptible, stop_requests

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture(params=SIGNALS, ids=lambda number: number.name)
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that does not end the tests if training does not handle it."""
    before = signal.signal(request.param, lambda *_: None)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_during_training_saves_and_exits_with_75(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    whole, seen = TranslationTask.loss, []

    def loss(self: TranslationTask, model: object, batch: object) -> object:
        seen.append(batch)
        if len(seen) == 3:
            os.kill(os.getpid(), number)
        return whole(self, model, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(TranslationTask, "loss", loss)
    assert heed("train", recipe, "training.save_every=100", "training.validate_every=100", "--run", run) == 75
    assert "stopped: saved at step 3 of 6" in capsys.readouterr().err
    assert retention.resolve(run, "last").name == "step-3"


def test_a_signal_during_preparation_exits_with_75_and_a_message(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = TranslationData.prepare

    def prepare(self: TranslationData, *arguments: object) -> object:
        os.kill(os.getpid(), number)
        return whole(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TranslationData, "prepare", prepare)
    assert heed("train", write_recipe(tmp_path), "--run", tmp_path / "run") == 75
    stderr = capsys.readouterr().err
    assert f"stopped: {number.name} before the first update; nothing to save\n" in stderr
    assert "hint: run the same command again" in stderr
    monkeypatch.undo()
    assert heed("train", tmp_path / "recipe.toml", "--run", tmp_path / "run") == 0


def test_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with stop_requests():
        assert signal.getsignal(signal.SIGHUP) != before[2]
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_under_nohup_sighup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requests() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_whose_exception_was_lost_still_stops_the_run() -> None:
    stop = Stop()
    with pytest.raises(Interrupted):
        stop.handle(signal.SIGTERM, None)
    with pytest.raises(Interrupted):
        stop.defer()


def test_long_native_work_is_interrupted_at_once() -> None:
    release = threading.Event()
    began = time.monotonic()
    with pytest.raises(Interrupted), stop_requests():
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        interruptible(lambda: release.wait(30))
    release.set()
    assert time.monotonic() - began < 5


def test_interruptible_returns_the_result_or_raises_the_error() -> None:
    assert interruptible(lambda: 7) == 7
    with pytest.raises(KeyError):
        interruptible(lambda: dict[str, int]()["no"])


def test_ctrl_c_works_while_a_tokenizer_is_trained(tmp_path: Path) -> None:
    """In a separate process, which must exit although a native call does not handle signals."""
    recipe, config = write_recipe(tmp_path), tmp_path / "run" / "config.toml"

    def train() -> None:
        build.train_tokenizer = lambda *_: hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # type: ignore[attr-defined, assignment]
        raise SystemExit(heed("train", recipe, "--run", tmp_path / "run", "--device", "cpu"))

    with start(train, stderr=subprocess.PIPE, text=True) as process:
        while not config.exists() and process.poll() is None:
            time.sleep(0.05)
        time.sleep(0.3)
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            _, stderr = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 75, stderr
    assert "stopped: SIGINT before the first update" in stderr and "Traceback" not in stderr
    assert time.monotonic() - asked < 20


def test_renaming_the_run_folder_during_training_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    whole, seen = TranslationTask.loss, []

    def loss(self: TranslationTask, model: object, batch: object) -> object:
        seen.append(batch)
        if len(seen) == 4:
            run.rename(tmp_path / "moved")
        return whole(self, model, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(TranslationTask, "loss", loss)
    assert heed("train", recipe, "training.report_every=100", "--run", run) == 4
    assert f"run folder {run} was renamed or deleted" in capsys.readouterr().err
    assert not run.exists()
    monkeypatch.setattr(TranslationTask, "loss", whole)
    (tmp_path / "moved").rename(run)
    assert training.train(recipe, ["training.report_every=100"], run=run).step == 6
