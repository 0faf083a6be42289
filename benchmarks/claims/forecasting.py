"""Claims about forecasts of generated series, whose best possible error is known, one step ahead.

sines       two sines, a trend and noise: a model that has learned them is far better than the last value
brownian    independent steps: no forecast is better than the last value, and an error below the variance of a step would mean
            that the window contains its target
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

import heedful
from claims import Evidence
from heedful.tasks.forecasting.evaluate import standardized_windows, window_forecasts

OPTIMUM = 3.0  # squared error of one step of three coordinates with variance 1
FORMS = ("encoder", "decoder", "encoder-decoder")
RECIPE = """\
[data]
form = "series"
builtin = "{name}"
counts = {{ train = 4000, valid = 500, test = {tested} }}

[task]
name = "forecasting"
form = "{form}"
look_back = {look_back}
horizon = 1
patch = {patch}
stride = {patch}
normalization = "last"

[tokenizer]
kind = "words"

[model]
family = "encoder"
features = {patch}
dim = 32
layers = ["self-attention", "self-attention"]
heads = 4
feed_forward = 64
position = "learned"
dropout = 0.0
causal = {causal}

[training]
steps = {steps}
save_every = {steps}
validate_every = 100
metric = "mse"
schedule = {{ name = "cosine", learning_rate = 2e-3, warmup = 50 }}
"""


def train(folder: Path, form: str, **options: Any) -> heedful.Forecaster:
    folder.mkdir(parents=True, exist_ok=True)
    causal = "true" if form == "decoder" else "false"
    (folder / "recipe.toml").write_text(RECIPE.format(form=form, causal=causal, **options))
    heedful.train(folder / "recipe.toml", run=folder / "run", device="cpu", console=Console(quiet=True))
    return heedful.Forecaster.load(folder / "run", device="cpu")


def squared_errors(forecaster: heedful.Forecaster) -> Any:
    """The squared error of each window of test, summed over the variables, in the units of the data: (windows,)."""
    model, series = forecaster.forecaster, forecaster.split("test")
    forecast, target = window_forecasts(model, forecaster.system, series, range(len(series)))
    return (model.restore(forecast)[..., 0] - model.restore(target[..., None])[..., 0]).square().sum((1, 2)).numpy()


def sines(folder: Path) -> Evidence:
    shares = {}
    for form in FORMS:
        forecaster = train(folder / form, form, name="sines", tested=1000, look_back=48, patch=8, steps=800)
        windows = standardized_windows(forecaster.forecaster, forecaster.split("test"))
        last = windows.inputs(slice(None))[:, -1:] - windows.targets(slice(None))
        persistence = float((last**2).mean()) * float(forecaster.forecaster.deviation[0]) ** 2
        shares[form] = float(squared_errors(forecaster).mean()) / persistence
    return Evidence({form: f"{share:.1%} of persistence" for form, share in shares.items()}, max(shares.values()) <= 0.1)


def brownian(folder: Path) -> Evidence:
    figures, holds = {}, True
    for form in FORMS:
        forecaster = train(folder / form, form, name="brownian", tested=20_000, look_back=8, patch=4, steps=300)
        errors = squared_errors(forecaster)
        mean, standard_error = float(errors.mean()), float(errors.std()) / len(errors) ** 0.5
        holds = holds and OPTIMUM - 2 * standard_error < mean < 1.03 * OPTIMUM
        figures[form] = f"{mean:.3f} ± {standard_error:.3f} (optimum {OPTIMUM:g})"
    return Evidence(figures, holds)
