"""Forecasting: the window, the model, the loss and the command."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_tasks import DAYS, SERIES, write_tiny_recipe
from torch.testing import assert_close
from workshop import heed

import heedful
from heedful import inspection
from heedful.errors import ConfigError, DataError
from heedful.evaluation.forecasts import PENALTIES
from heedful.inspection.drawing.figure import Area, Figure, Label, text_width
from heedful.models.encoder import Encoder, EncoderConfig
from heedful.runs.config import read_run
from heedful.tasks.forecasting.calendar import calendar_features, next_times, season_of
from heedful.tasks.forecasting.config import ForecastingConfig
from heedful.tasks.forecasting.data import EncodedSeries, SeriesData
from heedful.tasks.forecasting.evaluate import window_forecasts
from heedful.tasks.forecasting.forced import encode_window
from heedful.tasks.forecasting.forms import FORMS
from heedful.tasks.forecasting.model import ForecastingModel, forecast_losses


def make_model(**options: Any) -> ForecastingModel:
    given = {"name": "forecasting", "variables": ("a", "b"), "look_back": 8, "horizon": 3, "patch": 4, "stride": 2}
    config = ForecastingConfig.model_validate(given | options)
    torch.manual_seed(0)
    layers: Any = {"dim": 8, "layers": ("self-attention",), "heads": 2, "position": "learned", "features": config.features}
    model = FORMS[config.form](Encoder(EncoderConfig(causal=config.form == "decoder", **layers), 1), 8, config).eval()
    torch.nn.init.normal_(model.head.weight, std=0.3)  # it is zero at first
    return model


def calendar_of(model: ForecastingModel, rows: int) -> torch.Tensor:
    return torch.randn(rows, 8 + 3, 2 * len(model.options.covariates))


FORM_OPTIONS: dict[str, dict[str, Any]] = {
    "encoder": {},
    "decoder": {"form": "decoder", "patch": 2, "stride": 2},
    "encoder-decoder": {"form": "encoder-decoder", "patch": 2},
}


@pytest.mark.parametrize("form", FORM_OPTIONS)
@pytest.mark.parametrize(
    "options",
    [{}, {"channels": "joint"}, {"quantiles": [0.1, 0.5, 0.9]}, {"covariates": ["hour", "month"]}, {"linear": "learned"}],
    ids=str,
)
def test_a_forecast_has_every_step_variable_and_quantile_and_trains_every_weight(form: str, options: dict[str, Any]) -> None:
    model = make_model(**FORM_OPTIONS[form], **options)
    forecast = model(torch.randn(5, 8, 2), calendar_of(model, 5))
    assert forecast.shape == (5, 3, 2, len(options.get("quantiles", [0.5])))
    loss = (model(torch.randn(5, 8, 2), calendar_of(model, 5)) * torch.randn(3, 2, 1)).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    assert [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()] == []


@pytest.mark.parametrize("form", FORM_OPTIONS)
@pytest.mark.parametrize(("normalization", "shifted", "scaled"), [
    ("none", False, False), ("last", True, False), ("mean", True, False), ("standard", True, True)
])  # fmt: skip
def test_normalization_makes_forecasts_follow_the_level_and_the_scale(
    form: str, normalization: str, shifted: bool, scaled: bool
) -> None:
    model, window = make_model(normalization=normalization, **FORM_OPTIONS[form]), torch.randn(4, 8, 2)
    calendar = calendar_of(model, 4)
    forecast = model(window, calendar)
    assert torch.allclose(model(window + 7, calendar), forecast + 7, atol=1e-4) == shifted
    assert torch.allclose(model(window * 100, calendar), forecast * 100, rtol=1e-3, atol=1e-2) == scaled


@pytest.mark.parametrize("form", FORM_OPTIONS)
def test_independent_channels_do_not_see_each_other_and_joint_ones_do(form: str) -> None:
    for channels, differs in (("independent", False), ("joint", True)):
        model, window = make_model(channels=channels, **FORM_OPTIONS[form]), torch.randn(4, 8, 2)
        other = window.clone()
        other[..., 1] += torch.randn(4, 8)
        calendar = calendar_of(model, 4)
        assert torch.equal(model(window, calendar)[..., 0, :], model(other, calendar)[..., 0, :]) != differs


@pytest.mark.parametrize("form", FORM_OPTIONS)
def test_the_calendar_changes_the_forecast(form: str) -> None:
    model, window = make_model(covariates=["hour"], **FORM_OPTIONS[form]), torch.randn(4, 8, 2)
    assert not torch.equal(model(window, calendar_of(model, 4)), model(window, calendar_of(model, 4)))


@pytest.mark.parametrize("form", ["decoder", "encoder-decoder"])
def test_the_calendar_of_the_horizon_is_read_where_it_is_known(form: str) -> None:
    model, window = make_model(covariates=["hour"], **FORM_OPTIONS[form]), torch.randn(4, 8, 2)
    calendar = calendar_of(model, 4)
    later = calendar.clone()
    later[:, 8:] += 1
    assert not torch.equal(model(window, calendar), model(window, later))


@pytest.mark.parametrize("form", FORM_OPTIONS)
def test_an_untrained_model_is_persistence_beside_normalization_by_the_last_value(form: str) -> None:
    model, window = make_model(normalization="last", **FORM_OPTIONS[form]), torch.randn(4, 8, 2)
    torch.nn.init.zeros_(model.head.weight)
    assert torch.equal(model(window, calendar_of(model, 4))[..., 0], window[:, -1:].expand(4, 3, 2))


def test_a_forecast_step_of_a_decoder_depends_on_earlier_patches_and_on_no_later_one() -> None:
    """Jacobian of the teacher-forced forecasts: patches have two steps, and the forecast of a patch reads those before it."""
    model = make_model(variables=["a"], horizon=6, **FORM_OPTIONS["decoder"])
    window, calendar = torch.randn(1, 8, 1), torch.zeros(1, 14, 0)
    jacobian = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        lambda target: model(window, calendar, target)[0, :, 0, 0], torch.randn(1, 6, 1)
    )
    depends = jacobian[:, 0, :, 0] != 0  # (forecast step, true step)
    expected = torch.tensor([[true // 2 < step // 2 for true in range(6)] for step in range(6)])
    assert torch.equal(depends, expected)


@pytest.mark.parametrize("options", [{}, {"linear": "learned"}, {"channels": "joint"}, {"quantiles": [0.1, 0.5, 0.9]}], ids=str)
def test_rolling_out_equals_one_pass_over_its_own_forecasts(options: dict[str, Any]) -> None:
    model = make_model(horizon=5, covariates=["hour"], **FORM_OPTIONS["decoder"], **options)
    window, calendar = torch.randn(4, 8, 2), torch.randn(4, 13, 2)
    rolled = model(window, calendar)
    assert torch.allclose(model(window, calendar, rolled[..., model.middle]), rolled, atol=1e-5)


@pytest.mark.parametrize("form", FORM_OPTIONS)
@pytest.mark.parametrize(
    "options",
    [{}, {"channels": "joint"}, {"quantiles": [0.1, 0.5, 0.9]}, {"covariates": ["hour"]}, {"linear": "learned"}],
    ids=str,
)
def test_the_pass_of_an_analysis_has_the_forecast_of_each_variable(form: str, options: dict[str, Any]) -> None:
    model = make_model(**FORM_OPTIONS[form], **options)
    model.mean.copy_(torch.tensor([5.0, -2.0]))
    model.deviation.copy_(torch.tensor([3.0, 0.5]))
    window, calendar = torch.randn(1, 8, 2), calendar_of(model, 1)
    with torch.inference_mode():
        expected = model.restore(model(window, calendar))[0, ..., model.middle]  # (horizon, variables)
        for variable in (0, 1):
            example = encode_window(model, window, calendar, variable)
            values = example.scores(model, example.forward(model, 2).hidden)  # of two copies
            assert torch.allclose(values, expected[:, variable].expand(2, -1), atol=1e-4)
            assert len(example.inputs) == example.target_in.shape[1] and example.outputs.pieces == ["+1", "+2", "+3"]


def test_patches_are_named_by_their_steps() -> None:
    model = make_model(**FORM_OPTIONS["decoder"])
    with torch.inference_mode():
        example = encode_window(model, torch.randn(1, 8, 2), calendar_of(model, 1), 0)
        steps = encode_window(make_model(patch=1, stride=1), torch.randn(1, 8, 2), torch.zeros(1, 11, 0), 1)
    assert example.inputs == ["1-2", "3-4", "5-6", "7-8", "9-10"]  # the last one is forecast
    assert steps.inputs == [str(step) for step in range(1, 9)]


def test_a_decoder_with_a_horizon_of_one_patch_needs_no_rollout() -> None:
    model = make_model(horizon=2, **FORM_OPTIONS["decoder"])
    window, calendar = torch.randn(4, 8, 2), torch.zeros(4, 10, 0)
    assert torch.allclose(model(window, calendar), model(window, calendar, torch.randn(4, 2, 2)), atol=1e-6)


def test_restoring_is_the_inverse_of_standardizing() -> None:
    model, values = make_model(), torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    model.fit(values)
    assert model.standardize(values).tolist() == [[-1.0, 0.0], [1.0, 0.0]]  # a constant is only centered
    assert torch.equal(model.restore(model.standardize(values)[..., None])[..., 0], values)


def test_the_pinball_loss_is_least_at_the_quantile() -> None:
    target = torch.arange(1.0, 101.0).view(-1, 1, 1)
    guesses = torch.arange(1.0, 101.0)
    for quantile in (0.1, 0.5, 0.9):
        losses = [
            float(forecast_losses(guess.expand(100, 1, 1, 1), target, torch.tensor([quantile])).mean()) for guess in guesses
        ]
        assert abs(float(guesses[losses.index(min(losses))]) - 100 * quantile) <= 1


def test_no_window_of_training_contains_a_row_of_validation(tmp_path: Path) -> None:
    recipe = write_tiny_recipe("forecasting", tmp_path)
    parts = f'data={{form="series", parts=[40, 10, 10], train={{file="{tmp_path}/series.csv"}}, time="date"}}'
    config = read_run(recipe, [parts]).config
    data = SeriesData(config)
    train, valid, test = (data.series(split) for split in ("train", "valid", "test"))
    assert (len(train), len(valid), len(test)) == (40 - 4 - 2 + 1, 10 - 2 + 1, 10 - 2 + 1)
    assert train.times[-1] == DAYS[39] and len(train.values) == 40
    first = valid.windows([0])
    assert torch.equal(first.target[0], data.series("test").values[40:42])
    assert torch.equal(first.window[0], data.series("test").values[36:40])


def parted_run(folder: Path, rows: list[tuple[float, float]], parts: list[int], *options: str) -> heedful.Forecaster:
    """A run whose train, valid and test are parts of these rows of two variables, in the order of time."""
    recipe = write_tiny_recipe("forecasting", folder)
    lines = "".join(f"{load},{wind}\n" for load, wind in rows)
    (folder / "parted.csv").write_text(f"load,wind\n{lines}")
    data = f'data={{form="series", parts={parts}, train={{file="{folder}/parted.csv"}}}}'
    given = ("task.normalization=last", "task.linear=ridge", "training.steps=2", *options)
    assert heed("train", recipe, data, *given, "--run", folder / "run") == 0
    return heedful.Forecaster.load(folder / "run")


def test_standardization_and_ridge_are_fitted_on_training_rows_and_the_penalty_is_selected_on_valid(tmp_path: Path) -> None:
    """The level and the period differ between the parts; the reference is a closed form in double precision."""
    draws = np.random.Generator(np.random.Philox(0)).normal(size=(140, 2)).round(3)
    level, period = np.repeat([0.0, 50.0, -70.0], [80, 30, 30]), np.repeat([3, 4, 5], [80, 30, 30])
    rows = 10 * np.cos(2 * np.pi * np.arange(140) / period)[:, None] + level[:, None] + draws
    forecaster = parted_run(tmp_path, rows.tolist(), [80, 30, 30])
    model, mean, deviation = forecaster.forecaster, rows[:80].mean(0), rows[:80].std(0)
    assert np.allclose(model.mean, mean, rtol=1e-4) and np.allclose(model.deviation, deviation, rtol=1e-4)

    z = (rows - mean) / deviation

    def windows(first: int, last: int) -> tuple[Any, Any]:
        both = [(z[at : at + 4] - z[at + 3], z[at + 4 : at + 6] - z[at + 3]) for at in range(max(first - 4, 0), last - 5)]
        x, y = (np.concatenate([part.T for part in side]) for side in zip(*both, strict=True))  # (windows x variables, …)
        return x, y

    (x, y), (valid_x, valid_y) = windows(0, 80), windows(80, 110)
    fitted = [np.linalg.solve(x.T @ x + penalty * np.eye(4), x.T @ y) for penalty in PENALTIES[:-1]]
    errors = [float(np.square(valid_x @ weights - valid_y).mean()) for weights in fitted]
    assert np.allclose(model.ridge, fitted[int(np.argmin(errors))], atol=1e-4)


def test_the_penalty_of_the_baseline_is_selected_on_valid_and_not_on_test(tmp_path: Path) -> None:
    """Train and test are waves, whose values return, and valid rises: on it, persistence is better than what returns."""
    wave = [(float(at % 3), float(at % 4)) for at in range(120)]
    forecaster = parted_run(tmp_path, [*wave[:60], *((at, at) for at in range(20)), *wave[80:]], [60, 20, 40])
    assert not bool(forecaster.forecaster.ridge.any())
    options: Any = SimpleNamespace(baselines=False)
    report = forecaster.report("test", options, load=heedful.load, search=lambda one: one.search_config())
    assert report.baselines["ridge"].mse == pytest.approx(report.baselines["persistence"].mse) and report.figures["mse"] > 1


def test_times_continue_by_hours_days_months_and_years() -> None:
    assert next_times(["2024-02-28 22:00", "2024-02-28 23:00"], 2) == ["2024-02-29 00:00", "2024-02-29 01:00"]
    assert next_times(["2024-02-28 22:00:00", "2024-02-28 23:00:00"], 1) == ["2024-02-29 00:00:00"]
    assert next_times(["2024-02-28", "2024-02-29"], 1) == ["2024-03-01"]
    assert next_times(["2023-11-01", "2023-12-01"], 2) == ["2024-01-01", "2024-02-01"]
    assert next_times(["2022-01-01", "2023-01-01"], 2) == ["2024-01-01", "2025-01-01"]
    assert next_times(["2023-11-30", "2023-12-31"], 3) == ["2024-01-31", "2024-02-29", "2024-03-31"]
    assert next_times(["2024-01-31", "2024-02-29"], 2) == ["2024-03-31", "2024-04-30"]
    assert next_times(["2024-01-30", "2024-02-29"], 2) == ["2024-03-30", "2024-04-30"]
    assert next_times(["2024-06-30 00:00", "2024-09-30 00:00"], 2) == ["2024-12-31 00:00", "2025-03-31 00:00"]
    assert next_times(["20240228", "20240229"], 1) == ["20240301"]
    assert next_times([], 2) == ["1", "2"]
    with pytest.raises(DataError, match="after the year 9999"):
        next_times(["8000-01-01", "9000-01-01"], 2)


def test_seasons_are_days_or_weeks() -> None:
    assert [season_of(["2024-01-01 00:00", last]) for last in ("2024-01-01 01:00", "2024-01-01 00:15", "2024-01-02 00:00")] == [
        24,
        96,
        7,
    ]
    assert season_of([]) == 1


def test_calendar_features_are_cyclic() -> None:
    late, early, noon = calendar_features(["2024-01-01 23:59", "2024-01-02 00:00", "2024-01-02 12:00"], ["hour"], 3)
    assert abs(late - early).max() < 0.01 < abs(noon - early).max()
    assert calendar_features([], [], 3).shape == (3, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("task.stride=3", "task.stride: given 3, expected a divisor of look_back - patch = 2"),
        ("task.form=decoder", "task.stride: given 1, expected patch = 2, a divisor of look_back = 4"),
        (
            "task.decoder_layers=3",
            "task.decoder_layers: given 3, but has no effect because form 'encoder' has no separate decoder",
        ),
        ("task.patch=9", "task.patch: given 9, expected at most look_back = 4"),
        ("task.quantiles=[0.9, 0.5]", "task.quantiles: given [0.9, 0.5], expected increasing ones with 0.5"),
        ("task.linear=ridge", "task.linear: given 'ridge', which is fitted with normalization 'last'"),
        ("model.features=5", "model.features: given 5; expected 2"),
        ("model.max_positions=2", "model.max_positions: given 2, expected at least 3"),
        ('task.variables=["load", "load"]', "expected one or more that differ"),
    ],
)
def test_options_that_do_not_fit_are_errors(change: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read_run(write_tiny_recipe("forecasting", tmp_path), [change])
    assert message in str(raised.value)


@pytest.mark.parametrize(("given", "expected"), [([], 4), (["task.covariates=['day']"], 6)], ids=["none", "day"])
def test_the_size_of_a_joint_patch_is_checked_when_the_columns_are_known(
    given: list[str], expected: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, features = write_tiny_recipe("forecasting", tmp_path), expected - 2
    changes = ["task.channels=joint", f"model.features={features}", *given]
    assert heed("train", recipe, *changes, "--run", tmp_path / "run") == 2
    message = f"model.features: given {features}, expected {expected}, since a patch has 2 steps of 2 variables"
    assert message in capsys.readouterr().err
    changes[1] = f"model.features={expected}"
    assert heed("train", recipe, *changes, "training.steps=1", "--run", tmp_path / "run") == 0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forecasting")
    recipe = write_tiny_recipe("forecasting", folder)
    assert (
        heed("train", recipe, "task.normalization=last", "task.linear=ridge", "training.steps=2", "--run", folder / "run") == 0
    )
    return folder / "run"


def test_a_run_forecasts_the_steps_after_a_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert heed("forecast", run, run.parent / "series.csv") == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split(",") == ["date", "load", "load 0.1", "load 0.5", "load 0.9", "wind", "wind 0.1", "wind 0.5", "wind 0.9"]
    last = datetime.fromisoformat(DAYS[-1]).toordinal()
    assert [row.split(",")[0] for row in rows] == [datetime.fromordinal(last + step).date().isoformat() for step in (1, 2)]
    numbers = [float(cell) for cell in rows[0].split(",")[1:]]
    assert numbers[0] == numbers[2] and numbers[1:4] == sorted(numbers[1:4])
    python = heedful.Forecaster.load(run, precision="fp32").forecast(SERIES)
    assert python.rows() == [header, *rows]
    columns: dict[str, Any] = {"date": DAYS, "load": [at % 3 for at in range(60)], "wind": [at % 2 for at in range(60)]}
    assert heedful.Forecaster.load(run).forecast(columns) == python
    assert [heedful.Forecaster.load(run).predict(columns)] == heedful.Forecaster.load(run).predict([columns]) == [python.text]


def test_the_ridge_map_of_a_run_is_stored_and_learns_the_period(run: Path) -> None:
    forecaster = heedful.Forecaster.load(run)
    assert forecaster.forecaster.ridge.shape == (4, 2) and bool(forecaster.forecaster.ridge.any())
    assert forecaster.evaluate("test")["mse"] < 0.5


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("date,load,wind\n2024-01-01,1,2\n", "input.csv has 1 row; expected at least task.look_back = 4"),
        ("date,load\n2024-01-01,1\n" + "".join(f"2024-01-0{day},1\n" for day in range(2, 7)), "has no column 'wind'"),
        ("date,load,wind\n2024-01-01,1,\n", "input.csv line 2, column 'wind': the value is missing"),
        ('{"date": []', "input.csv is not JSON"),
        ('{"date": ' * 50_000, "input.csv is not JSON: too deeply nested"),
        ("date,load,wind\n2024-01-01\r,1,2\n", "input.csv line 2 has a carriage return inside the line"),
        (
            '{"date": ["2024-01-01"], "load": [1]}',
            "input.csv has no list 'wind'; expected a list for each of: date, load, wind",
        ),
        ('{"date": ["2024-01-01"], "load": [1, 2], "wind": [1]}', "input.csv has lists of different length"),
        ('{"date": ["2024-01-01"], "load": [null], "wind": [1]}', "input.csv row 1, column 'load': the value is missing"),
        ('{"date": ["2024-01-01"], "load": ["x"], "wind": [1]}', "input.csv row 1, column 'load': 'x' is not a number"),
        ('{"date": ["x"], "load": [1], "wind": [1]}', "input.csv row 1, column 'date': 'x' is not a time"),
    ],
)
def test_an_input_that_is_no_table_is_one_sentence(
    table: str, sentence: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "input.csv").write_text(table)
    capsys.readouterr()
    assert heed("forecast", run, tmp_path / "input.csv") == 3
    output = capsys.readouterr()
    assert sentence in output.err and output.out == ""


def test_the_baselines_are_always_in_the_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert heed("evaluate", run, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["baselines"].keys() == {"persistence", "seasonal naive (4 steps)", "ridge"}  # a week is longer than the window
    assert shown["windows"] == 60 - 4 - 2 + 1 and 0 <= shown["coverage"] <= 1
    assert heed("evaluate", run) == 0
    printed = capsys.readouterr().out
    for name, errors in shown["baselines"].items():
        assert any(
            line.split() == [*name.split(), f"{errors['mse']:.4f}", f"{errors['mae']:.4f}"] for line in printed.splitlines()
        )


BROWNIAN = """\
[data]
form = "series"
builtin = "brownian"
counts = { train = 4000, valid = 500, test = 20000 }

