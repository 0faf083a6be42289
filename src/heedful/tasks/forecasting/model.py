"""A forecasting model: what all forms share. The forms themselves are in `forms.py`.

    z = (x - center) / scale                      of each window and variable, so that a shift of the level is no new input
    tokens = patches of z                         of one variable, or of all                     (PatchTST: Nie et al., 2023)
    y = center + scale (form(tokens) + linear(z))

x is standardized by the mean and standard deviation of the training rows, which are stored with the weights. The linear map
takes the place of the decomposition in DLinear (Zeng et al., 2023), whose two maps are one linear map as well. The output layer
of every form is zero at first: an untrained model forecasts the center of the window, which is persistence with normalization
"last", or what the linear map does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor, nn

from heedful.nn.dropout import Dropout
from heedful.nn.model import EncoderModel, ModelWithHead

NormalizationName = Literal["none", "last", "mean", "standard"]
MEDIAN = 0.5
EPSILON = 1e-5  # added to the variance of a window, which may be constant


class Geometry(Protocol):
    """The options of a forecasting model."""

    @property
    def known_variables(self) -> tuple[str, ...]: ...
    @property
    def patches(self) -> int: ...
    @property
    def future_patches(self) -> int: ...

    look_back: int
    horizon: int
    patch: int
    stride: int
    decoder_layers: int
    channels: Literal["independent", "joint"]
    normalization: NormalizationName
    linear: Literal["none", "learned", "ridge"]
    quantiles: tuple[float, ...]
    covariates: tuple[Literal["hour", "weekday", "day", "month"], ...]
    head_dropout: float


class ForecastingModel(ModelWithHead):
    """Base class of the forms: normalization, patches and the linear map. A form is the function `change`."""

    body: EncoderModel
    mean: Tensor
    deviation: Tensor
    ridge: Tensor

    def __init__(self, body: EncoderModel, options: Geometry, sizes: tuple[int, int]) -> None:
        """sizes: inputs of the output layer, and steps that it predicts."""
        super().__init__()
        self.body, self.options = body, options
        self.variables, self.outputs = len(options.known_variables), max(len(options.quantiles), 1)
        self.together = self.variables if options.channels == "joint" else 1  # variables of a token
        self.middle = options.quantiles.index(MEDIAN) if options.quantiles else 0  # the output that is the forecast
        self.dropout = Dropout(options.head_dropout)
        self.head = nn.Linear(sizes[0], self.together * sizes[1] * self.outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.linear = nn.Linear(options.look_back, options.horizon) if options.linear == "learned" else None
        ridge = (options.look_back, options.horizon) if options.linear == "ridge" else (0, 0)
        self.register_buffer("mean", torch.zeros(self.variables))
        self.register_buffer("deviation", torch.ones(self.variables))
        self.register_buffer("ridge", torch.zeros(ridge))

    def fit(self, values: Tensor) -> None:
        """Standardize by the mean and the standard deviation of these rows (rows, variables); a constant is only centered."""
        deviation = values.double().std(0, correction=0).to(self.deviation)
        self.mean.copy_(values.double().mean(0))
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def standardize(self, values: Tensor) -> Tensor:
        """(…, variables) -> (…, variables)."""
        return (values - self.mean) / self.deviation

    def restore(self, values: Tensor) -> Tensor:
        """The inverse of `standardize`, for outputs (…, variables, quantiles)."""
        return values * self.deviation[:, None] + self.mean[:, None]

    def forward(self, window: Tensor, calendar: Tensor, target: Tensor | None = None) -> Tensor:
        """window (rows, look_back, variables), standardized; calendar (rows, look_back + horizon, features); target (rows,
        horizon, variables), standardized: the true values, for teacher forcing, None: the model forecasts from the window alone
        -> forecasts (rows, horizon, variables, quantiles), standardized; a forecast of the mean is one quantile."""
        center, scale = self.normalizers(window)  # (rows, 1, variables)
        z = ((window - center) / scale).transpose(1, 2)  # (rows, variables, look_back)
        known = None if target is None else ((target - center) / scale).transpose(1, 2)  # (rows, variables, horizon)
        change = self.change(z, calendar, self.linear_change(z), known)  # (rows, variables, horizon, quantiles)
        return change.permute(0, 2, 1, 3) * scale[..., None] + center[..., None]

    def change(self, z: Tensor, calendar: Tensor, linear: Tensor, known: Tensor | None) -> Tensor:
        """z (rows, variables, look_back): the normalized window; linear (rows, variables, horizon): the forecast of the linear
        map, to add to; known (rows, variables, horizon): the true values, for teacher forcing -> (rows, variables, horizon,
        quantiles)."""
        raise NotImplementedError

    def linear_change(self, z: Tensor) -> Tensor:
        """(rows, variables, look_back) -> (rows, variables, horizon); zeros where there is no linear map."""
        if self.linear is not None:
            out: Tensor = self.linear(z.to(self.mean.dtype))
            return out
        if self.ridge.numel():
            return z @ self.ridge.to(z.dtype)
        return z.new_zeros(*z.shape[:2], self.options.horizon)

    def ridge_forecast(self, window: Tensor) -> Tensor | None:
        """The forecast of the ridge map alone, which the model keeps where task.linear is 'ridge': window (rows, look_back,
        variables), standardized -> (rows, horizon, variables), standardized; None: it has none."""
        if not self.ridge.numel():
            return None
        last = window[:, -1:]  # a ridge map is fitted with normalization 'last'
        return (self.linear_change((window - last).transpose(1, 2))).transpose(1, 2) + last

    def normalizers(self, window: Tensor) -> tuple[Tensor, Tensor]:
        """The center and the scale of each window and variable: (rows, 1, variables)."""
        name, last = self.options.normalization, window[:, -1:]
        if name == "none":
            return torch.zeros_like(last), torch.ones_like(last)
        if name == "last":
            return last, torch.ones_like(last)
        mean = window.mean(1, keepdim=True)
        if name == "mean":
            return mean, torch.ones_like(last)
        return mean, (window.var(1, keepdim=True, correction=0) + EPSILON).sqrt()

    def tokens(self, z: Tensor, calendar: Tensor) -> Tensor:
        """z (rows, variables, steps), calendar (rows, steps or more, features) -> (rows x variables, patches, features), or of
        joint channels (rows, patches, …)."""
        patches = z.unfold(-1, self.options.patch, self.options.stride)  # (rows, variables, patches, patch)
        known = calendar[:, self.options.patch - 1 : z.shape[-1] : self.options.stride]  # (rows, patches, features): last step
        if self.options.channels == "joint":
            return torch.cat((patches.transpose(1, 2).flatten(2), known), dim=-1)
        known = known[:, None].expand(-1, z.shape[1], -1, -1)  # (rows, variables, patches, features)
        return torch.cat((patches, known), dim=-1).flatten(0, 1)

    def read(self, hidden: Tensor) -> Tensor:
        """Hidden states (sequences, steps, inputs of the output layer) -> (sequences, together, steps x predicted steps,
        quantiles)."""
        out = self.head(self.dropout(hidden)).to(self.mean.dtype)  # (sequences, steps, together x predicted x quantiles)
        parts: Tensor = out.view(*out.shape[:2], self.together, -1, self.outputs).transpose(1, 2)  # (…, together, steps, …)
        return parts.flatten(2, 3)

    def by_row(self, predicted: Tensor) -> Tensor:
        """(sequences, together, steps, quantiles), a sequence for each row, or each row and variable
        -> (rows, variables, steps, quantiles)."""
        return predicted.reshape(-1, self.variables, *predicted.shape[2:])

    def inputs(self, z: Tensor, known: Tensor) -> Tensor:
        """The steps that one pass reads, where the horizon is known: (rows, variables, steps); a decoder also reads its
        beginning."""
        return z

    def predicted(self, hidden: Tensor, calendar: Tensor) -> Tensor:
        """Hidden states of the tokens of this pass (sequences, tokens, dim), calendar as in `forward` -> (sequences, together,
        horizon, quantiles), without the linear map."""
        raise NotImplementedError

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Forecasts of empty windows, one for each row: (rows, horizon, variables x quantiles)."""
        rows, options = target.shape[0], self.options
        window = torch.zeros(rows, options.look_back, self.variables, device=target.device)
        steps = options.look_back + options.horizon
        calendar = torch.zeros(rows, steps, 2 * len(options.covariates), device=target.device)
        return self(window, calendar).flatten(2)

    if TYPE_CHECKING:
        __call__ = forward


def forecast_losses(forecast: Tensor, target: Tensor, quantiles: Tensor | None) -> Tensor:
    """The loss of each value: forecast (rows, horizon, variables, quantiles), target (rows, horizon, variables) -> as target.

    The squared error, or of quantiles q the mean of max(q e, (q - 1) e), e = target - forecast (pinball loss)."""
    error = target[..., None] - forecast.float()
    if quantiles is None:
        return error.square().squeeze(-1)
    return torch.maximum(quantiles * error, (quantiles - 1) * error).mean(-1)
