"""Trackers receive the metrics of a run, each step once, and never end a training. Tested with the real packages, offline."""

from __future__ import annotations

import json
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from workshop import heed, write_recipe

from heedful.config.read import flatten
from heedful.config.toml import parse_toml
from heedful.training.trackers import TRACKERS, Name, TrackedRun, Trackers, tracking_id

NAMES = list(TRACKERS)
Curve = list[tuple[int, float]]  # (step, value)


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B in its offline mode, MLflow with a folder of files."""
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    options = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    options |= {"MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
    for name, value in options.items():
        monkeypatch.setenv(name, value)


def train(folder: Path, names: list[str], *overrides: str) -> int:
    return heed("train", write_recipe(folder), f"training.trackers={names!r}", *overrides, "--run", folder / "run")


def forget_step(run: Path, step: int) -> None:
    """The state that SIGKILL leaves after the metrics of this step were logged and before it was saved."""
    shutil.rmtree(run / "checkpoints" / f"step-{step}")


def tensorboard_curve(run: Path, name: str) -> Curve:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def wandb_sessions(run: Path) -> list[list[Any]]:
    """The records of every offline session, oldest first. W&B's own process may write them shortly after `finish` returns."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        paths = sorted(run.glob("wandb/offline-run-*/run-*.wandb"), key=lambda path: path.stat().st_mtime_ns)
        sessions = [read_wandb(path) for path in paths]
        if sessions and all(records and records[-1].HasField("exit") for records in sessions):
            return sessions
        time.sleep(0.05)
    raise AssertionError(f"W&B has not finished writing {paths}")


def read_wandb(path: Path) -> list[Any]:
    """The records of a .wandb file, which is a LevelDB log of protocol buffers: 7 bytes, then blocks of 32 KiB with parts of
    records, each after its checksum, size and kind (1: whole, 4: last part)."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, part = path.read_bytes(), 7, b""
    records = []
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack("<HB", content[at + 4 : at + 7])
        part += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4) and at <= len(content):
            records.append(Record.FromString(part))
            part = b""
    return records


def wandb_curve(run: Path, name: str) -> Curve:
    curve = []
    for records in wandb_sessions(run):
        for record in records:
            row = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            curve += [(row["_step"], row[name])] if name in row else []
    return curve


def mlflow_runs() -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient()
    return list(client.search_runs([experiment.experiment_id for experiment in client.search_experiments()]))


def mlflow_curve(run: Path, name: str) -> Curve:
    from mlflow import MlflowClient

    (found,) = [one for one in mlflow_runs() if one.data.tags["heedful.tracking_id"] == tracking_id(run)]
    return [(metric.step, metric.value) for metric in MlflowClient().get_metric_history(found.info.run_id, name)]


CURVES: dict[str, Callable[[Path, str], Curve]] = {
    "tensorboard": tensorboard_curve,
    "wandb": wandb_curve,
    "mlflow": mlflow_curve,
}


def logged(run: Path, kind: str, name: str) -> Curve:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line[name]) for line in lines if line["kind"] == kind]


def assert_equal(curve: Curve, expected: Curve) -> None:
    """Values as far as TensorBoard's float32 has them."""
    assert expected and [step for step, _ in curve] == [step for step, _ in expected]
    assert [value for _, value in curve] == pytest.approx([value for _, value in expected])


def test_every_name_has_a_tracker() -> None:
    assert list(get_args(Name)) == NAMES == list(CURVES)


def test_every_tracker_receives_what_metrics_jsonl_has(tmp_path: Path) -> None:
    assert train(tmp_path, NAMES, "training.average=last", "training.average_count=2") == 0
    run = tmp_path / "run"
    for kind, name in (("train", "loss"), ("train", "rate"), ("valid", "bleu"), ("average", "loss")):
        for curve in CURVES.values():
            assert_equal(curve(run, f"{kind}/{name}"), logged(run, kind, name))


