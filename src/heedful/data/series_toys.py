"""Generated time series whose best possible forecast is known.

brownian   three coordinates, each the sum of independent steps with variance 1: the best forecast is the last value, and
           the squared error of one step ahead, summed over the coordinates, is 3 at best
sines      two sines with a trend and noise: the error of the best forecast is the variance of the noise
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

SeriesToy = Literal["brownian", "sines"]
Table = NDArray[np.float64]  # (rows, variables)
NOISE = 0.1  # standard deviation of the noise of sines


def brownian(rows: int, generator: np.random.Generator) -> Table:
    return generator.normal(size=(rows, 3)).cumsum(0)


def sines(rows: int, generator: np.random.Generator) -> Table:
    step = np.arange(rows, dtype=np.float64)
    clean = np.sin(2 * np.pi * step / 24) + 0.5 * np.sin(2 * np.pi * step / 7) + 1e-3 * step
    return (clean + NOISE * generator.normal(size=rows))[:, None]


SERIES: dict[str, tuple[tuple[str, ...], Callable[[int, np.random.Generator], Table]]] = {  # names of the variables, generator
    "brownian": (("x", "y", "z"), brownian),
    "sines": (("value",), sines),
}
