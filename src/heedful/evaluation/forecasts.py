"""Forecasts of time series: errors, coverage of prediction intervals, and the baselines that every forecast is compared with.

    persistence        the last value
    seasonal naive     the value one season before
    ridge              a linear map of the window without its last value, in closed form, shared by all variables:
                           W = (X^T X + penalty I)^-1 X^T Y        X, Y: windows and targets minus the last value of the window
                       With an infinite penalty it is persistence

Windows are views of the series: (windows, look_back, variables) and (windows, horizon, variables).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Numbers = NDArray[np.float32]
PENALTIES = (1.0, 1e2, 1e4, 1e5, 1e6, math.inf)  # of ridge; the best one on the validation windows is used
CHUNK = 256  # windows computed at a time


class Windows(NamedTuple):
    """The windows of a series whose targets begin at `first` or later."""

    values: Numbers  # (rows, variables), standardized
    first: int  # first row of a target
    look_back: int
    horizon: int

    @property
    def start(self) -> int:
        """The row that the first window begins at."""
        return max(self.first - self.look_back, 0)

    def __len__(self) -> int:
        return max(len(self.values) - self.start - self.look_back - self.horizon + 1, 0)

    def inputs(self, chosen: slice) -> Numbers:
        """(windows, look_back, variables)"""
        rows = self.values[self.start :]
        return sliding_window_view(rows, self.look_back, 0)[: len(self)][chosen].swapaxes(1, 2)

    def targets(self, chosen: slice) -> Numbers:
        """(windows, horizon, variables)"""
        rows = self.values[self.start + self.look_back :]
        return sliding_window_view(rows, self.horizon, 0)[: len(self)][chosen].swapaxes(1, 2)


class Errors(NamedTuple):
    """Sums over all windows, steps and variables."""

    squared: float = 0.0
    absolute: float = 0.0
    terms: int = 0  # of each sum

    def add(self, forecast: Numbers, target: Numbers) -> Errors:
        difference = (forecast - target).astype(np.float64)
        squared, absolute = float((difference**2).sum()), float(np.abs(difference).sum())
        return Errors(self.squared + squared, self.absolute + absolute, self.terms + difference.size)

    @property
    def mse(self) -> float:
        return self.squared / max(self.terms, 1)

    @property
    def mae(self) -> float:
        return self.absolute / max(self.terms, 1)


def chunks(windows: Windows) -> list[slice]:
    return [slice(at, min(at + CHUNK, len(windows))) for at in range(0, len(windows), CHUNK)]


def persistence(windows: Windows) -> Errors:
    errors = Errors()
    for chunk in chunks(windows):
        errors = errors.add(windows.inputs(chunk)[:, -1:], windows.targets(chunk))
    return errors


def seasonal_naive(windows: Windows, season: int) -> Errors:
    """season: steps, at most the look-back."""
    errors, steps = Errors(), windows.look_back - season + np.arange(windows.horizon) % season
    for chunk in chunks(windows):
        errors = errors.add(windows.inputs(chunk)[:, steps], windows.targets(chunk))
    return errors


class Products(NamedTuple):
    """X^T X and X^T Y of training windows."""

    inputs: NDArray[np.float64]  # (look_back, look_back)
    targets: NDArray[np.float64]  # (look_back, horizon)


def products(windows: Windows) -> Products:
    """Sums over windows and variables, with the last value of each window subtracted."""
    sums = Products(np.zeros((windows.look_back,) * 2), np.zeros((windows.look_back, windows.horizon)))
    for chunk in chunks(windows):
        inputs, targets = windows.inputs(chunk), windows.targets(chunk)
        last = inputs[:, -1:]
        x = (inputs - last).swapaxes(1, 2).reshape(-1, windows.look_back)  # (windows x variables, look_back)
        y = (targets - last).swapaxes(1, 2).reshape(-1, windows.horizon)
        sums.inputs[:] += x.T @ x
        sums.targets[:] += x.T @ y
    return sums


def fit_ridge(sums: Products, penalty: float) -> Numbers:
    """The weights W: (look_back, horizon)."""
    if math.isinf(penalty):
        return np.zeros(sums.targets.shape, np.float32)
    size = len(sums.inputs)
    weights = np.linalg.solve(sums.inputs + penalty * np.eye(size), sums.targets)
    return weights.astype(np.float32)


def apply_ridge(windows: Windows, weights: Numbers) -> Errors:
    errors = Errors()
    for chunk in chunks(windows):
        inputs = windows.inputs(chunk)
        last = inputs[:, -1:]
        change = np.einsum("wlv,lh->whv", inputs - last, weights, optimize=True)  # (windows, horizon, variables)
        errors = errors.add(last + change, windows.targets(chunk))
    return errors


def best_ridge(train: Windows, valid: Windows, penalties: Sequence[float] = PENALTIES) -> Numbers:
    """The weights with the penalty that is best on the validation windows."""
    sums = products(train)
    fitted = [fit_ridge(sums, penalty) for penalty in penalties]
    return min(fitted, key=lambda weights: apply_ridge(valid, weights).mse)


def baselines(train: Windows, valid: Windows, tested: Windows, season: int) -> dict[str, Errors]:
    """The errors of every baseline on the tested windows. season: steps; a longer one than the window is cut to it."""
    season = min(season, tested.look_back)
    return {
        "persistence": persistence(tested),
        f"seasonal naive ({season} step{'s' * (season != 1)})": seasonal_naive(tested, season),
        "ridge": apply_ridge(tested, best_ridge(train, valid)),
    }
