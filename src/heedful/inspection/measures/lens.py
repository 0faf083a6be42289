"""Logit lens: the prediction of a decoder from the hidden states after layer l (nostalgebraist, 2020).

    prediction of layer l = project(final norm(output of layer l))

The output of layer l is patched into the output of the last layer, and the model computes the logits from there, whatever its
family does after its last layer. The prediction of the last layer is that of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.nn.hooks import patch, record
from heedful.nn.model import Model, inference_context
from heedful.tasks.encoded_example import Forward


class Lens(NamedTuple):
    names: list[str]  # of the hook points, the last layer at the end
    logits: Tensor  # (layers, outputs, choices): next tokens at each position, or labels

    def ranks(self, tokens: Tensor) -> Tensor:
        """Return the rank of these tokens in every layer: (outputs,) -> (layers, outputs); 1 is the most likely."""
        logits = self.logits.gather(-1, tokens.expand(len(self.names), -1)[..., None])
        return (self.logits > logits).sum(-1) + 1

    def probabilities(self, tokens: Tensor) -> Tensor:
        """Return the probabilities of these tokens in every layer: (outputs,) -> (layers, outputs)."""
        probabilities = self.logits.float().softmax(-1)
        return probabilities.gather(-1, tokens.expand(len(self.names), -1)[..., None])[..., 0]


def decoder_outputs(model: Model) -> list[str]:
    """Return the hook points of the outputs of the decoder layers, in order."""
    names = [output.name for output in model.layer_outputs() if output.side == "target"]
    if not names:
        raise ConfigError("this model has no hook points on the outputs of its decoder layers, which the logit lens requires")
    return names


def lens(model: Model, forward: Forward, project: Callable[[Tensor], Tensor]) -> Lens:
    """Compute the logit lens of the pass over an example. project: final hidden states (1, target time, dim) -> logits of the
    outputs (1, outputs, choices). Layers of another width than the last are skipped."""
    names = decoder_outputs(model)

    def logits() -> Tensor:
        return project(forward(model, 1).hidden)[0]  # (outputs, choices)

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
