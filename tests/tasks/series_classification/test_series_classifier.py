"""Classification of series: any length, any start position, and one sentence for what is no series."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_tasks import MOTIONS, write_tiny_recipe
from workshop import heed

import heedful
from heedful import inspection
from heedful.data.gaits import COLUMNS, GAITS, LENGTHS, draw_gait, make_gaits
from heedful.errors import ConfigError, DataError
from heedful.models.encoder import Encoder, EncoderConfig
from heedful.runs.config import read_run
from heedful.tasks.series_classification.config import SeriesClassificationConfig
from heedful.tasks.series_classification.data import EncodedSeries, LabeledSeriesData, format_examples
from heedful.tasks.series_classification.model import SeriesModel


def make_model(**options: Any) -> SeriesModel:
    given = {"name": "series_classification", "labels": ["a", "b", "c"], "variables": ["x", "y"]} | options
    config = SeriesClassificationConfig.model_validate(given)
    torch.manual_seed(0)
    layers: Any = {"dim": 8, "layers": ("convolution", "self-attention"), "heads": 2, "features": 2}
    model = SeriesModel(Encoder(EncoderConfig(**layers), 1), 8, 3, config).eval()
    torch.nn.init.normal_(model.head.weight)
    return model


@pytest.mark.parametrize(("normalization", "invariant"), [("none", False), ("first", True), ("mean", True)])
def test_the_start_position_changes_nothing_where_it_is_subtracted(normalization: str, invariant: bool) -> None:
    model, series = make_model(normalization=normalization), torch.randn(4, 9, 2)
    mask = torch.ones(4, 9, dtype=torch.bool)
    moved = series + torch.tensor([100.0, -30.0])
    assert torch.allclose(model(series, mask), model(moved, mask), atol=1e-3) == invariant


@pytest.mark.parametrize("pooling", ["mean", "max", "last", "attention"])
@pytest.mark.parametrize("normalization", ["none", "first", "mean"])
def test_padding_changes_nothing_and_lengths_may_differ(pooling: str, normalization: str) -> None:
    model = make_model(pooling=pooling, normalization=normalization)
    frames = [torch.randn(length, 2) for length in (1, 4, 11)]
    batch = EncodedSeries(frames, np.zeros(3, np.int64)).batch([0, 1, 2])
    together = model(batch.vectors, batch.mask)
    alone = [model(one[None], torch.ones(1, len(one), dtype=torch.bool))[0] for one in frames]
    assert torch.allclose(together, torch.stack(alone), atol=1e-5)


def test_gaits_are_the_same_every_time_and_differ_between_splits() -> None:
    train, again, test = make_gaits(0, 20), make_gaits(0, 20), make_gaits(2, 20)
    assert [label for label, _ in train] == list(GAITS) * 4
    assert all(np.array_equal(one, other) for (_, one), (_, other) in zip(train, again, strict=True))
    assert not any(np.array_equal(one[:10], other[:10]) for (_, one), (_, other) in zip(train, test, strict=True))
    assert all(LENGTHS[0] <= len(frames) <= LENGTHS[1] and frames.shape[1] == len(COLUMNS) for _, frames in train)


def test_the_frequency_of_a_gait_is_that_of_its_feet() -> None:
    """The largest peak of the spectrum of a foot, without its drift."""
    frames = draw_gait("running", np.random.Generator(np.random.Philox(key=[9, 9])), 400)
    height = frames[:, COLUMNS.index("left_foot_z")] - frames[:, COLUMNS.index("left_foot_z")].mean()
    peak = np.fft.rfftfreq(400, 1 / 20)[np.abs(np.fft.rfft(height)).argmax()]
    assert abs(peak - GAITS["running"].frequency) <= 0.1 * GAITS["running"].frequency + 0.05


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("motions")
    recipe = write_tiny_recipe("series_classification", folder)
    assert heed("train", recipe, "training.steps=2", "--run", folder / "run") == 0
    return folder / "run"


def test_a_motion_is_classified_alike_as_table_as_columns_and_as_steps(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classifier: Any = heedful.load(run)
    table, columns = "x,y\n0,0\n1,1\n2,2\n", {"y": [0, 1, 2], "x": [0, 1, 2]}
    found = classifier.predict_proba([table, columns, json.dumps(columns), [[0, 0], [1, 1], [2, 2]]])
    assert len(found) == 4 and all(one == found[0] for one in found)
    (run.parent / "motion.csv").write_text("note,y,x\na,0,0\nb,1,1\nc,2,2\n\ny,x\n5,5\n")  # other columns, and a second series
    capsys.readouterr()
    assert heed("classify-series", run, run.parent / "motion.csv", "--json") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["probabilities"] == pytest.approx(found[0]) and (first["steps"], second["steps"]) == (3, 1)
    assert classifier.predict(table) == first["label"]
    assert classifier.predict_proba(table) == classifier.predict_proba(columns) == pytest.approx(found[0])


def test_every_series_of_a_table_like_the_training_data_has_a_label(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert heed("classify-series", run, run.parent / "motions.csv", "--json") == 0
    steps = [json.loads(line)["steps"] for line in capsys.readouterr().out.splitlines()]
    assert steps == [3 + at % 3 for at in range(16)]
    with pytest.raises(DataError, match="series 1 line 5 has another 'sequence' than the line before"):
        list(heedful.load(run).predictions([MOTIONS]))


def test_labels_and_columns_are_those_of_the_training_data(tmp_path: Path) -> None:
    config = read_run(write_tiny_recipe("series_classification", tmp_path)).config
    series = LabeledSeriesData(config).series("train")
    assert len(series.frames) == 16 and [len(one) for one in series.frames[:4]] == [3, 4, 5, 3]
    assert series.labels.tolist() == [0, 1] * 8  # no, yes


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("\n0,no,0,0\n", "\n0,no,zero,0\n", "motions.csv line 2, column 'x': 'zero' is not a number"),
        ("\n0,no,0,0\n", "\n0,no,inf,0\n", "motions.csv line 2, column 'x': 'inf' is out of range"),
        ("\n0,no,0,0\n", "\n0,no,,0\n", "motions.csv line 2, column 'x': the value is missing"),
        ("\n0,no,0,2\n", "\n0,no,0,\n", "motions.csv line 4: the value of column 'y' is missing; 1 of 63 rows"),
        ("\n0,no,0,0\n", "\n0,,0,0\n", "motions.csv line 2, column 'label': the value is missing"),
        ("\n0,no,0,0\n", "\n0,no,0\n", "motions.csv line 2 has 3 columns; expected 4"),
        ("\n0,no,0,0\n", "\n0,yes,0,0\n", "motions.csv line 3: series '0' has the labels 'yes' and 'no'; expected one"),
        ("\n0,no,0,0\n", "\n0,no,0,0\n7,yes,0,0\n", "motions.csv line 4: series '0' continues after another one"),
        ("\n0,no,0,0\n", "\n0,no,caf\udce9,0\n", "motions.csv line 2: byte 9 is not UTF-8"),
        ("sequence,", "series,", "motions.csv line 1 has no column 'sequence'; its columns are: series, label, x, y"),
        (",x,y\n", ",x,x\n", "motions.csv line 1 has two columns named 'x'"),
        (MOTIONS[len("sequence,label,x,y\n") :], "", "motions.csv has no rows"),
        ("\n0,no,0,0\n", "\n" + "0,no,0,0\n" * 1100, "has 1,102 steps; expected at most data.max_length = 1,024"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_exit_code_3(
    before: str, after: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_tiny_recipe("series_classification", tmp_path)
    assert MOTIONS.count(before) == 1
    (tmp_path / "motions.csv").write_bytes(MOTIONS.replace(before, after).encode(errors="surrogateescape"))
    capsys.readouterr()
    assert heed("train", recipe, "--run", tmp_path / "run") == 3
    shown = capsys.readouterr()
    assert sentence in " ".join(shown.err.split()) and "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("x,z\n1,2\n", "series 1 has no column 'y'; its columns are: x, z"),
        ("x,y\n1,two\n", "series 1 line 2, column 'y': 'two' is not a number"),
        ("x,y\n1\n", "series 1 line 2 has 1 column; expected 2"),
        ("x,y\n", "series 1 has no rows"),
        ('{"x": [1, 2], "y": [1]}', r"series 1 has lists of different length \(x: 2, y: 1\)"),
        ('{"x": [], "y": []}', "series 1 has empty lists; expected at least one step"),
        ('{"x": [1], "y": [null]}', "series 1 row 1, column 'y': the value is missing"),
        ('{"x": [1]', "series 1 is not JSON"),
        ('{"x": ' * 50_000, "series 1 is not JSON: too deeply nested"),
        ("x,y\n1\r,2\n", "series 1 line 2 has a carriage return inside the line"),
        ([[1, 2, 3]], "series 1, step 1 has 3 numbers; expected 2: x, y"),
        ([[1, 2], [1]], "series 1, step 2 has 1 number; expected 2: x, y"),
        ([1, 2], "expected a list of steps, each of 2 finite numbers"),
        ([[1, float("nan")]], "expected a list of steps, each of 2 finite numbers"),
        ("x,y\n" + "1,2\n" * 1025, "series 1 has 1,025 steps; expected at most data.max_length"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_an_input_that_is_no_series_is_one_sentence(given: Any, sentence: str, run: Path) -> None:
    with pytest.raises(DataError, match=sentence) as raised:
        list(heedful.load(run).predictions([given]))
    assert "\n" not in raised.value.args[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.features=0", "model.features: missing; expected the number of variables"),
        ('task.variables=["x"]', "model.features: given 2; expected 1, the number of task.variables"),
        ('task.variables=["x", "x"]', "expected one or more that differ"),
        ("data.label=sequence", "data.label: given 'sequence', expected another column than data.sequence"),
    ],
)
def test_options_that_do_not_fit_are_errors(change: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read_run(write_tiny_recipe("series_classification", tmp_path), [change])
    assert message in str(raised.value)


def test_inputs_are_standardized_by_the_training_series_alone(tmp_path: Path) -> None:
    recipe = write_tiny_recipe("series_classification", tmp_path)
    data = 'data={form="labeled_series", builtin="gaits", counts={train=10, valid=5, test=5}}'
    assert heed("train", recipe, data, "model.features=15", "training.steps=2", "--run", tmp_path / "run") == 0
    classifier: Any = heedful.load(tmp_path / "run")
    train, valid = (
        np.concatenate([one - one.mean(0) for _, one in make_gaits(split, count)]) for split, count in ((0, 10), (1, 5))
    )
    deviation = classifier.classifier.body.features.deviation.numpy()
    assert np.allclose(deviation, train.std(0), rtol=1e-3) and not np.allclose(deviation, valid.std(0), rtol=1e-3)


def test_an_unknown_split_is_one_sentence(run: Path) -> None:
    classifier: Any = heedful.load(run)
    with pytest.raises(ConfigError, match="unknown split 'tset'; expected one of: train, valid, test"):
        classifier.evaluate("tset")


def test_missing_numbers_are_filled_from_the_step_before_where_it_is_allowed(tmp_path: Path) -> None:
    recipe = write_tiny_recipe("series_classification", tmp_path)
    (tmp_path / "motions.csv").write_text(MOTIONS.replace("\n0,no,0,2\n", "\n0,no,0,NaN\n"))
    data = LabeledSeriesData(read_run(recipe, ["data.max_unusable=0.1"]).config)
    (finding,) = data.check().corpora[0].findings
    assert (finding.count, finding.action) == (1, "filled")
    assert data.series("train").frames[0].tolist() == [[0, 0], [0, 1], [0, 1]]


def test_examples_as_python_objects_become_a_table() -> None:
    assert format_examples([("yes", [[1, 2], [3, 4]]), ("no", [[5, 6]])]).text.splitlines() == [
        "sequence,label,1,2",
        "1,yes,1.0,2.0",
        "1,yes,3.0,4.0",
        "2,no,5.0,6.0",
    ]
    assert format_examples([("yes", {"x": [1, 3], "y": [2, 4]})]).text == "sequence,label,x,y\n1,yes,1.0,2.0\n1,yes,3.0,4.0\n"
    with pytest.raises(DataError, match=r"example 2 is .*; expected a tuple \(label, list of steps, each of 2 numbers\)"):
        format_examples([("yes", [[1, 2]]), ("no", [[1, 2, 3]])])


def test_the_pass_of_an_analysis_has_the_probability_of_the_prediction(run: Path) -> None:
    classifier: Any = heedful.load(run)
    table = "x,y\n0,0\n1,1\n2,2\n9,2\n"
    probabilities = classifier.predict_proba(table)
    for label, expected in probabilities.items():
        example = classifier.encode_example(table, label)
        with torch.inference_mode():
            found = example.log_probabilities(classifier.model, example.forward(classifier.model).hidden)
        assert float(found.exp()) == pytest.approx(expected, abs=1e-5)
    result = inspection.attention(classifier, table)
    assert result.trace.maps[0].weights.shape == (2, 4, 4) and result.trace.keys(result.trace.maps[0]) == [
        "#1",
        "#2",
        "#3",
        "#4",
    ]


def test_a_file_with_one_series_is_analyzed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "motion.csv"
    file.write_text("sequence,label,x,y\n1,yes,0,0\n1,yes,1,1\n1,yes,2,2\n")
    for name in ("attention", "saliency", "lens"):
        assert heed("inspect", name, run, file) == 0
        assert "#3" in capsys.readouterr().out or name == "lens"
    assert heed("inspect", "attention", run, run.parent / "motions.csv") == 3
    assert "motions.csv has 16 inputs; expected one" in capsys.readouterr().err


def test_heads_are_measured_on_labeled_series(run: Path) -> None:
    classifier: Any = heedful.load(run)
    result = inspection.heads(classifier, run.parent / "motions.csv")
    assert (result.sentences, result.unit) == (16, "example")
    assert result.loss == pytest.approx(classifier.evaluate("valid")["loss"], abs=1e-5)
