"""A window for analyses, with the forecast of each step as output.

    target_in    patches of one variable, or of all with joint channels; of form 'decoder' also those of its own forecasts
    outputs      the forecast of each step of one variable, in its own unit: +1, +2, …

Patches are named by their steps, counted from the start of the window: 1-8, 5-12, …; a patch of one step by that step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.tasks.encoded_example import EncodedExample, Outputs, Tokens
from heedful.tasks.forecasting.model import ForecastingModel


def encode_window(model: ForecastingModel, window: Tensor, calendar: Tensor, variable: int) -> EncodedExample:
    """window (1, look_back, variables), standardized; calendar (1, look_back + horizon, features)."""
    options, name = model.options, model.options.known_variables[variable]
    center, scale = model.normalizers(window)  # (1, 1, variables)
    z = ((window - center) / scale).transpose(1, 2)  # (1, variables, look_back)
    forecast = model(window, calendar)[..., model.middle]  # (1, horizon, variables), standardized
    known = ((forecast - center) / scale).transpose(1, 2)  # (1, variables, horizon)
    linear = model.linear_change(z)[:, variable]  # (1, horizon)
    target_in = model.tokens(model.inputs(z, known), calendar)  # (variables or 1, patches, features)
    row, part = (0, variable) if options.channels == "joint" else (variable, 0)

    def values(model: ForecastingModel, hidden: Tensor) -> Tensor:
        """Copies, because a tensor of inference mode could not be saved for a backward pass."""
        times, added, size, middle = (one.clone() for one in (calendar, linear, scale[..., variable], center[..., variable]))
        change = model.predicted(hidden, times)[:, part, :, model.middle] + added  # (rows, horizon), normalized
        standardized = change * size + middle
        return standardized * model.deviation[variable] + model.mean[variable]

    def no_logits(model: ForecastingModel, hidden: Tensor) -> Tensor:
        raise AssertionError("numbers have no logits")

    count, device = options.horizon, window.device
    none = torch.zeros(count, dtype=torch.int64, device=device)
    steps = [f"+{at}" for at in range(1, count + 1)]
    outputs = Outputs(none, steps, none, no_logits, lambda chosen: [], values=values, unit=f"the unit of {name}")
    pieces = [name_patch(at * options.stride + 1, options.patch) for at in range(target_in.shape[1])]
    places = list(range(len(pieces)))
    tokens = Tokens(f"{name}, {options.look_back} steps in {options.patches} patches", places, pieces, places)
    source = torch.zeros(1, 0, dtype=torch.int64, device=device)
    return EncodedExample(None, tokens, None, None, source, target_in[row : row + 1], outputs, reads_end=True)


def name_patch(first: int, size: int) -> str:
    return str(first) if size == 1 else f"{first}-{first + size - 1}"
