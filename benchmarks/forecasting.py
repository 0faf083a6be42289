"""Forecasts of ETTh1 and exchange rates: the recipes beside persistence, seasonal naive, ridge, DLinear and published figures.

    HEED_DATA=/where/corpora/are python benchmarks/forecasting.py                 all recipes -> results/forecasting.json
    HEED_DATA=/where/corpora/are python benchmarks/forecasting.py etth1-96        some of them; the others are kept

Trains every recipe as it is, on one core, and evaluates it on all test windows. DLinear (Zeng et al., 2023) is trained here on
the same windows: a moving average of 25 steps and the rest, each with a linear map shared by all variables, Adam with a
learning rate that is halved every epoch, and the epoch and rate that are best on valid.

    HEED_DATA=/where/corpora/are python benchmarks/forecasting.py --choose        the learning rate of exchange-96

Exchange rates drift for years: a model that follows the drift of train and valid is better on valid and worse later. So the
learning rate is selected by rolling origins within the training rows (Tashman, 2000): train, valid and the rows after them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from peers.machine import machine_info
from torch import Tensor, nn

import heedful
from heedful.evaluation.forecasts import Errors, persistence
from heedful.tasks.forecasting.data import EncodedSeries
from heedful.tasks.forecasting.evaluate import standardized_windows
from heedful.tasks.forecasting.model import ForecastingModel

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ("etth1-96", "etth1-192", "etth1-336", "etth1-720", "exchange-96")
# mse; PatchTST/64: Nie et al., 2023; DLinear: Zeng et al., 2023. Compared with a table of a later paper that cites both; in
# LTSF-Benchmark.md of the repository of DLinear, the same row stands under NLinear, and that of NLinear under DLinear.
PUBLISHED = {
    "etth1-96": {"PatchTST/64": 0.370, "DLinear, published": 0.375},
    "etth1-192": {"PatchTST/64": 0.413, "DLinear, published": 0.405},
    "etth1-336": {"PatchTST/64": 0.422, "DLinear, published": 0.439},
    "etth1-720": {"PatchTST/64": 0.447, "DLinear, published": 0.472},
    "exchange-96": {"DLinear, published": 0.081},
}
AVERAGE = 25  # steps of the moving average of DLinear
EPOCHS, BATCH, CHUNK = 6, 32, 256
RATES = 1e-3, 5e-3  # learning rates of DLinear
CHOSEN, CANDIDATES = "exchange-96", (1e-5, 1e-4, 1e-3)  # the recipe whose learning rate is selected by rolling origins
ORIGINS, PART = (2270, 3030, 3790), 760  # training rows; rows of valid, and of those after it


class DLinear(nn.Module):
    def __init__(self, look_back: int, horizon: int) -> None:
        super().__init__()
        self.trend, self.rest = nn.Linear(look_back, horizon), nn.Linear(look_back, horizon)
        for map in (self.trend, self.rest):
            nn.init.constant_(map.weight, 1 / look_back)

    def forward(self, window: Tensor) -> Tensor:
        """(rows, look_back, variables) -> (rows, horizon, variables)."""
        x = window.transpose(1, 2)  # (rows, variables, look_back)
        side = AVERAGE // 2
        padded = nn.functional.pad(x, (side, side), mode="replicate")
        trend = nn.functional.avg_pool1d(padded, AVERAGE, stride=1)
        out: Tensor = self.trend(trend) + self.rest(x - trend)
        return out.transpose(1, 2)


@torch.inference_mode()
def errors_of(model: DLinear, series: EncodedSeries, scaler: ForecastingModel) -> Errors:
    errors = Errors()
    for at in range(0, len(series), CHUNK):
        batch = series.windows(range(at, min(at + CHUNK, len(series))))
        forecast = model(scaler.standardize(batch.window))
        errors = errors.add(forecast.numpy(), scaler.standardize(batch.target).numpy())
    return errors


def train_dlinear(forecaster: heedful.Forecaster) -> dict[str, float]:
    """The errors on test of the learning rate and the epoch that are best on valid."""
    scaler, series = forecaster.forecaster, {split: forecaster.split(split) for split in ("train", "valid", "test")}
    best, found, chosen_rate = float("inf"), Errors(), 0.0
    for rate in RATES:
        torch.manual_seed(1)
        model = DLinear(series["train"].look_back, series["train"].horizon)
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for epoch in range(EPOCHS):
            for group in optimizer.param_groups:
                group["lr"] = rate * 0.5**epoch
            for chosen in torch.randperm(len(series["train"])).split(BATCH):  # type: ignore[no-untyped-call]
                batch = series["train"].windows(chosen.numpy())
                loss = nn.functional.mse_loss(model(scaler.standardize(batch.window)), scaler.standardize(batch.target))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            valid = errors_of(model, series["valid"], scaler).mse
            if valid < best:
                best, found, chosen_rate = valid, errors_of(model, series["test"], scaler), rate
    return {"mse": found.mse, "mae": found.mae, "valid": best, "learning_rate": chosen_rate}


def measure(recipe: str) -> dict[str, Any]:
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        outcome = heedful.train(ROOT / "recipes" / "forecasting" / f"{recipe}.toml", run=run, device="cpu")
        minutes = (time.time() - began) / 60
        forecaster = heedful.Forecaster.load(run, device="cpu")
        options: Any = None
        report = forecaster.report("test", options, load=heedful.load, search=lambda one: one.search_config()).to_dict()
        valid = forecaster.evaluate("valid")
        rows = {"ours": {name: report["figures"][name] for name in ("mse", "mae")}, **report["baselines"]}
        rows["DLinear"] = train_dlinear(forecaster)
    return {
        "windows": report["windows"],
        "rows": rows,
        "valid": valid,
        "step": outcome.step,
        "best": outcome.best,
        "minutes": round(minutes, 1),
        "published": PUBLISHED[recipe],
    }


def choose() -> dict[str, list[float]]:
    """For each candidate, the mse on the rows after valid, as a share of persistence, from each origin. No row is of valid or
    test of the recipe."""
    shares: dict[str, list[float]] = {}
    for rate in CANDIDATES:
        for origin in ORIGINS:
            overrides = [f"data.parts=[{origin}, {PART}, {PART}]", f"training.schedule.learning_rate={rate}"]
            with tempfile.TemporaryDirectory() as folder:
                recipe = ROOT / "recipes" / "forecasting" / f"{CHOSEN}.toml"
                heedful.train(recipe, overrides, run=Path(folder) / "run", device="cpu")
                forecaster = heedful.Forecaster.load(Path(folder) / "run", device="cpu")
                windows = standardized_windows(forecaster.forecaster, forecaster.split("test"))
                share = forecaster.evaluate("test")["mse"] / persistence(windows).mse
            shares.setdefault(f"{rate:g}", []).append(share)
            print(f"learning rate {rate:g}, origin {origin}: {share:.4f} of persistence", flush=True)
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", help=f"of: {', '.join(RECIPES)}; default: all")
    parser.add_argument("--choose", action="store_true", help=f"select the learning rate of {CHOSEN}")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "forecasting.json")
    given = parser.parse_args()
    unknown = set(given.recipes) - set(RECIPES)
    if unknown:
        sys.exit(f"unknown recipe {min(unknown)!r}; expected one of: {', '.join(RECIPES)}")
    torch.set_num_threads(1)
    stored = json.loads(given.output.read_text()) if given.output.exists() else {"results": {}}
    if given.choose:
        stored["choice"] = {"recipe": CHOSEN, "shares": choose()}
        given.output.write_text(json.dumps(stored, indent=1) + "\n")
        return
    for recipe in given.recipes or RECIPES:
        stored["machine"], stored["date"] = machine_info(), time.strftime("%Y-%m-%d")
        stored["results"][recipe] = measure(recipe)
        given.output.write_text(json.dumps(stored, indent=1) + "\n")
        print(recipe, json.dumps(stored["results"][recipe]), flush=True)


if __name__ == "__main__":
    main()
