"""Every analysis of every task that supports it: the command prints and writes what the Python call returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tiny_tasks import data_uri, example_of, write_tiny_recipe
from workshop import heed

import heedful
from heedful import inspection
from heedful.cli.output import replace_non_finite
from heedful.inspection.result import Result

TEXTS = {"translation": "w1 w2 w3", "language": "the cat sees a dog", "classification": "a dog sees"}
TEXTS |= {"masked": "the [MASK] sees a [MASK]", "tagging": "the cat sees", "encoder": "a dog sees"}
OTHERS = {"translation": "w1 w9 w3", "classification": "the cat runs", "encoder": "the cat runs"}
OTHERS |= {"masked": "a [MASK] runs a [MASK]", "tagging": "a dog runs"}
PICTURE, OTHER_PICTURE = data_uri(230, 90), data_uri(20, 90)
TEXTS |= {"captioning": PICTURE, "image_classification": PICTURE, "image_mean": PICTURE}
OTHERS |= {"captioning": OTHER_PICTURE, "image_classification": OTHER_PICTURE, "image_mean": OTHER_PICTURE}
TEXTS |= {"several": "a dog sees", "numeric": "1\t2\n-3\t0.5\n0\t1"}
OTHERS |= {"several": "the cat runs", "numeric": "2\t2\n-1\t0\n1\t1"}
NODES = "node_classification"
TEXTS |= {NODES: '{"nodes": [{"node": "a", "x": 1, "y": 0}, {"node": "b", "x": 0, "y": 1}], "edges": [["a", "b"]]}'}
OTHERS |= {NODES: '{"nodes": [{"node": "a", "x": 0, "y": 2}, {"node": "b", "x": 1, "y": 1}], "edges": [["a", "b"]]}'}
SERIES = "series_classification"
TEXTS |= {SERIES: '{"x": [0, 1, 2], "y": [0, 1, 2]}'}
OTHERS |= {SERIES: '{"x": [0, 0, 0], "y": [0, 1, 2]}'}
TRANSLATION, LANGUAGE, CLASSIFICATION = "translation", "language", "classification"
# encoder: classification with attention pooling; several: any number of labels; numeric: tagging of numbers; image_mean: an
# image classifier without [CLS]
IMAGE_CLASSIFIERS = ("image_classification", "image_mean")
IMAGES = ("captioning", *IMAGE_CLASSIFIERS)
ENCODERS = ("masked", "tagging", "encoder", "several", "numeric", NODES, SERIES)
FORECASTING = "forecasting"
TEXTS |= {FORECASTING: example_of(FORECASTING).inputs[0]}
ALL = (TRANSLATION, LANGUAGE, CLASSIFICATION, *ENCODERS, *IMAGES)
WITH_NUMBERS = (*ALL, FORECASTING)  # whose outputs have no probabilities


class Analysis(NamedTuple):
    """Arguments of `heed inspect NAME RUN …` and the Python call; {text} and {other} are texts of the task."""

    name: str
    options: tuple[str, ...]
    call: Callable[..., Result]  # of a predictor, a text and another text
    tasks: tuple[str, ...] = ALL
    picture: bool = True


ANALYSES = [
    Analysis("summary", (), lambda one, text, other: inspection.summary(one), WITH_NUMBERS, picture=False),
    Analysis("attention", ("{text}",), lambda one, text, other: inspection.attention(one, text), WITH_NUMBERS),
    Analysis(
        "attention",
        ("{text}", "--target", "w3 w4", "--kind", "cross", "--layer", "1", "--head", "1", "--by", "norms"),
        lambda one, text, other: inspection.attention(one, text, "w3 w4", kind="cross", layer=1, head=1, by="norms"),
        (TRANSLATION,),
    ),
    Analysis(
        "attention",
        ("{text}", "--kind", "within", "--by", "rollout"),
        lambda one, text, other: inspection.attention(one, text, kind="within", by="rollout"),
        (LANGUAGE, CLASSIFICATION),
    ),
    Analysis(
        "attention",
        ("{text}", "--kind", "self", "--by", "rollout"),
        lambda one, text, other: inspection.attention(one, text, kind="self", by="rollout"),
        (*ENCODERS, *IMAGE_CLASSIFIERS, FORECASTING),
    ),
    Analysis("lens", ("{text}",), lambda one, text, other: inspection.lens(one, text)),
    Analysis(
        "lens",
        ("{text}", "-s", "beam=2"),
        lambda one, text, other: inspection.lens(one, text, config=one.search_config(["beam=2"])),
        (TRANSLATION,),
    ),
    Analysis("alternatives", ("{text}",), lambda one, text, other: inspection.alternatives(one, text), picture=False),
    Analysis(
        "alternatives",
        ("{text}", "--target", "w3 w4", "--position", "1", "--instead", "w7"),
        lambda one, text, other: inspection.alternatives(one, text, 1, target="w3 w4", instead="w7"),
        (TRANSLATION,),
        picture=False,
    ),
    Analysis(
        "ablate",
        ("{text}", "--head", "cross.0.1", "--head", "encoder.1.0"),
        lambda one, text, other: inspection.ablate(one, text, ["cross.0.1", "encoder.1.0"]),
        (TRANSLATION,),
        picture=False,
    ),
    Analysis(
        "ablate",
        ("{text}", "--head", "within.0.1"),
        lambda one, text, other: inspection.ablate(one, text, "within.0.1"),
        (LANGUAGE, CLASSIFICATION),
        picture=False,
    ),
    Analysis(
        "ablate",
        ("{text}", "--head", "self.0.1"),
        lambda one, text, other: inspection.ablate(one, text, "self.0.1"),
        (*ENCODERS, *IMAGE_CLASSIFIERS),
        picture=False,
    ),
    Analysis(
        "patch",
        ("{text}", "--from", "{other}"),
        lambda one, text, other: inspection.patch(one, text, other),
        (TRANSLATION, CLASSIFICATION, *ENCODERS, *IMAGES),
    ),
    Analysis("saliency", ("{text}",), lambda one, text, other: inspection.saliency(one, text), WITH_NUMBERS),
    Analysis(
        "saliency", ("{text}", "--steps", "4"), lambda one, text, other: inspection.saliency(one, text, steps=4), WITH_NUMBERS
    ),
    Analysis(
        "saliency",
        ("{text}", "--target", "wind"),
        lambda one, text, other: inspection.saliency(one, text, "wind"),
        (FORECASTING,),
    ),
    Analysis("document", ("{text}",), lambda one, text, other: inspection.document(one, text), ("encoder", "several")),
    Analysis("image", ("{text}",), lambda one, text, other: inspection.image(one, text), IMAGES),
    Analysis(
        "image",
        ("{text}", "--layer", "0", "--head", "1"),
        lambda one, text, other: inspection.image(one, text, layer=0, head=1),
        IMAGES,
    ),
    Analysis(
        "image",
        ("{text}", "--target", "a red one"),
        lambda one, text, other: inspection.image(one, text, "a red one"),
        ("captioning",),
    ),
    Analysis("graph", ("{text}",), lambda one, text, other: inspection.graph(one, text), (NODES,)),
    Analysis(
        "graph",
        ("{text}", "--layer", "0", "--head", "1"),
        lambda one, text, other: inspection.graph(one, text, layer=0, head=1),
        (NODES,),
    ),
    Analysis("report", ("{text}",), lambda one, text, other: inspection.report(one, text), WITH_NUMBERS, picture=False),
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
    folder = tmp_path_factory.mktemp("image_mean")
    recipe = write_tiny_recipe("image_classification", folder)
    assert heed("train", recipe, "model.pooling=mean", "training.steps=2", "--run", folder / "run") == 0
    named = {"encoder": tiny_encoder, "several": tiny_several, "numeric": tiny_numeric, "image_mean": folder / "run"}
    return tiny_runs | named


@pytest.fixture(scope="module")
def predictors(runs: dict[str, Path]) -> dict[str, heedful.Predictor]:
    return {task: heedful.load(run) for task, run in runs.items()}


@pytest.mark.parametrize(("analysis", "task"), CASES, ids=[f"{one.name} {' '.join(one.options)}-{task}" for one, task in CASES])
def test_the_command_prints_and_writes_what_the_python_call_returns(
    analysis: Analysis,
    task: str,
    runs: dict[str, Path],
    predictors: dict[str, heedful.Predictor],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text, other = TEXTS[task], OTHERS.get(task, "")
    result = analysis.call(predictors[task], text, other)
    given = [one.format(text=text, other=other) for one in analysis.options]
    arguments: list[str | Path] = [analysis.name, runs[task], *given]
    files: list[str | Path] = ["--html", tmp_path / "page.html"]
    if analysis.picture:
        files += ["--picture", tmp_path / "picture.svg"]
    capsys.readouterr()
    assert heed("inspect", *arguments, *files, "--json") == 0
    assert json.loads(capsys.readouterr().out) == plain(result.to_dict())
    assert (tmp_path / "page.html").read_text() == result.html()
    if analysis.picture:
        assert (tmp_path / "picture.svg").read_text() == result.svg()
    else:
        with pytest.raises(heedful.HeedfulError, match="has no figure"):
            result.svg()
    assert heed("inspect", *arguments) == 0
    assert capsys.readouterr().out == f"{result.text()}\n"
    assert result.title in result._repr_html_()


def plain(value: dict[str, Any]) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(replace_non_finite(value)))


def test_the_table_has_every_analysis() -> None:
    functions = {name for name in inspection.__all__ if name[0].islower()}
    assert functions - {"explain"} <= {one.name for one in ANALYSES} | {
        "alignment",
        "cost",
        "experts",
        "forecast",  # heed forecast --picture
        "heads",
        "positions",
        "pruning_curve",
        "returns",
    }


@pytest.mark.parametrize("task", ALL)
def test_heed_explain_prints_and_writes_the_explanation(
    task: str,
    runs: dict[str, Path],
    predictors: dict[str, heedful.Predictor],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    abouts = ("head", "step", "tree", "batch") if task == TRANSLATION else ("head", "step")
    for about in abouts:
        result = inspection.explain(predictors[task], TEXTS[task], about=about)  # type: ignore[arg-type]
        checks = [check for stage in result.stages for check in stage.checks]
        assert all(check.holds for check in checks) and (checks or about == "batch")
        arguments: list[str | Path] = [runs[task], TEXTS[task], *([] if about == "head" else [f"--{about}"])]
        capsys.readouterr()
        assert heed("explain", *arguments, "--json", "--html", tmp_path / "page.html") == 0
        assert json.loads(capsys.readouterr().out) == plain(result.to_dict())
        assert (tmp_path / "page.html").read_text() == result.html()
        assert heed("explain", *arguments) == 0
        assert capsys.readouterr().out == f"{result.text()}\n"


@pytest.mark.parametrize("topic", ["attention", "search"])
def test_a_topic_is_explained_alike(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert heed("explain", topic, "--json") == 0
    assert json.loads(capsys.readouterr().out) == plain(inspection.explain(topic).to_dict())


REFUSED = [
    (LANGUAGE, ("lens", "{text}", "--target", "a dog"), "a target has no effect for a language model"),
    (LANGUAGE, ("attention", "{text}", "-s", "top_k=3"), "search options have no effect"),
    (LANGUAGE, ("patch", "{text}", "--from", "a dog"), "predicts its own text"),
    (LANGUAGE, ("alternatives", "{text}", "--instead", "dog"), "instead: given 'dog', which has no effect in a run of task"),
    (CLASSIFICATION, ("saliency", "{text}", "--target", "maybe"), "unknown label 'maybe'; expected one of: no, yes"),
    (CLASSIFICATION, ("lens", "{text}", "-s", "beam=3"), "search options have no effect on a classifier"),
    (CLASSIFICATION, ("alternatives", "{text}", "--instead", "dog"), "a classifier decodes no text"),
    (TRANSLATION, ("lens", "{text}", "--target", "w1", "-s", "beam=3"), "search options have no effect with a given target"),
    ("masked", ("patch", "{text}", "--from", "a [MASK]"), "given a text with 1 masks, expected 2"),
    ("tagging", ("lens", "{text}", "--target", "D N"), "given 2 labels, expected one for each of 3 words"),
    ("tagging", ("document", "{text}"), "pools its states without attention"),
    ("numeric", ("document", "{text}"), "pools its states without attention"),
    ("numeric", ("lens", "1\t2\n3"), "text 1 line 2 has 1 numbers; expected 2, as in the training data"),
    ("several", ("saliency", "{text}", "--target", "red|blue"), "unknown label 'blue'; expected one of: red, round, flat"),
    (SERIES, ("saliency", "{text}", "--target", "maybe"), "unknown label 'maybe'; expected one of: no, yes"),
    (SERIES, ("attention", "{text}", "-s", "beam=3"), "search options have no effect on a classifier"),
    (FORECASTING, ("lens", "{text}"), "the outputs of this run are numbers without probabilities"),
    (FORECASTING, ("alternatives", "{text}"), "the outputs of this run are numbers without probabilities"),
    (FORECASTING, ("ablate", "{text}", "--head", "self.0.1"), "the outputs of this run are numbers without probabilities"),
    (FORECASTING, ("patch", "{text}", "--from", "{text}"), "a run of task 'forecasting' does not support this analysis"),
    (FORECASTING, ("saliency", "{text}", "--target", "lode"), "unknown variable 'lode'; expected one of: load, wind"),
    (FORECASTING, ("attention", "{text}", "-s", "beam=3"), "search options have no effect on a forecaster"),
    (TRANSLATION, ("lens", " "), "given an empty text, expected at least one word"),
    (TRANSLATION, ("lens", "{text}", "--target", " "), "given an empty target, expected at least one word"),
    (TRANSLATION, ("report", "{text}", "--include", "lense"), "unknown analysis in a report 'lense'"),
    (TRANSLATION, ("report", "--include", "lens"), "a text is missing; expected one for: lens"),
    (TRANSLATION, ("report", "{text}", "--include", "summary"), "a text has no effect on: summary"),
]


@pytest.mark.parametrize(("task", "arguments", "message"), REFUSED, ids=[" ".join(one[1]) for one in REFUSED])
def test_what_a_task_does_not_have_is_an_error(
    task: str, arguments: tuple[str, ...], message: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    name, *rest = (one.format(text=TEXTS[task]) for one in arguments)
    capsys.readouterr()
    assert heed("inspect", name, runs[task], *rest) == 2
    output = capsys.readouterr()
    assert output.out == "" and message in output.err


@pytest.mark.parametrize(
    ("about", "task", "message"),
    [
        ("tree", "tagging", "is explained for models that generate text; given a run of task 'tagging'"),
        ("batch", LANGUAGE, "is explained for translation only; given a run of task 'language'"),
    ],
)
def test_what_is_not_searched_for_has_no_tree_and_no_batch(
    about: str, task: str, message: str, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed("explain", tiny_runs[task], "the cat sees", f"--{about}") == 2
    assert message in capsys.readouterr().err
