"""A batch of labeled examples as tensors. An example is a group of one or several sequences, see data.py."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.nn import masks


class LabeledBatch(NamedTuple):
    tokens: Tensor  # (examples x group, time)
    segments: Tensor  # (examples x group, time): the text, or the sentence, that each token belongs to, from 0
    last: Tensor  # (examples x group,): index of the last real token
    labels: Tensor  # (examples,): index of the label; with several labels per text (examples, labels): 1 for each of them
    spelling: Tensor  # (examples x group, time, bytes): of the word of each token; no bytes: the model reads none
    tokens_per_example: Tensor  # (examples,): tokens to predict in the batch / its examples, also in a part of it

    @property
    def group(self) -> int:
        """Number of sequences of each example."""
        return self.tokens.shape[0] // self.labels.shape[0]

    @property
    def mask(self) -> Tensor | None:
        """(examples x group, time): True for real tokens; on a CPU, where the test is free, None if nothing is padded."""
        time = self.tokens.shape[1]
        if self.tokens.device.type == "cpu" and not torch.compiler.is_compiling() and bool((self.last == time - 1).all()):
            return None
        return masks.padding(self.last + 1, time)

    def pin(self) -> LabeledBatch:
        return LabeledBatch(*(tensor.pin_memory() for tensor in self))

    def to(self, device: torch.device) -> LabeledBatch:
        return LabeledBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    def examples(self, start: int, end: int) -> LabeledBatch:
        """The examples from start to end."""
        rows = slice(start * self.group, end * self.group)
        return LabeledBatch(
            self.tokens[rows],
            self.segments[rows],
            self.last[rows],
            self.labels[start:end],
            self.spelling[rows],
            self.tokens_per_example[start:end],
        )
