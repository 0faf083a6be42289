"""The demo model of a studio without a run: trained in a child process, then served; stopping saves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from serving.running_server import run_server
from workshop import start_heed

from heedful.errors import ConfigError
from heedful.serving import demo_training
from heedful.serving.demo_training import DemoTraining
from heedful.serving.limits import Limits
from heedful.serving.served import Loading, Served
from heedful.serving.server import Access, make_service

SMALL = ("data.counts={train=300, valid=10, test=10}", "model.dim=16", "model.layers=1", "model.heads=2", "training.threads=1")


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = monotonic() + seconds
    while not condition():
        assert monotonic() < until, "it takes too long"
        sleep(0.05)


@pytest.fixture
def service() -> Any:
    return make_service([], Loading(device="cpu"), Limits(), Access(), None)


def start_forked(command: list[str], **options: Any) -> subprocess.Popen[Any]:
    """A replacement of Popen, whose process would spend seconds on importing torch."""
    assert command[:3] == [sys.executable, "-m", "heedful"]
    return start_heed(*command[3:], **options)


@pytest.fixture
def demo(service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DemoTraining]:
    forked = SimpleNamespace(Popen=start_forked, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(demo_training, "subprocess", forked)
    folder = tmp_path / "runs" / "demo"
    training = DemoTraining(folder, lambda: Served(folder, None, Loading(device="cpu"), Limits(), service.metrics), service.add)
    training.options = (*SMALL, "training.steps=4")
    yield training
    training.close()


def test_a_trained_model_is_served(demo: DemoTraining, service: Any) -> None:
    assert demo.describe()["state"] == "absent" and not list(service.models)
    demo.start()
    demo.start()  # without effect: it runs already
    wait_for(lambda: demo.state not in ("training", "loading"))
    assert demo.describe() | {"folder": ""} == {"state": "ready", "message": "", "folder": "", "model": "demo"}
    (served,) = service.models
    assert (served.id, served.pair, service.models.sources) == ("demo", ("en", "it"), ["en"])
    assert served.predictor.checkpoint.name == "step-4"


def test_stopping_saves_and_training_continues(demo: DemoTraining) -> None:
    demo.options = (*SMALL, "training.steps=1000000", "training.report_every=1")
    demo.start()
    wait_for((demo.folder / "metrics.jsonl").exists)
    demo.stop()
    wait_for(lambda: demo.state == "stopped")
    (saved,) = (demo.folder / "checkpoints").glob("step-*")
    again = DemoTraining(demo.folder, demo.load, demo.add)
    assert again.describe()["state"] == "stopped"
    steps = int(saved.name.removeprefix("step-")) + 1
    again.options = (*SMALL, f"training.steps={steps}", "training.report_every=1")
    again.start()
    wait_for(lambda: again.state not in ("training", "loading"))
    assert again.describe()["state"] == "ready" and (demo.folder / "checkpoints" / f"step-{steps}").is_dir()


def test_stopping_at_once_is_no_failure(demo: DemoTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child may not have started to save at a signal."""
    without_handlers = lambda _, **options: subprocess.Popen(["sleep", "60"], **options)  # noqa: E731
    monkeypatch.setattr(vars(demo_training)["subprocess"], "Popen", without_handlers)
    demo.start()
    demo.stop()
    wait_for(lambda: demo.state != "training")
    assert demo.state == "stopped"


def test_a_failure_has_a_message(demo: DemoTraining) -> None:
    demo.options = ("training.stepz=1",)
    demo.start()
    wait_for(lambda: demo.state == "failed")
    assert demo.message == f"Training ended with exit code {ConfigError.exit_code}; the terminal shows why."


def test_ctrl_c_ends_the_studio_and_its_training(tmp_path: Path) -> None:
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start_heed("studio", "--no-browser", "--port", "0", "--json", cwd=tmp_path, **streams) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            with httpx.Client(base_url=json.loads(line)["url"], timeout=20) as http:
                assert http.get("/api/runs").json() == {
                    "runs": [],
                    "demo": {"state": "absent", "message": "", "folder": "runs/demo", "model": "demo"},
                }
                assert http.post("/api/demo", json={"action": "start"}).json()["state"] == "training"
                wait_for(lambda: bool(http.get("/api/runs").json()["runs"]))
            (child,) = children_of(process.pid)
            process.send_signal(signal.SIGINT)
            messages = process.communicate(timeout=60)[1]
            assert process.returncode == 0, messages
            with pytest.raises(ProcessLookupError):
                os.kill(child, 0)
        finally:
            process.kill()


def children_of(parent: int) -> list[int]:
    """The processes that any thread of a process has started."""
    return [int(one) for task in Path(f"/proc/{parent}/task").iterdir() for one in (task / "children").read_text().split()]


def test_other_servers_train_nothing(tiny_runs: dict[str, Path]) -> None:
    with run_server(tiny_runs["classification"]) as running:
        assert running.http.get("/api/runs").json()["demo"] is None
        assert running.http.post("/api/demo", json={"action": "start"}).status_code == 404
