"""Files and folders of a run that exist but cannot be read: exit code 4, one sentence, and nothing is written.

A folder of checkpoints that counted as empty would let training start again and orphan the checkpoints in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from workshop import heed, obeying_permissions, snapshot

import heedful
from heedful.errors import CheckpointError
from heedful.training import checkpoint, facts, readable, retention
from heedful.training.manifest import damaged


@pytest.fixture
def run(tiny_runs: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return shutil.copytree(tiny_runs["translation"], tmp_path / "run", symlinks=True)


def recipe_of(runs: dict[str, Path]) -> Path:
    return runs["translation"].parent / "translation.toml"


def changes(runs: dict[str, Path]) -> list[str]:
    """The overrides of the run, with two more steps."""
    return ["training.steps=4"]


def forbid(name: str) -> Callable[[Path], None]:
    return lambda run: (run / name).chmod(0)


def unmount(run: Path) -> None:
    """The checkpoints are on a disk that is not mounted."""
    (run / "checkpoints").rename(run.parent / "disk")
    (run / "checkpoints").symlink_to(run.parent / "mount")


def replace_by_file(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").write_text("")


# name -> change of the run folder, message
FAULTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "checkpoints without permissions": (forbid("checkpoints"), "{run}/checkpoints cannot be read: Permission denied"),
    "checkpoints that can be listed but not entered": (
        lambda run: (run / "checkpoints").chmod(0o444),
        "{run}/checkpoints cannot be read: Permission denied",
    ),
    "checkpoints on a disk that is not mounted": (
        unmount,
        "{run}/checkpoints is a symbolic link to {run.parent}/mount, which does not exist",
    ),
    "a file in place of checkpoints": (replace_by_file, "{run}/checkpoints is a file; expected a folder"),
    "run.json without permissions": (forbid("run.json"), "{run}/run.json cannot be read: Permission denied"),
    "config.toml without permissions": (forbid("config.toml"), "{run}/config.toml cannot be read: Permission denied"),
    "a tokenizer without permissions": (forbid("tokenizer.json"), "{run}/tokenizer.json cannot be read: Permission denied"),
}
COMMANDS: dict[str, Callable[[Path, dict[str, Path]], list[str | Path]]] = {
    "train the recipe": lambda run, runs: ["train", recipe_of(runs), *changes(runs), "--run", run],
    "train the run": lambda run, runs: ["train", run, "training.steps=4"],
    "translate": lambda run, runs: ["translate", run, runs["translation"].parent / "book.txt"],
    "evaluate": lambda run, runs: ["evaluate", run],
    "average": lambda run, runs: ["average", run, "--last", "1"],
    "prune": lambda run, runs: ["prune", run, "--out", run.parent / "pruned", "--keep", "encoder=1"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_read_is_one_sentence_and_nothing_is_written(
    fault: str, command: str, run: Path, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    damage, message = FAULTS[fault]
    damage(run)
    before = snapshot(run)
    with obeying_permissions():
        code = heed(*COMMANDS[command](run, tiny_runs))
    shown = capsys.readouterr().err
    assert (code, shown.splitlines()[-3]) == (4, f"error: {message.format(run=run)}")
    assert snapshot(run) == before
    assert not (run.parent / "pruned").exists()


def test_after_the_folder_is_readable_again_the_run_continues(
    run: Path, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    command: list[str | Path] = ["train", recipe_of(tiny_runs), *changes(tiny_runs), "--run", run]
    (run / "checkpoints").chmod(0)
    with obeying_permissions():
        assert heed(*command) == 4
    (run / "checkpoints").chmod(0o755)
    assert heed(*command) == 0
    assert "continuing from step 2" in capsys.readouterr().err
    assert [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()][:2] == [1, 2]


def test_loading_from_python_raises_a_checkpoint_error(run: Path) -> None:
    (run / "checkpoints").chmod(0)
    with obeying_permissions(), pytest.raises(CheckpointError, match="checkpoints cannot be read: Permission denied"):
        heedful.load(run)


def test_pruning_into_a_run_whose_checkpoints_cannot_be_read_is_refused(run: Path, tiny_runs: dict[str, Path]) -> None:
    (run / "checkpoints").chmod(0)
    with obeying_permissions():
        assert heed("prune", tiny_runs["translation"], "--out", run, "--keep", "encoder=1") == 4


def test_a_checkpoint_file_without_permissions_has_a_reason_and_a_hint(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "checkpoints" / "step-2" / "model.safetensors").chmod(0)
    with obeying_permissions():
        assert heed("translate", run, "/dev/null") == 4
    assert capsys.readouterr().err.splitlines()[-3:] == [
        f"error: checkpoint {run}/checkpoints/step-2: model.safetensors cannot be read: Permission denied",
        "",
        f"hint: {damaged(run, '').hint}",
    ]


def test_a_checkpoint_that_is_a_broken_link_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "step-4").symlink_to(tmp_path / "elsewhere")
    assert retention.steps(tmp_path) == [tmp_path / "step-4"]
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used"):
        retention.newest(tmp_path)


def test_only_a_missing_folder_is_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert readable.list_folder(tmp_path / "missing") == []
    assert readable.list_folder(tmp_path) == [tmp_path / "file"]
    with pytest.raises(CheckpointError, match="is a file; expected a folder"):
        readable.list_folder(tmp_path / "file")


def test_a_failed_write_to_a_folder_that_cannot_be_listed_does_not_deny_its_checkpoints(run: Path) -> None:
    checkpoints = run / "checkpoints"
    tensors, state = checkpoint.load(checkpoints / "step-2")
    checkpoints.chmod(0)
    with obeying_permissions(), pytest.raises(CheckpointError) as caught:
        checkpoint.save(checkpoints, 3, tensors, state)
    assert str(caught.value.args[0]).endswith("Permission denied; its other checkpoints cannot be listed")


def test_no_hint_advises_to_delete_a_checkpoint(run: Path) -> None:
    known = facts.read_facts(run)
    facts.write_facts(run, known | {"data": {}, "fingerprint": None})
    with pytest.raises(CheckpointError, match="belongs to another run") as caught:
        checkpoint.verify(run / "checkpoints" / "step-2")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("keep it: move it to the folder of its own run")


# name -> path below the run folder, message, hint
NOT_RUNS = {
    "a checkpoint": (
        "checkpoints/step-2",
        "{path} is a checkpoint of the run {run}; expected the run folder",
        "give the run folder; --checkpoint step-2 selects the checkpoint",
    ),
    "the best checkpoint": (
        "checkpoints/best",
        "{path} is a checkpoint of the run {run}; expected the run folder",
        "give the run folder; --checkpoint step-2 selects the checkpoint",
    ),
    "its checkpoints": ("checkpoints", "{path} has the checkpoints of the run {run}; expected the run folder", "give {run}"),
    "its parent": ("..", "{path} is not a run folder: run.json is missing", None),
}


@pytest.mark.parametrize("command", [["translate"], ["average", "--last", "1"]], ids=lambda words: words[0])
@pytest.mark.parametrize("case", NOT_RUNS)
def test_a_folder_that_is_not_a_run(case: str, command: list[str], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    below, message, hint = NOT_RUNS[case]
    assert heed(command[0], run / below, *command[1:]) == 4
    expected = f"error: {message}\n" + (f"\nhint: {hint}\n" if hint else "")
    assert capsys.readouterr().err == expected.format(run=run, path=run / below)


def test_the_root_folder_is_not_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert heed("translate", "/") == 4
    assert capsys.readouterr().err == "error: / is not a run folder: run.json is missing\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--last", "0"], "--last: given '0', expected at least 1\n"),
        ([], "expected --last N or --steps A,B,C"),
        (["--last", "1", "--steps", "2"], "given both --last and --steps, expected one of them"),
    ],
)
def test_average_refuses_the_value_that_is_wrong(
    options: list[str], message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("average", run, *options) == 2
    assert f"error: {message}" in capsys.readouterr().err