def test_every_tracker_receives_the_config(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert train(tmp_path, NAMES) == 0
    run = tmp_path / "run"
    config = parse_toml((run / "config.toml").read_text())
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    assert b"dim = 16" in events.Tensors("config/text_summary")[0].tensor_proto.string_val[0]
    ((record,),) = [[record for record in records if record.HasField("run")] for records in wandb_sessions(run)]
    sent = {item.key: json.loads(item.value_json) for item in record.run.config.update}
    assert sent["model"]["dim"] == 16 and sent["training"]["trackers"] == NAMES
    (found,) = mlflow_runs()
    assert {name: found.data.params[name] for name in flatten(config)} == {k: str(v) for k, v in flatten(config).items()}


@pytest.mark.parametrize("tracker", NAMES)
def test_a_killed_run_is_continued_with_each_step_once(tmp_path: Path, tracker: str) -> None:
    assert train(tmp_path, [tracker]) == 0
    run = tmp_path / "run"
    forget_step(run, 6)
    assert train(tmp_path, [tracker]) == 0
    expected = logged(run, "train", "loss")
    curve = CURVES[tracker](run, "train/loss")
    assert [step for step, _ in expected] == [1, 2, 3, 4, 5, 6]
    if tracker == "wandb":  # each offline session is a file, which `wandb sync` appends to the run that has its id
        ids = {record.run.run_id for records in wandb_sessions(run) for record in records if record.HasField("run")}
        assert ids == {tracking_id(run)} and len(wandb_sessions(run)) == 2
        assert len(curve) == len(set(map(str, curve))) + 2, "step 5 and 6 are in both files, with equal values"
        curve = sorted(set(curve))
    assert_equal(curve, expected)


def test_weights_and_biases_receives_no_step_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a run that is resumed online, where W&B reports the next step and warns of every earlier one."""
    from wandb import Run

    monkeypatch.setattr(Run, "starting_step", 5)
    trackers = Trackers(["wandb"], tmp_path, {})
    trackers.open(2, print)
    for step in range(3, 8):
        trackers.log(step, {"train/loss": float(step)})
    trackers.close()
    assert wandb_curve(tmp_path, "train/loss") == [(5, 5.0), (6, 6.0), (7, 7.0)]


def test_a_new_run_in_the_same_folder_is_a_new_run_of_the_tracker(tmp_path: Path) -> None:
    assert train(tmp_path, ["mlflow"]) == 0
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # a folder without checkpoints is started again
    assert train(tmp_path, ["mlflow"]) == 0
    assert len({one.data.tags["heedful.tracking_id"] for one in mlflow_runs()}) == 2


def test_trackers_may_be_added_when_a_run_is_continued(tmp_path: Path) -> None:
    assert train(tmp_path, [], "training.steps=3") == 0
    assert not (tmp_path / "run" / "tracking_id").exists()
    assert train(tmp_path, ["tensorboard"], "training.steps=5") == 0
    assert [step for step, _ in tensorboard_curve(tmp_path / "run", "train/loss")] == [4, 5]


def test_a_server_that_cannot_be_reached_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert train(tmp_path, ["mlflow", "tensorboard"]) == 0
    assert capsys.readouterr().err.count("warning: mlflow failed, and training continues without it: ") == 1
    assert len(tensorboard_curve(tmp_path / "run", "train/loss")) == 6


class Failing:
    """A tracker that fails when it is opened, at its third record, or when it is closed."""

    def __init__(self, where: str) -> None:
        self.where, self.steps = where, list[int]()

    def __call__(self, run: TrackedRun) -> Failing:
        self.fail("open")
        return self

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.steps.append(step)
        if len(self.steps) >= 3:
            self.fail("log")

    def close(self) -> None:
        self.fail("close")

    def fail(self, where: str) -> None:
        if where == self.where:
            raise RuntimeError(f"cannot {where}\n  at line 12 of a long traceback")


@pytest.mark.parametrize(("where", "count"), [("open", 0), ("log", 3), ("close", 8)])
def test_a_failing_tracker_is_reported_once_and_training_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], where: str, count: int
) -> None:
    failing = Failing(where)
    monkeypatch.setitem(TRACKERS, "wandb", failing)
    assert train(tmp_path, ["wandb"]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert warnings == [f"warning: wandb failed, and training continues without it: cannot {where}"]
    assert len(failing.steps) == count, "nothing is sent after the failure"


@pytest.fixture
def without_mlflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    yield


@pytest.mark.usefixtures("without_mlflow")
def test_a_missing_package_is_an_error_that_names_the_extra(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, ["tensorboard", "mlflow"]) == 2
    message = capsys.readouterr().err
    assert "training.trackers: given 'mlflow', but mlflow is not installed" in message
    assert "pip install 'heedful[track]'" in message
    assert not (tmp_path / "run").exists()


def test_unknown_and_repeated_names_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, ["tensorbord"]) == 2
    assert "did you mean 'tensorboard'?" in capsys.readouterr().err
    assert train(tmp_path, ["wandb", "wandb"]) == 2
    assert "training.trackers: given ['wandb', 'wandb'], expected each name once" in capsys.readouterr().err