[task]
name = "forecasting"
look_back = 8
horizon = 1
patch = 4
stride = 4
normalization = "last"
linear = "learned"

[tokenizer]
kind = "words"

[model]
family = "encoder"
features = 4
dim = 8
layers = ["self-attention"]
heads = 2
position = "learned"

[training]
steps = 300
save_every = 300
validate_every = 100
metric = "mse"
schedule = { name = "linear", learning_rate = 1e-2, warmup = 20 }
"""
OPTIMUM = 3.0  # the squared error of one step of three coordinates with variance 1


def squared_errors(forecaster: heedful.Forecaster) -> torch.Tensor:
    """The squared distance of each forecast of the test data, in the units of the data: (windows,)."""
    series, model = forecaster.split("test"), forecaster.forecaster
    forecast, target = window_forecasts(model, forecaster.system, series, range(len(series)))
    return (model.restore(forecast)[..., 0] - model.restore(target[..., None])[..., 0]).square().sum((1, 2))


def test_brownian_motion_is_forecast_as_well_as_possible_and_no_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Increments are independent: an error below the variance of a step would mean that the window contains its target."""
    (tmp_path / "brownian.toml").write_text(BROWNIAN)
    heedful.train(tmp_path / "brownian.toml", run=tmp_path / "run")
    forecaster = heedful.Forecaster.load(tmp_path / "run")
    errors = squared_errors(forecaster)
    mean, standard_error = float(errors.mean()), float(errors.std()) / len(errors) ** 0.5
    assert len(errors) == 20000 - 8 and standard_error < 0.01 * OPTIMUM
    assert OPTIMUM - 2 * standard_error < mean < 1.03 * OPTIMUM
    windows = EncodedSeries.windows

    def leak(series: EncodedSeries, chosen: Any) -> Any:
        batch = windows(series, chosen)
        return batch._replace(window=torch.cat((batch.window[:, 1:], batch.target), 1))

    monkeypatch.setattr(EncodedSeries, "windows", leak)  # a window that ends one step too late
    assert float(squared_errors(forecaster).mean()) < OPTIMUM / 2


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (f"{DAYS[3]},0,1", f"{DAYS[3]},none at all,1", "line 5, column 'load': 'none at all' is not a number"),
        (f"{DAYS[3]},0,1", f"{DAYS[3]},,1", "line 5: the value of column 'load' is missing"),
        (f"{DAYS[3]},0,1", f"{DAYS[3]},nan,1", "line 5: the value of column 'load' is missing"),
        (f"{DAYS[3]},0,1", f"{DAYS[3]},-inf,1", "line 5, column 'load': '-inf' is out of range"),
        (f"{DAYS[3]},0,1", f"{DAYS[2]},0,1", f"line 5, column 'date': {DAYS[2]} 00:00:00 is not after {DAYS[2]}"),
        (f"{DAYS[3]},0,1", f"{DAYS[1]},0,1", f"line 5, column 'date': {DAYS[1]} 00:00:00 is not after {DAYS[2]}"),
        (f"{DAYS[3]},0,1", "2021-02-30,0,1", "line 5, column 'date': '2021-02-30' is not a time"),
        (f"{DAYS[3]},0,1", f"{DAYS[3]},0,1,2", "line 5 has 4 columns; expected 3"),
        (f"{DAYS[3]},0,1", f"{DAYS[3]},\udcff,1", "line 5: byte 12 is not UTF-8"),
        (SERIES, "", "series.csv is empty; expected at least one line"),
        (SERIES[len("date,load,wind\n") :], "", "series.csv has no rows"),
        (SERIES.split("\n", 4)[4], "", "series.csv has 3 rows for train; expected at least 6"),
    ],
)
def test_a_broken_row_or_date_stops_training_with_one_sentence_and_nothing_is_lost(
    before: str, after: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_tiny_recipe("forecasting", tmp_path)
    assert SERIES.count(before) == 1
    content = SERIES.replace(before, after).encode(errors="surrogateescape")
    (tmp_path / "series.csv").write_bytes(content)
    capsys.readouterr()
    assert heed("train", recipe, "--run", tmp_path / "run") == 3
    shown = " ".join(capsys.readouterr().err.split())
    assert sentence in shown and "Traceback" not in shown
    assert (tmp_path / "series.csv").read_bytes() == content and not list(tmp_path.glob("run/checkpoints/*"))


def test_the_forecasts_before_a_broken_table_are_printed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "input.csv").write_text(f"{SERIES}\n{SERIES.replace(DAYS[3], DAYS[2])}")
    capsys.readouterr()
    assert heed("forecast", run, tmp_path / "input.csv") == 3
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1 + 2 and "table 2 line 5, column 'date'" in shown.err


