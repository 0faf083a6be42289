"""Logit lens: the prediction of a decoder from the hidden states after layer l (nostalgebraist, 2020).

    prediction of layer l = project(final norm(output of layer l))

The output of layer l is patched into the output of the last layer, and the model computes the logits from there, whatever its
family does after its last layer. The prediction of the last layer is that of the model.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.inspection.attention_maps import StepModel, inference_context
from heedful.nn.hooks import hook_points, patch, record

DECODER_OUTPUTS = re.compile(r"(decoder|layers)(\.\d+)?\.out")  # outputs of decoder layers


class LogitModel(StepModel, Protocol):
    """A model that decodes a given target and returns logits."""

    def project(self, hidden: Tensor) -> Tensor: ...


class Lens(NamedTuple):
    names: list[str]  # of the hook points, the last layer at the end
    logits: Tensor  # (layers, target time, vocab)

    def ranks(self, tokens: Tensor) -> Tensor:
        """Return the rank of these tokens in every layer: (target time,) -> (layers, target time); 1 is the most likely."""
        logits = self.logits.gather(-1, tokens.expand(len(self.names), -1)[..., None])
        return (self.logits > logits).sum(-1) + 1

    def probabilities(self, tokens: Tensor) -> Tensor:
        """Return the probabilities of these tokens in every layer: (target time,) -> (layers, target time)."""
        probabilities = self.logits.float().softmax(-1)
        return probabilities.gather(-1, tokens.expand(len(self.names), -1)[..., None])[..., 0]


def layers_of(model: nn.Module) -> list[str]:
    """Return the hook points of the outputs of the decoder layers, in order."""
    names = [name for name in hook_points(model) if DECODER_OUTPUTS.fullmatch(name)]
    if not names:
        raise ConfigError("this model has no hook points on the outputs of its decoder layers, which the logit lens requires")
    return names


def lens(model: LogitModel, source: Tensor, target_in: Tensor) -> Lens:
    """Compute the logit lens. source (1, source time), target_in (1, target time). Layers of another width than the last are
    skipped."""
    assert isinstance(model, nn.Module), "models are modules"
    names = layers_of(model)

    def logits() -> Tensor:
        return model.project(model.step(target_in, model.start(source, None, room=0)).hidden)[0]  # (target time, vocab)

    with inference_context(model):
        with record(model, *names) as recorded:
            logits()
        last = names[-1]
        selected = [name for name in names if recorded[name].shape == recorded[last].shape]
        predictions = []
        for name in selected:
            with patch(model, {last: recorded[name]}):
                predictions.append(logits())
    return Lens(selected, torch.stack(predictions))
