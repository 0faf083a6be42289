"""`heed new forecasting`."""

from __future__ import annotations

import math

from heedful.tasks.base import Starter

RECIPE = """\
# Forecasting. Replace series.csv by your own file; about 10,000 rows and three minutes of two CPU cores are a start.

[data]
form = "series"
train = { file = "series.csv" }       # comma-separated, plain or .gz; relative to this folder
time = "date"                         # the column of the time; all others are numbers
parts = [0.7, 0.15, 0.15]             # train, valid, test in the order of time; or numbers of rows
batch = 32                            # windows

[task]
name = "forecasting"
look_back = 48                        # rows that a forecast is made from; more for your own file, such as 336
horizon = 12                          # rows to forecast
patch = 8                             # rows of one token
stride = 4
quantiles = [0.1, 0.5, 0.9]           # remove it to forecast the mean only
normalization = "standard"

[tokenizer]
kind = "words"                        # of the names of the variables; a series has no text

[model]
family = "encoder"
features = 8                          # task.patch
dim = 32
layers = ["self-attention", "self-attention"]
heads = 4
feed_forward = 64
position = "learned"
dropout = 0.2

[training]
minutes = 3                           # the schedule is shortened to fit
steps = 10000
save_every = 250
validate_every = 250
metric = "mse"

[training.schedule]
name = "linear"
learning_rate = 1e-3
warmup = 100
"""
ROWS, WINDOW = 480, 48


def example_rows() -> list[tuple[str, str, str]]:
    """Hours of a load that is high by day, and of a temperature that lags behind it."""
    rows = []
    for hour in range(ROWS):
        day, turn = divmod(hour, 24)
        angle = 2 * math.pi * turn / 24
        load = 50 - 20 * math.cos(angle) + 5 * math.sin(2 * angle) + 3 * math.sin(hour * hour)  # the last term looks random
        temperature = 15 - 6 * math.cos(angle - 0.7) + 2 * math.sin(day)
        rows.append((f"2024-05-{1 + day:02} {turn:02}:00", f"{load:.1f}", f"{temperature:.1f}"))
    return rows


EXAMPLES = "date,load,temperature\n" + "".join(f"{','.join(row)}\n" for row in example_rows())
DATES, LOADS, TEMPERATURES = zip(*example_rows()[-WINDOW:], strict=True)
INPUT = (
    f'{{"date": [{", ".join(f"{date!r}" for date in DATES)}], '.replace("'", '"')
    + f'"load": [{", ".join(LOADS)}], "temperature": [{", ".join(TEMPERATURES)}]}}'
)

STARTER = Starter(RECIPE, {"series.csv": EXAMPLES}, INPUT)
