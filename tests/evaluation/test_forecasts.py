"""Baselines of forecasts, beside the same thing computed in another way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from heedful.evaluation.forecasts import (
    Errors,
    Windows,
    apply_ridge,
    best_ridge,
    fit_ridge,
    persistence,
    products,
    seasonal_naive,
)

VALUES = np.random.default_rng(0).normal(size=(40, 2)).cumsum(0).astype(np.float32)


def test_windows_begin_early_enough_that_every_target_from_the_first_is_forecast() -> None:
    windows = Windows(VALUES, 10, look_back=6, horizon=3)
    assert len(windows) == 40 - 10 - 3 + 1
    assert np.array_equal(windows.targets(slice(0, 1))[0], VALUES[10:13])
    assert np.array_equal(windows.inputs(slice(0, 1))[0], VALUES[4:10])
    assert np.array_equal(windows.targets(slice(27, 28))[0], VALUES[37:40])
    assert len(Windows(VALUES, 0, look_back=6, horizon=3)) == 40 - 6 - 3 + 1


def test_errors_are_means_over_all_values() -> None:
    errors = Errors().add(np.zeros((1, 2, 1), np.float32), np.array([[[1.0], [-3.0]]], np.float32))
    assert (errors.mse, errors.mae, errors.terms) == (5.0, 2.0, 2)


def test_persistence_and_seasonal_naive_equal_loops() -> None:
    windows = Windows(VALUES, 10, look_back=6, horizon=5)
    last, season = [], []
    for at in range(10, 36):
        for step in range(5):
            last += (VALUES[at + step] - VALUES[at - 1]).tolist()
            season += (VALUES[at + step] - VALUES[at - 4 + step % 4]).tolist()
    assert persistence(windows).mse == pytest.approx(np.square(last).mean(), rel=1e-6)
    assert seasonal_naive(windows, 4).mae == pytest.approx(np.abs(season).mean(), rel=1e-6)


def test_ridge_minimizes_the_penalized_error() -> None:
    windows = Windows(VALUES, 0, look_back=6, horizon=3)
    weights = fit_ridge(products(windows), 2.0).astype(np.float64)

    def objective(weights: np.ndarray) -> float:
        errors = apply_ridge(windows, weights.astype(np.float32))
        return errors.squared + 2.0 * float((weights**2).sum())

    noise = np.random.default_rng(1).normal(size=(20, *weights.shape)) * 0.05
    assert all(objective(weights + one) > objective(weights) for one in noise)


def test_ridge_finds_a_linear_recurrence() -> None:
    values = np.sin(np.arange(300) / 3)[:, None].astype(np.float32)  # x[t] = 2 cos(1/3) x[t - 1] - x[t - 2]
    train, test = Windows(values[:200], 0, 8, 4), Windows(values, 200, 8, 4)
    weights = best_ridge(train, test, (1e-6, 1e6))
    assert apply_ridge(test, weights).mse < 1e-5 < persistence(test).mse


def test_ridge_with_an_infinite_penalty_is_persistence() -> None:
    train, valid = Windows(VALUES[:20], 0, 6, 3), Windows(VALUES, 20, 6, 3)
    weights = fit_ridge(products(train), math.inf)
    assert apply_ridge(valid, weights) == persistence(valid)
    assert apply_ridge(valid, best_ridge(train, valid)).mse <= persistence(valid).mse  # it is among the candidates
