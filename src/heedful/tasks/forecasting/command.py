"""`heed forecast`: `heed predict` for forecasting."""

from __future__ import annotations

from heedful.tasks.commands import Command

COMMAND = Command(
    "forecast",
    "Forecast the steps that follow a table of time series.\n\n"
    "Reads a comma-separated table like the training data, with at least as many rows as the model looks back, and prints the "
    "steps after its last row as such a table, with a column for each quantile. Instead, each line may be a JSON object with a "
    "list for each column. --json prints one object per table.",
    "Comma-separated files, or lines of JSON, plain or .gz; - for standard input. Default: -.",
    search=(),
)
