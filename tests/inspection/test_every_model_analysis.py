"""Every analysis of a model on every task that has it: the command line presents what the Python call returns."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from workshop import heed, write_recipe

import heedful
from heedful import inspection
from heedful.cli.output import replace_non_finite
from heedful.inspection.measures import hardware_limits
from heedful.inspection.result import Result

# encoder: classification with attention pooling; several: any number of labels; numeric: tagging of numbers
ENCODERS = ("masked", "tagging", "encoder", "several", "numeric", "series_classification")
ALL = ("translation", "language", "classification", *ENCODERS)


class Analysis(NamedTuple):
    name: str  # of the command
    tasks: tuple[str, ...]
    arguments: tuple[str, ...]  # of the command, after the run
    call: Callable[[Any], Result]


ANALYSES = [
    Analysis("alignment", ("translation",), (), lambda predictor: inspection.alignment(predictor)),
    Analysis("cost", ALL, ("--rows", "2", "--tokens", "4"), lambda predictor: inspection.cost(predictor, 2, 4)),
    Analysis("experts", ("experts",), ("--sentences", "5"), lambda predictor: inspection.experts(predictor, 5)),
    Analysis("heads", ALL, ("--sentences", "6"), lambda predictor: inspection.heads(predictor, sentences=6)),
    Analysis("positions", ("translation",), ("--sentences", "6"), lambda predictor: inspection.positions(predictor, 6)),
    Analysis("positions", ("language", "classification", *ENCODERS), (), lambda predictor: inspection.positions(predictor)),
    Analysis(
        "returns",
        ("decisions",),
        ("--desired", "2", "--desired", "5", "--episodes", "4", "--greedy"),
        lambda predictor: inspection.returns(predictor, [2, 5], 4, greedy=True),
    ),
    Analysis("pruning", ALL, ("--sentences", "8"), lambda predictor: inspection.pruning_curve(predictor, sentences=8)),
]
CASES = [(one, task) for one in ANALYSES for task in one.tasks]


@pytest.fixture(scope="module")
def runs(
    tiny_runs: dict[str, Path],
    tiny_encoder: Path,
    tiny_several: Path,
    tiny_numeric: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("analyses")
    assert heed("train", write_recipe(folder), "model.experts=4", "training.steps=2", "--run", folder / "run") == 0
    encoders = {"encoder": tiny_encoder, "several": tiny_several, "numeric": tiny_numeric}
    return tiny_runs | {"experts": folder / "run"} | encoders


@pytest.fixture(autouse=True)
def _same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured speed of a machine differs from call to call."""
    monkeypatch.setattr(hardware_limits, "measure", lambda device: hardware_limits.Limits(2e9, 1e9))


def output_of(*arguments: str | Path) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        assert heed("inspect", *arguments) == 0
    return out.getvalue()


@pytest.mark.parametrize(("analysis", "task"), CASES, ids=[f"{one.name} {task}" for one, task in CASES])
def test_the_command_presents_the_result_of_the_call(
    analysis: Analysis, task: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    result = analysis.call(heedful.load(runs[task]))
    command: list[str | Path] = [analysis.name, runs[task], *analysis.arguments]
    picture, page = tmp_path / "picture.svg", tmp_path / "page.html"
    printed = output_of(*command, "--json", "--picture", picture, "--html", page)
    assert json.loads(printed) == json.loads(json.dumps(replace_non_finite(result.to_dict())))
    assert output_of(*command) == f"{result.text()}\n"
    assert picture.read_text() == result.svg() and page.read_text() == result.html()
    content, _ = result.html().split('<script type="module">')  # the script of the page has titles, too
    assert content.count(f"<h2>{result.title}</h2>") == 1
    assert result._repr_html_().startswith("<iframe")


@pytest.mark.parametrize("analysis", ANALYSES, ids=[one.name for one in ANALYSES])
def test_an_analysis_is_refused_in_one_message_where_a_task_or_model_has_none(
    analysis: Analysis, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    served = {task for one in ANALYSES if one.name == analysis.name for task in one.tasks}
    refused = [task for task in ALL if task not in served]
    for task in refused:
        capsys.readouterr()
        assert heed("inspect", analysis.name, runs[task]) == 2
        message = capsys.readouterr().err
        assert message.startswith("error: ") and "Traceback" not in message
