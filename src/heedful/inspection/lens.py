"""The lens: what a decoder would say if it stopped after layer l (nostalgebraist's logit lens, 2020).

    prediction of layer l = project(last norm(what layer l gives))

Nothing is rebuilt for it: what layer l gave is patched in where the last layer gives, and the model goes on from there by
itself, whatever its family puts between its last layer and its words. So the last layer's prediction is the model's own.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.inspection.attention_maps import StepModel, inference_context
from heedful.nn.hooks import hook_points, patch, record

DECODER_OUTPUTS = re.compile(r"(decoder|layers)(\.\d+)?\.out")  # what a layer gives of the tokens to be said


class LogitModel(StepModel, Protocol):
    """A model that can be led through a target and asked for words."""

    def project(self, hidden: Tensor) -> Tensor: ...


class Lens(NamedTuple):
    names: list[str]  # of the taps, the last layer at the end
    logits: Tensor  # (layers, target time, vocab)

    def ranks(self, tokens: Tensor) -> Tensor:
        """Which place each layer gives these words, (target time,) -> (layers, target time); 1: none is likelier."""
        own = self.logits.gather(-1, tokens.expand(len(self.names), -1)[..., None])
        return (self.logits > own).sum(-1) + 1

    def probabilities(self, tokens: Tensor) -> Tensor:
        """Of these words by every layer, (target time,) -> (layers, target time)."""
        shares = self.logits.float().softmax(-1)
        return shares.gather(-1, tokens.expand(len(self.names), -1)[..., None])[..., 0]


def layers_of(model: nn.Module) -> list[str]:
    """The taps on what the decoder's layers give, in their order."""
    names = [name for name in hook_points(model) if DECODER_OUTPUTS.fullmatch(name)]
    if not names:
        raise ConfigError("this model has no taps on the layers that speak, so it cannot be read layer by layer")
    return names


def lens(model: LogitModel, source: Tensor, target_in: Tensor) -> Lens:
    """source (1, source time), target_in (1, target time). A layer as wide as the last one can be read; others are left out."""
    assert isinstance(model, nn.Module), "models are modules"
    names = layers_of(model)

    def said() -> Tensor:
        return model.project(model.step(target_in, model.start(source, None, room=0)).hidden)[0]  # (target time, vocab)

    with inference_context(model):
        with record(model, *names) as seen:
            said()
        last = names[-1]
        readable = [name for name in names if seen[name].shape == seen[last].shape]
        read = []
        for name in readable:
            with patch(model, {last: seen[name]}):
                read.append(said())
    return Lens(readable, torch.stack(read))
