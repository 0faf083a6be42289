"""What every task in `TASKS` guarantees, from its data to its predictions.

A new task is covered once it is registered; see tests/tiny_tasks.py."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from tiny_tasks import example_of, option_arguments, quick_arguments, quick_options, write_tiny_recipe
from workshop import heed, standard_input

import heedful
from heedful import inspection
from heedful.errors import ConfigError, DataError
from heedful.runs.build import check, data_of
from heedful.runs.config import read_run
from heedful.tasks import TASKS, find_command, find_task
from heedful.tasks.predictor import Predictor
from heedful.training import retention
from heedful.training.loop import Trainer

STEPS = 30
WHICH: tuple[Literal["predict", "evaluate"], ...] = ("predict", "evaluate")
DECLARED = [(task, which, name) for task in TASKS for which in WHICH for name in option_arguments(task, which)]
PLAIN: dict[tuple[str, str], tuple[int, str, set[str]]] = {}  # what a command of a task yields without an option


@pytest.fixture(scope="module", params=list(TASKS))
def task(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def run(task: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run, beside its data."""
    folder = tmp_path_factory.mktemp(task)
    changes = [f"training.{name}={STEPS}" for name in ("steps", "save_every", "validate_every")]
    changes.append('training.schedule={name="constant", learning_rate=1e-2, warmup=1}')
    assert heed("train", write_tiny_recipe(task, folder), *changes, "--run", folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    """In the precision that is the default of the command line."""
    return heedful.load(run, precision="fp32")


@pytest.fixture
def inputs(run: Path) -> list[str]:
    return (run.parent / "inputs.txt").read_text().splitlines()


def log_of(run: Path, kind: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["kind"] == kind]


def finite_numbers(value: Any) -> Iterator[bool]:
    """For every number inside a value, whether it is finite."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from finite_numbers(part)
    elif isinstance(value, int | float):
        yield math.isfinite(value)


def test_an_example_from_the_data_is_predicted(predictor: Predictor, task: str) -> None:
    """A task whose inputs are no texts offers examples; what is expected of a labeled one is a label of the task."""
    found = list(islice(predictor.example_inputs("valid"), 2))
    assert bool(found) != predictor.reads_text
    predicted = list(predictor.predictions([one.text for one in found], **quick_options(task)))
    assert len(predicted) == len(found)
    if "labels" in type(predictor.run.task).model_fields:
        assert all(one.expected is None or one.expected in predictor.run.task.labels for one in found)


def test_an_unusable_line_is_a_data_error_with_file_and_line(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_tiny_recipe(task, tmp_path)
    file = tmp_path / next(iter(example_of(task).files))
    config = read_run(recipe, ["data.max_unusable=0"]).config
    assert check(config, data_of(config), lambda line: None).corpora
    lines = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([*lines[:2], lines[2] + b" caf\xe9", *lines[3:]]) + b"\n")
    with pytest.raises(DataError, match=rf"{re.escape(str(file))} line 3: byte \d+ is not UTF-8"):
        check(config, data_of(config), lambda line: None)
    assert heed("train", recipe, "data.max_unusable=0", "--run", tmp_path / "run") == 3
    assert f"{file} line 3" in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_missing_file_is_a_data_error_with_its_name(task: str, tmp_path: Path) -> None:
    config = read_run(write_tiny_recipe(task, tmp_path)).config
    file = tmp_path / next(iter(example_of(task).files))
    assert file in data_of(config).files()
    file.unlink()
    with pytest.raises(DataError, match=re.escape(file.name)):
        data_of(config).check()


def test_a_run_is_trained_on_python_objects(task: str, tmp_path: Path) -> None:
    recipe, objects = write_tiny_recipe(task, tmp_path), example_of(task).objects
    data: dict[str, Any] = {"run": tmp_path / "run", "train": objects, "valid": objects}
    assert heedful.train(recipe, {"training.steps": 1}, **data).step == 1
    assert {file.parent for file in data_of(read_run(tmp_path / "run" / "config.toml").config).files()} >= {
        tmp_path / "run" / "data"
    }
    with pytest.raises(DataError, match=r"example 2 is 17; expected"):
        heedful.train(recipe, run=tmp_path / "other", train=[objects[0], 17], valid=objects)


def test_what_new_writes_is_trained_predicted_and_evaluated_from_another_folder(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, elsewhere = tmp_path / "my project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert heed("new", task, folder) == 0
    train, predict, evaluate = (shlex.split(command) for command in capsys.readouterr().out.splitlines())
    quick = [f"training.{name}=2" for name in ("steps", "save_every", "validate_every")]
    quick += [f"search.{name}={value}" for name, value in example_of(task).search.items()]
    assert heed(*train[1:], *quick, "training.minutes=0") == 0
    capsys.readouterr()
    if predict[0] == "echo":
        _, text, *pipe, run = predict
        assert pipe == ["|", "heed", "predict"]
        with standard_input(f"{text}\n".encode()):
            assert heed("predict", run, *quick_arguments(task)) == 0
    else:  # a long example is in a file
        assert heed(*predict[1:], *quick_arguments(task)) == 0
    assert capsys.readouterr().out.strip()
    assert heed(*evaluate[1:], *quick_arguments(task, "evaluate")) == 0
    assert capsys.readouterr().out.strip()
    assert [str(path.relative_to(elsewhere)) for path in elsewhere.glob("**/my project")] == ["runs/my project"]


def test_a_small_set_is_learned(run: Path) -> None:
    losses = [record["loss"] for record in log_of(run, "train")]
    assert len(losses) == STEPS
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])


def test_a_loaded_run_equals_the_trained_one(run: Path, predictor: Predictor) -> None:
    """The validation of the last step, by the model in memory, has the same bits as that of the model that was stored."""
    (valid,) = log_of(run, "valid")
    figures = heedful.load(run, "last").validate().figures
    assert figures == {name: valid[name] for name in figures}


def test_a_copied_run_has_the_same_outputs(run: Path, predictor: Predictor, inputs: list[str], tmp_path: Path) -> None:
    copied = heedful.load(shutil.copytree(run, tmp_path / "copy", symlinks=True), precision="fp32")
    assert all(map(torch.equal, copied.model.parameters(), predictor.model.parameters()))
    quick = quick_options(predictor.run.task.name)
    outputs = [[prediction.to_dict() for prediction in one.predictions(inputs, **quick)] for one in (predictor, copied)]
    assert outputs[0] == outputs[1] and len(outputs[0]) == len(inputs) > 1


def test_one_text_and_a_list_of_texts_have_the_same_prediction(predictor: Predictor, inputs: list[str]) -> None:
    quick = quick_options(predictor.run.task.name)
    for text in inputs:
        assert predictor.predict(text, **quick) == predictor.predict([text], **quick)[0]
    outputs = predictor.predict(inputs, **quick)
    assert outputs == [prediction.text for prediction in predictor.predictions(inputs, **quick)]
    assert len(outputs) == len(inputs) and predictor.predict([]) == []


def test_the_command_line_predicts_like_python(
    task: str, run: Path, predictor: Predictor, inputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    predictions = list(predictor.predictions(inputs, **quick_options(task)))
    capsys.readouterr()
    for command in ("predict", find_command(task).name):
        arguments: list[str | Path] = [command, run, run.parent / "inputs.txt", *quick_arguments(task)]
        assert heed(*arguments, "--json") == 0
        printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert printed == [json.loads(json.dumps(prediction.to_dict())) for prediction in predictions]
        assert heed(*arguments) == 0
        rows = "".join(f"{row}\n" for prediction in predictions for row in prediction.rows())
        assert capsys.readouterr().out == rows


def test_predict_reads_standard_input_where_no_file_is_given(task: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, quick = run.parent / "inputs.txt", quick_arguments(task)
    capsys.readouterr()
    assert heed("predict", run, file, *quick) == 0
    expected = capsys.readouterr().out
    with standard_input(file.read_bytes()):
        assert heed("predict", run, *quick) == 0
    assert capsys.readouterr().out == expected


def test_an_empty_input_has_no_output_and_is_an_error_unless_inputs_are_texts(
    run: Path, predictor: Predictor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, code = tmp_path / "empty.csv", 0 if predictor.reads_text else 3
    empty.touch()
    for name, given in ((empty, [empty]), ("the input", [])):
        capsys.readouterr()
        with standard_input(b""):
            assert heed("predict", run, *given) == code
        shown = capsys.readouterr()
        assert not shown.out and (f"{name} is empty; expected a" in shown.err) == (code > 0)


def test_the_path_of_a_file_in_place_of_its_content_is_an_error_but_not_on_a_server(
    run: Path, predictor: Predictor, inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if predictor.reads_text or predictor.input_names == ["image"]:
        return  # a text may be anything, and an image is a path
    path = tmp_path / "a.csv"
    path.touch()
    with pytest.raises(
        DataError, match=f"1 has only the path of a file, '.*'; expected the text of the {predictor.input_names[0]}"
    ):
        predictor.predict(str(path))
    monkeypatch.setattr(predictor, "reads_paths", False)
    with pytest.raises(DataError) as error:
        predictor.predict(str(path))
    assert "the path of a file" not in str(error.value)


def test_shards_have_the_bytes_of_one_bulk_run_and_the_samples_of_their_lines(
    task: str, run: Path, predictor: Predictor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments: list[str | Path] = ["predict", run, run.parent / "inputs.txt", *quick_arguments(task)]
    bulk: list[str | Path] = [*arguments, "--commit-every", "1", "--output"]
    assert heed(*bulk, tmp_path / "whole") == 0
    assert [heed(*bulk, tmp_path / "out", "--shard", f"{number}/3") for number in (2, 3, 1)] == [0, 0, 0]
    assert heed("join", tmp_path / "out") == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes() != b""
    if predictor.decodes:  # samples are keyed by (seed, line)
        capsys.readouterr()
        assert heed(*arguments) == 0
        assert (tmp_path / "out").read_text() == capsys.readouterr().out


def test_the_predictions_before_an_invalid_input_are_printed(
    task: str, run: Path, inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("heedful.data.input_lines.MAX_CHARACTERS", 300)
    valid, file = tmp_path / "valid.txt", tmp_path / "inputs.txt"
    valid.write_text("".join(f"{line}\n" for line in inputs[:2]))
    file.write_text(f"{valid.read_text()}{inputs[0]}{' x' * 150}\n{inputs[0]}\n")
    capsys.readouterr()
    assert heed("predict", run, valid, *quick_arguments(task)) == 0
    expected = capsys.readouterr().out
    assert heed("predict", run, file, *quick_arguments(task)) == 3
    output = capsys.readouterr()
    assert output.out == expected and expected
    assert "characters; expected at most 300" in output.err


def test_a_run_of_another_task_is_refused_by_a_natural_name(
    task: str, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    other = next(name for name in TASKS if name != task)
    capsys.readouterr()
    assert heed(find_command(task).name, tiny_runs[other], tiny_runs[other].parent / "inputs.txt") == 2
    message = capsys.readouterr().err
    assert f"is a run of task {other!r}, expected a run of task {task!r}" in message
    assert f"hint: use heed {find_command(other).name} or heed predict" in message
    with pytest.raises(ConfigError, match=f"is a run of task {other!r}, expected a run of task {task!r}"):
        find_task(task).predictor.load(tiny_runs[other])


def test_evaluation_prints_the_report(run: Path, predictor: Predictor, capsys: pytest.CaptureFixture[str]) -> None:
    task = predictor.run.task.name
    options, quick = find_command(task).evaluate(**quick_options(task, "evaluate")), quick_arguments(task, "evaluate")
    report = predictor.report(None, options, load=heedful.load, search=lambda one: one.search_config())
    capsys.readouterr()
    assert heed("evaluate", run, *quick, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    expected = json.loads(json.dumps(report.to_dict()))
    assert {name: printed[name] for name in expected} == expected
    assert printed["checkpoint"] == str(predictor.checkpoint)
    numbers = list(finite_numbers(printed))
    assert numbers and all(numbers)
    assert heed("evaluate", run, *quick) == 0
    assert capsys.readouterr().out == f"{report.text()}\n"
    for split in ("train", "valid"):
        assert heed("evaluate", run, *quick, "--split", split, "--json") == 0
        assert json.loads(capsys.readouterr().out)["split"] == split


def test_every_analysis_that_the_summary_lists_works(
    task: str, tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, text = tiny_runs[task], example_of(task).inputs[0]
    listed = [shlex.split(arguments) for arguments in inspection.summary(heedful.load(run)).analyses]
    assert ["cost", "RUN"] in listed
    for name, _, *rest in listed:
        inputs = [one for one in rest if one.endswith((".png", ".csv")) or one == "GRAPH" or one.startswith(("a ", "another "))]
        written = [one for one in rest if one.endswith((".html", ".svg"))]
        given = dict.fromkeys(inputs, text) | {one: str(tmp_path / one) for one in written}
        short = ("--rows", "1", "--tokens", "4") if name == "cost" else ()
        status = heed("inspect", name, run, *(given.get(one, one) for one in rest), *short)
        message = capsys.readouterr().err
        assert status == 0 or "is empty" in message, f"{name} {rest}: {message}"  # two steps of training may end in no word


def test_every_metric_has_a_direction_and_is_computed_by_validation(run: Path, predictor: Predictor) -> None:
    metrics = predictor.run.task.metrics
    assert predictor.validate().figures.keys() == metrics.keys()
    assert set(metrics.values()) <= {"lower", "higher"}
    for name in metrics:
        assert read_run(run / "config.toml", [f"training.metric={name}"]).config.training.metric == name


def output_of(arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, set[str]]:
    """Exit code, standard output, and the names of the files of the folder."""
    capsys.readouterr()
    code = heed(*arguments)
    return code, capsys.readouterr().out, {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(("owner", "which", "name"), DECLARED, ids=str)
def test_a_declared_option_is_honored_and_refused_by_other_tasks(
    owner: str,
    which: Literal["predict", "evaluate"],
    name: str,
    tiny_runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = tiny_runs[owner].parent
    write_tiny_recipe(owner, tmp_path)
    typed = [part.format(folder=tmp_path, run=runs / owner) for part in option_arguments(owner, which)[name]]
    plain = [which, str(runs / owner), "--json", *quick_arguments(owner, which)]
    files = [str(tmp_path / "inputs.txt")] if which == "predict" else []
    if (owner, which) not in PLAIN:
        PLAIN[owner, which] = output_of([*plain, *files], tmp_path, capsys)
    before = PLAIN[owner, which]
    after = output_of([*plain, *files, *typed], tmp_path, capsys)
    if after[0] == 2:  # an input of its own, or a single one, instead of a file
        with standard_input((tmp_path / "inputs.txt").read_bytes().splitlines(keepends=True)[0]):
            after = output_of([*plain, *typed], tmp_path, capsys)
    assert before[0] == after[0] == 0
    assert before[1:] != after[1:], f"{typed[0]} has no effect"
    others = [task for task in TASKS if name not in {field.name for field in fields(getattr(find_command(task), which))}]
    first = DECLARED.index((owner, which, name))  # three of them for each option, in turn
    for other in {others[(first + at) % len(others)] for at in range(min(3, len(others)))}:
        assert heed(which, runs / other, *typed) == 2
        message = capsys.readouterr().err
        assert typed[0] in message and f"is a run of task {other!r}" in message


class Killed(BaseException):
    """Ends training where it is raised."""


def test_a_killed_and_continued_run_equals_an_uninterrupted_one(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, update = write_tiny_recipe(task, tmp_path), Trainer.update

    def killed(trainer: Trainer, streamed: Any) -> Any:
        if trainer.train_state.step == 5:
            raise Killed
        return update(trainer, streamed)

    heedful.train(recipe, run=tmp_path / "whole")
    monkeypatch.setattr(Trainer, "update", killed)
    with pytest.raises(Killed):
        heedful.train(recipe, run=tmp_path / "killed")
    monkeypatch.undo()
    assert retention.resolve(tmp_path / "killed", "last").name == "step-4"
    heedful.train(recipe, run=tmp_path / "killed")
    for name in ("model.safetensors", "optimizer.safetensors"):
        whole, continued = (tmp_path / one / "checkpoints" / "step-6" / name for one in ("whole", "killed"))
        assert whole.read_bytes() == continued.read_bytes()


def test_the_model_card_lists_the_metrics_and_its_example_runs(run: Path, predictor: Predictor) -> None:
    card = (run / "README.md").read_text()
    assert f"A {predictor.run.model.family} for {predictor.run.task.name}: " in card
    for name in predictor.run.task.metrics:
        assert f"\n| {name} | " in card
    (example,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert str(run) in example
    exec(example, {})


def test_the_representation_of_a_predictor_names_class_family_run_and_checkpoint(run: Path, predictor: Predictor) -> None:
    parameters = sum(parameter.numel() for parameter in predictor.model.parameters())
    expected = f"{type(predictor).__name__}({predictor.run.model.family}, {parameters:,} parameters, {str(run)!r}, "
    assert repr(predictor) == f"{expected}{predictor.checkpoint.name}, {predictor.system.device})"
    assert type(predictor) is find_task(predictor.run.task.name).predictor
    assert type(predictor).load(run).checkpoint == predictor.checkpoint


def test_the_losses_of_training_examples_are_finite_and_fall(
    run: Path, predictor: Predictor, tiny_runs: dict[str, Path]
) -> None:
    def losses(one: Predictor) -> torch.Tensor:
        with torch.inference_mode():
            return torch.cat([loss() for loss in one.training_losses(10)])

    after, before = losses(predictor), losses(heedful.load(tiny_runs[predictor.run.task.name]))
    assert 0 < len(after) == len(before) <= 10
    assert bool(after.isfinite().all()) and float(after.mean()) < float(before.mean())