def test_rows_held_out_are_forecast_from_those_before_them(run: Path) -> None:
    forecaster = heedful.Forecaster.load(run)
    shorter = "\n".join(SERIES.splitlines()[:-2])
    held, plain = forecaster.forecast(SERIES, holdout=True), forecaster.forecast(shorter)
    assert (held.times, held.values) == (plain.times, plain.values) and held.times == DAYS[-2:]
    assert held.truth == [[58 % 3, 58 % 2], [59 % 3, 59 % 2]] and held.columns["load true"] == [1, 2]
    assert held.baselines["persistence"] == [[57 % 3, 57 % 2]] * 2 == [held.history[-1]] * 2
    with pytest.raises(DataError, match=r"table 1 has 5 rows; expected at least task.look_back \+ task.horizon = 6"):
        forecaster.forecast("\n".join(SERIES.splitlines()[:6]), holdout=True)


def test_the_ridge_map_of_a_run_is_a_baseline_of_single_forecasts(run: Path, tiny_runs: dict[str, Path]) -> None:
    forecaster: Any = heedful.load(run)
    table = "\n".join(SERIES.splitlines()[:11])
    forecast = forecaster.forecast(table, holdout=True)
    values, model = torch.tensor(forecast.history), forecaster.model
    expected = values[-1] + model.ridge.T @ (values - values[-1])  # (horizon, variables); the deviations cancel
    assert_close(torch.tensor(forecast.baselines["ridge"]), expected, atol=1e-4, rtol=1e-4)
    result = inspection.ForecastResult(forecast)
    assert "ridge" in result.errors and "ridge" in result.svg() and "linear map of the run" in result.html()
    other: Any = heedful.load(tiny_runs["forecasting"])
    assert list(other.forecast(table).baselines) == ["persistence", "seasonal naive (4 steps)"]


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_picture_is_written_beside_the_table(
    suffix: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / f"curve.{suffix}"
    capsys.readouterr()
    assert heed("forecast", run, run.parent / "series.csv", "--picture", picture, "--holdout") == 0
    assert capsys.readouterr().out.startswith("date,load,")
    assert picture.read_bytes().startswith({"svg": b"<svg", "png": b"\x89PNG"}[suffix])
    (tmp_path / "two.csv").write_text(f"{SERIES}\n{SERIES}")
    assert heed("forecast", run, tmp_path / "two.csv", "--picture", picture) == 2
    assert "--picture: given a second table, expected one" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("forecast", "{run}", "x.csv"), ("inspect", "cost", "{run}")])
