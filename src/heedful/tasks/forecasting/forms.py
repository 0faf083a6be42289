"""The forms of a forecasting model: how the horizon is predicted from the patches of the window.

    encoder            one linear layer maps the hidden states of all patches to the whole horizon         (PatchTST)
    decoder            a causal model predicts the next patch; its own forecasts are the following inputs
    encoder-decoder    a query for each future patch attends to the other queries and to the encoded window

A decoder is trained with the true values as inputs (teacher forcing) and all patches of the horizon at once. Windows are
normalized by themselves, so patches within a window are not predicted in training: their normalization contains later values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from heedful.nn.attention import AttentionBias, CrossAttention
from heedful.nn.blocks import NORMS, FeedForward
from heedful.nn.layers import Layers
from heedful.nn.linear import linear
from heedful.nn.model import CROSS, AttentionLayer, EncoderModel
from heedful.nn.sequence_layers import FullAttention, LayerSize
from heedful.tasks.forecasting.model import ForecastingModel, Geometry

FormName = Literal["encoder", "decoder", "encoder-decoder"]


class DirectForecaster(ForecastingModel):
    def __init__(self, body: EncoderModel, dim: int, options: Geometry) -> None:
        super().__init__(body, options, (options.patches * dim, options.horizon))

    def change(self, z: Tensor, calendar: Tensor, linear: Tensor, known: Tensor | None) -> Tensor:
        hidden = self.body.encode(self.tokens(z, calendar))  # (sequences, patches, dim)
        return self.by_row(self.predicted(hidden, calendar)) + linear[..., None]

    def predicted(self, hidden: Tensor, calendar: Tensor) -> Tensor:
        return self.read(hidden.flatten(1)[:, None])


class AutoregressiveForecaster(ForecastingModel):
    def __init__(self, body: EncoderModel, dim: int, options: Geometry) -> None:
        super().__init__(body, options, (dim, options.patch))

    def change(self, z: Tensor, calendar: Tensor, linear: Tensor, known: Tensor | None) -> Tensor:
        if known is not None:
            hidden = self.body.encode(self.tokens(self.inputs(z, known), calendar))  # (sequences, patches + …, dim)
            return self.by_row(self.predicted(hidden, calendar)) + linear[..., None]
        parts: list[Tensor] = []  # each (rows, variables, up to a patch, quantiles)
        for at in range(0, self.options.horizon, self.options.patch):
            hidden = self.body.encode(self.tokens(z, calendar))[:, -1:]  # (sequences, 1, dim)
            base = linear[..., at : at + self.options.patch, None]
            parts.append(self.by_row(self.read(hidden))[:, :, : base.shape[2]] + base)
            z = torch.cat((z, parts[-1][..., self.middle]), -1)
        return torch.cat(parts, 2)

    def inputs(self, z: Tensor, known: Tensor) -> Tensor:
        return torch.cat((z, known[..., : (self.options.future_patches - 1) * self.options.patch]), -1)

    def predicted(self, hidden: Tensor, calendar: Tensor) -> Tensor:
        return self.read(hidden[:, -self.options.future_patches :])[:, :, : self.options.horizon]


class QueryLayer(nn.Module):
    """Self-attention of the queries, attention to the window, feed-forward; sizes are those of the encoder."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        dim, heads, residual = config.dim, config.size.heads, NORMS[config.norm]
        self.mix = FullAttention(LayerSize(dim=dim, heads=heads))
        self.mix_residual = residual(dim, config.dropout)
        self.cross_attention = CrossAttention(dim, heads, dim // heads, dropout=0.0)
        self.cross_attention_residual = residual(dim, config.dropout)
        self.feed_forward = FeedForward(dim, config.feed_forward or 4 * dim, "gelu", dropout=0.0)
        self.feed_forward_residual = residual(dim, config.dropout)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        """x (sequences, queries, dim), memory (sequences, patches, dim) -> as x."""
        key, value = self.cross_attention.project_memory(memory)
        x = self.mix_residual(x, lambda x: self.mix(x, None))
        x = self.cross_attention_residual(x, lambda x: self.cross_attention(x, key, value, AttentionBias()))
        return self.feed_forward_residual(x, self.feed_forward)

    if TYPE_CHECKING:
        __call__ = forward


class QueryForecaster(ForecastingModel):
    def __init__(self, body: EncoderModel, dim: int, options: Geometry) -> None:
        super().__init__(body, options, (dim, options.patch))
        config = body.config
        self.query = nn.Parameter(torch.randn(options.future_patches, dim) / dim**0.5)
        self.calendar = linear(2 * len(options.covariates), dim) if options.covariates else None
        self.decoder = Layers(QueryLayer(config) for _ in range(options.decoder_layers))
        self.decoder_last = NORMS[config.norm].last(dim)

    def change(self, z: Tensor, calendar: Tensor, linear: Tensor, known: Tensor | None) -> Tensor:
        hidden = self.body.encode(self.tokens(z, calendar))  # (sequences, patches, dim)
        return self.by_row(self.predicted(hidden, calendar)) + linear[..., None]

    def predicted(self, hidden: Tensor, calendar: Tensor) -> Tensor:
        x = self.query.to(hidden.dtype).expand(hidden.shape[0], -1, -1)  # (sequences, future patches, dim)
        if self.calendar is not None:
            ends = torch.arange(1, self.options.future_patches + 1, device=hidden.device) * self.options.patch
            ends = ends.clamp(max=self.options.horizon) + self.options.look_back - 1  # the last step of each future patch
            times = self.calendar(calendar[:, ends])  # (rows, future patches, dim)
            x = x + times.repeat_interleave(hidden.shape[0] // calendar.shape[0], 0).to(x.dtype)
        for layer in self.decoder:
            x = layer(x, hidden)
        return self.read(self.decoder_last(x))[:, :, : self.options.horizon]

    def attentions(self) -> list[AttentionLayer]:
        own = [one for at, layer in enumerate(self.decoder) for one in self.attention(CROSS, at, layer.cross_attention)]
        return [*super().attentions(), *own]


FORMS: dict[FormName, type[DirectForecaster] | type[AutoregressiveForecaster] | type[QueryForecaster]] = {
    "encoder": DirectForecaster,
    "decoder": AutoregressiveForecaster,
    "encoder-decoder": QueryForecaster,
}
