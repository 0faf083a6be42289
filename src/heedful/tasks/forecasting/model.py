"""A forecasting model: patches of the window are the tokens of an encoder (PatchTST: Nie et al., 2023).

    z = (x - center) / scale                      of each window and variable, so that a shift of the level is no new input
    tokens = patches of z                         of one variable, or of all
    y = center + scale (head(encode(tokens)) + linear(z))

x is standardized by the mean and standard deviation of the training rows, which are stored with the weights. The linear map
takes the place of the decomposition in DLinear (Zeng et al., 2023), whose two maps are one linear map as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor, nn

from heedful.nn.dropout import Dropout
from heedful.nn.model import EncoderModel, ModelWithHead

NormalizationName = Literal["none", "last", "mean", "standard"]
EPSILON = 1e-5  # added to the variance of a window, which may be constant


class Geometry(Protocol):
    """The options of a forecasting model."""

    @property
    def known_variables(self) -> tuple[str, ...]: ...
    @property
    def patches(self) -> int: ...

    look_back: int
    horizon: int
    patch: int
    stride: int
    channels: Literal["independent", "joint"]
    normalization: NormalizationName
    linear: Literal["none", "learned", "ridge"]
    quantiles: tuple[float, ...]
    covariates: tuple[Literal["hour", "weekday", "day", "month"], ...]
    head_dropout: float


class ForecastingModel(ModelWithHead):
    """An encoder of patches with a linear layer from all of its hidden states to the horizon."""

    body: EncoderModel
    mean: Tensor
    deviation: Tensor
    ridge: Tensor

    def __init__(self, body: EncoderModel, dim: int, options: Geometry) -> None:
        super().__init__()
        self.body, self.options = body, options
        self.variables, self.outputs = len(options.known_variables), max(len(options.quantiles), 1)
        together = self.variables if options.channels == "joint" else 1
        self.dropout = Dropout(options.head_dropout)
        self.head = nn.Linear(options.patches * dim, together * options.horizon * self.outputs)
        if options.linear != "none":  # the forecast is that of the linear map at first
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

    def forward(self, window: Tensor, calendar: Tensor) -> Tensor:
        """window (rows, look_back, variables), standardized; calendar (rows, look_back, features) -> forecasts (rows, horizon,
        variables, quantiles), standardized; a forecast of the mean is one quantile."""
        center, scale = self.normalizers(window)  # (rows, 1, variables)
        z = ((window - center) / scale).transpose(1, 2)  # (rows, variables, look_back)
        change = self.read(self.body.encode(self.tokens(z, calendar))).to(z.dtype)  # (rows, variables, horizon, quantiles)
        if self.linear is not None:
            change = change + self.linear(z.to(self.mean.dtype))[..., None]
        if self.ridge.numel():
            change = change + (z @ self.ridge.to(z.dtype))[..., None]
        return change.permute(0, 2, 1, 3) * scale[..., None] + center[..., None]

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
        """z (rows, variables, look_back) -> (rows x variables, patches, features), or of joint channels (rows, patches, …)."""
        patches = z.unfold(-1, self.options.patch, self.options.stride)  # (rows, variables, patches, patch)
        known = calendar[:, self.options.patch - 1 :: self.options.stride]  # (rows, patches, features): of the last step
        if self.options.channels == "joint":
            return torch.cat((patches.transpose(1, 2).flatten(2), known), dim=-1)
        known = known[:, None].expand(-1, z.shape[1], -1, -1)  # (rows, variables, patches, features)
        return torch.cat((patches, known), dim=-1).flatten(0, 1)

    def read(self, hidden: Tensor) -> Tensor:
        """Hidden states of all patches -> (rows, variables, horizon, quantiles)."""
        out: Tensor = self.head(self.dropout(hidden.flatten(1)))
        return out.view(-1, self.variables, self.options.horizon, self.outputs)

    def batch_logits(self, source: Tensor, target: Tensor) -> Tensor:
        """Forecasts of empty windows, one for each row: (rows, horizon, variables x quantiles)."""
        rows, options = target.shape[0], self.options
        window = torch.zeros(rows, options.look_back, self.variables, device=target.device)
        calendar = torch.zeros(rows, options.look_back, 2 * len(options.covariates), device=target.device)
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