@pytest.mark.parametrize(("name", "code"), [("folder/curve.png", 4), ("curve.json", 2)])
def test_a_picture_that_cannot_be_written_is_refused_before_the_work(
    command: tuple[str, ...], name: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert heed(*(part.format(run=tmp_path / "no-run") for part in command), "--picture", tmp_path / name) == code
    shown = capsys.readouterr().err
    assert ("cannot be written" if code == 4 else ".svg or .png or .pdf") in " ".join(shown.split()) and "no-run" not in shown


def test_every_file_is_a_table(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for file in files:
        file.write_text(SERIES)
    capsys.readouterr()
    assert heed("forecast", run, *files) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2 * 3 and rows[:3] == rows[3:]


def test_an_input_that_is_too_short_is_named_by_its_file(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "short.csv").write_text("\n".join(SERIES.splitlines()[:3]))
    (tmp_path / "long.csv").write_text(f"{SERIES}\n{SERIES}")
    for given in (["short.csv"], ["long.csv", "short.csv", "long.csv"]):
        assert heed("forecast", run, *(tmp_path / name for name in given)) == 3
        assert f"error: {tmp_path}/short.csv has 2 rows; expected" in capsys.readouterr().err


def legend_of(figure: Figure) -> list[Label]:
    """The labels above the first panel, but the title."""
    labels = [mark for mark in figure.marks if isinstance(mark, Label)]
    return labels[1 : next(at for at, mark in enumerate(labels) if mark.text == "load")]


def test_a_figure_has_a_panel_for_each_variable_and_a_band_for_each_pair_of_quantiles(run: Path) -> None:
    result = heedful.inspection.forecast(heedful.load(run), SERIES, holdout=True)
    figure = result.figure()
    areas = [mark for mark in figure.marks if isinstance(mark, Area)]
    assert len(areas) == 2 + 1  # one for each variable, and the legend
    assert all(mark.x + 0.85 * text_width(mark.text, mark.size) < figure.width for mark in legend_of(figure))
    assert [mark.text for mark in figure.marks if isinstance(mark, Label) and mark.text in ("load", "wind")] == ["load", "wind"]
    assert result.errors.keys() == {"this run", "persistence", "seasonal naive (4 steps)", "ridge"}
    assert "80% prediction interval" in result.svg() and "mean absolute error" in result.text()
    lower, upper = (areas[1].points[1][1], areas[1].points[-1][1])  # y grows downward
    assert lower >= upper


@pytest.mark.parametrize("form", FORM_OPTIONS)
def test_every_form_is_inspected(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [] if form == "encoder" else ["task.stride=2"]
    causal = ["model.causal=true"] if form == "decoder" else []
    recipe = write_tiny_recipe("forecasting", tmp_path)
    changes = [f"task.form={form}", *sizes, *causal, "training.steps=2"]
    assert heed("train", recipe, *changes, "--run", tmp_path / "run") == 0
    forecaster = heedful.load(tmp_path / "run")
    table = tmp_path / "table.csv"
    table.write_text("\n".join(SERIES.splitlines()[:9]))
    assert inspection.summary(forecaster).attention == {"self": [2]}
    found = inspection.saliency(forecaster, str(table), "wind", steps=64)
    assert found.unit == "the unit of wind" and found.values.shape == (2, len(found.example.columns))
    assert found.text().count("the unit of wind") == 2  # of gradient x input, and of its bound
    assert "raises the output" in found.svg()
    assert heed("inspect", "attention", tmp_path / "run", table) == 0
    assert "wind" not in capsys.readouterr().out  # the first variable


def test_integrated_gradients_of_a_forecast_sum_to_its_change(run: Path) -> None:
    """From a window whose patches are the mean of those of training."""
    forecaster: Any = heedful.load(run)
    model = forecaster.model
    torch.nn.init.normal_(model.head.weight, std=0.3)
    table = "\n".join(SERIES.splitlines()[:9])
    example = forecaster.encode_example(table)
    found = inspection.saliency(forecaster, table, steps=200).values.sum(-1)
    empty = model.body.features.mean.expand_as(example.target_in)
    with torch.inference_mode():
        value, start = (example.scores(model, model.body.encode(one))[0] for one in (example.target_in, empty))
    assert torch.allclose(found, value - start, atol=1e-2) and float(found.abs().sum()) > 0
