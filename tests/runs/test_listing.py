"""A list of runs says what loading them would, without torch, and names the reason for each run that is damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import Speaker
from workshop import heed, write_recipe

from heedful.errors import CheckpointError, ConfigError
from heedful.runs.listing import BUFFERS, compare_runs, list_runs, summarize_run
from heedful.runs.load import load
from heedful.tasks import TASKS
from heedful.training.loop import read_outcome


@pytest.mark.parametrize("task", TASKS)
def test_a_summary_agrees_with_the_loaded_run(tiny_runs: dict[str, Path], task: str) -> None:
    summary = summarize_run(tiny_runs[task])
    predictor, outcome = load(tiny_runs[task]), read_outcome(tiny_runs[task], already_done=True)
    assert (summary.task, summary.family) == (task, predictor.run.model.family)
    assert summary.parameters == sum(parameter.numel() for parameter in predictor.model.parameters())
    assert (summary.step, summary.steps, summary.seconds) == (outcome.step, predictor.run.training.steps, outcome.seconds)
    assert summary.metrics == outcome.metrics and summary.value == outcome.metrics[summary.metric]
    files = [path for path in tiny_runs[task].rglob("*") if path.is_file() and not path.is_symlink()]
    inside = {path.resolve(): path.stat().st_size for path in files}
    assert summary.size == sum(inside.values()) > 0


def test_a_checkpoint_has_no_tensors_besides_parameters_and_known_buffers(model: Speaker) -> None:
    """The number of parameters is read from the header of model.safetensors."""
    kept = {name for name in model.state_dict() if name.rpartition(".")[2] not in BUFFERS}
    assert kept == {name for name, _ in model.named_parameters(remove_duplicate=False)}


def test_runs_are_found_at_any_depth_and_through_links_and_listed_newest_first(
    tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    for name, source in (("sweep/a", "translation"), ("sweep/b", "language")):
        shutil.copytree(tiny_runs[source], tmp_path / "runs" / name, symlinks=True)
    (tmp_path / "runs" / "elsewhere").symlink_to(tiny_runs["classification"])
    (tmp_path / "runs" / "sweep" / "loop").symlink_to(tmp_path / "runs")
    (tmp_path / "runs" / "notes").mkdir()
    listed = list_runs(tmp_path / "runs")
    assert {run.folder.relative_to(tmp_path / "runs").as_posix() for run in listed.runs} == {"sweep/a", "sweep/b", "elsewhere"}
    dates = [run.date for run in listed.runs]
    assert dates == sorted(dates, reverse=True) and listed.damaged == ()


def test_a_run_folder_lists_itself(tiny_runs: dict[str, Path]) -> None:
    assert [run.folder for run in list_runs(tiny_runs["language"]).runs] == [tiny_runs["language"]]


def test_a_run_without_a_checkpoint_has_no_results(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    run = shutil.copytree(tiny_runs["translation"], tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    summary = summarize_run(Path(run))
    assert (summary.step, summary.parameters, summary.value, summary.metrics) == (0, None, None, {})


def flip_last_byte(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "run.json missing": (lambda run: (run / "run.json").unlink(), "run.json is missing"),
    "run.json not JSON": (lambda run: (run / "run.json").write_text("{"), "run.json is damaged"),
    "config.toml edited": (lambda run: flip_last_byte(run / "config.toml"), "config.toml differs from the one"),
    "config.toml missing": (lambda run: (run / "config.toml").unlink(), "config.toml is missing"),
    "manifest missing": (lambda run: (run / "checkpoints/best/MANIFEST.json").unlink(), "MANIFEST.json is missing"),
    "state damaged": (lambda run: flip_last_byte(run / "checkpoints/best/state.json"), "state.json is damaged"),
    "weights empty": (lambda run: (run / "checkpoints/best/model.safetensors").write_bytes(b""), "model.safetensors"),
    "weights missing": (lambda run: (run / "checkpoints/best/model.safetensors").unlink(), "model.safetensors"),
    "metrics unreadable": (lambda run: replace_by_folder(run / "metrics.jsonl"), "metrics.jsonl cannot be read"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_listed_with_the_reason_beside_the_others(
    tiny_runs: dict[str, Path], tmp_path: Path, damage: str
) -> None:
    for name in ("bad", "good"):
        shutil.copytree(tiny_runs["translation"], tmp_path / name, symlinks=True)
    act, reason = DAMAGES[damage]
    act(tmp_path / "bad")
    listed = list_runs(tmp_path)
    assert [run.folder.name for run in listed.runs] == ["good"]
    (damaged,) = listed.damaged
    assert damaged.folder == tmp_path / "bad" and reason in damaged.reason and damaged.size > 0
    with pytest.raises(CheckpointError):
        compare_runs(tmp_path / "good", tmp_path / "bad")


def test_an_earlier_format_without_checksums_is_listed_unless_its_config_has_no_task(
    tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(tiny_runs["translation"], tmp_path / "run", symlinks=True))
    (run / "run.json").write_text('{"format": 1}')
    assert summarize_run(run).task == "translation"
    (run / "config.toml").write_text('[task]\nname = 3\n[model]\nfamily = "gpt"\n')
    assert "config.toml is damaged: task.name" in list_runs(run).damaged[0].reason
    (run / "metrics.jsonl").write_text('{"step": 1, "time": 1e300}\n{"time": "now"}\n[]\n')
    (run / "config.toml").write_text((tiny_runs["translation"] / "config.toml").read_text())
    assert summarize_run(run).date.timestamp() == pytest.approx((run / "run.json").stat().st_mtime)


def test_a_comparison_has_the_options_that_differ_and_the_metrics_of_both(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    assert heed("train", recipe, "--run", tmp_path / "a") == 0
    changes = ("seed=2", "model.norm=post", "training.steps=3", "model.position=learned")
    assert heed("train", recipe, *changes, "--run", tmp_path / "b") == 0
    found = compare_runs(tmp_path / "a", tmp_path / "b")
    differing = {one.name: (one.first, one.second) for one in found.options}
    expected = {"seed": (1, 2), "model.norm": ("pre", "post"), "training.steps": (6, 3)}
    assert differing == expected | {"model.position": ("sinusoidal", "learned"), "model.max_positions": (None, 1024)}
    first, second = (read_outcome(tmp_path / name, already_done=True).metrics for name in "ab")
    assert {one.name: (one.first, one.second) for one in found.metrics} == {n: (first[n], second[n]) for n in first}


def test_a_run_does_not_differ_from_itself(tiny_runs: dict[str, Path]) -> None:
    found = compare_runs(tiny_runs["language"], tiny_runs["language"])
    assert found.options == () and found.first == found.second and all(one.first == one.second for one in found.metrics)


def test_metrics_of_different_tasks_are_all_listed(tiny_runs: dict[str, Path]) -> None:
    found = compare_runs(tiny_runs["translation"], tiny_runs["classification"])
    names = {one.name: (one.first is None, one.second is None) for one in found.metrics}
    assert names["bleu"] == (False, True) and names["accuracy"] == (True, False) and names["loss"] == (False, False)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        list_runs(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="does not exist"):
        compare_runs(tmp_path / "nothing", tmp_path)


def test_results_are_plain_json(tiny_runs: dict[str, Path]) -> None:
    listed = list_runs(tiny_runs["translation"].parent)
    assert len(listed.runs) == len(tiny_runs) + 1 and json.loads(json.dumps(listed.to_dict())) == listed.to_dict()
    found = compare_runs(tiny_runs["translation"], tiny_runs["language"])
    assert json.loads(json.dumps(found.to_dict()))["options"]


def test_torch_is_not_imported(tiny_runs: dict[str, Path]) -> None:
    code = (
        "import sys; from heedful.runs.listing import compare_runs, list_runs\n"
        "found = list_runs(sys.argv[1]); compare_runs(found.runs[0].folder, found.runs[1].folder)\n"
        "print(len(found.runs), 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tiny_runs["translation"].parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=os.environ)
    assert done.stdout.split() == [str(len(tiny_runs) + 1), "False"]
