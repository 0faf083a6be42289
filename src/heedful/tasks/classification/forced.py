"""Texts of a classifier for analyses: one with its label as output, and the labels of many.

one label         outputs    the label                          logits of all labels
several labels    outputs    for each label, no or yes          logits [0, z] of no and yes: p(yes) = sigmoid(z)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from heedful.tasks.classification.batch import LabeledBatch
from heedful.tasks.classification.config import ClassificationConfig
from heedful.tasks.classification.model import ClassificationModel
from heedful.tasks.encoded_example import Outputs
from heedful.tasks.labels import label_output

CHOICES = ["no", "yes"]  # of each label, with multi_label
NO_LABELS = "(no label)"
SEPARATOR = "\t"  # between the labels of a sample


def label_text(labels: Sequence[str]) -> str:
    """The labels of a text as one text."""
    return ", ".join(labels) or NO_LABELS


def make_outputs(config: ClassificationConfig, labels: Sequence[str], step: Tensor) -> Outputs:
    """The outputs of a text with these labels; step (1,): the position that its state is read from."""
    names, several = config.labels, config.multi_label
    if not several:
        return label_output(names, labels[0], step, partial(classify, False))
    given = [int(name in labels) for name in names]
    pieces = [f"{name}: {CHOICES[one]}" for name, one in zip(names, given, strict=True)]
    return Outputs(
        torch.tensor(given, device=step.device),
        pieces,
        step.expand(len(names)),
        partial(classify, True),
        lambda chosen: [CHOICES[i] for i in chosen],
    )


def choice_logits(logits: Tensor, multi_label: bool) -> Tensor:
    """Logits of the labels (rows, labels) -> of the choices of each output: (rows, 1, labels), or with multi_label (rows,
    labels, 2)."""
    return torch.stack((torch.zeros_like(logits), logits), dim=-1) if multi_label else logits[:, None]


def classify(multi_label: bool, model: ClassificationModel, hidden: Tensor) -> Tensor:
    """Hidden states of texts without padding (rows, time, dim) -> logits of the outputs (rows, outputs, choices)."""
    return choice_logits(model.head(model.features(hidden, None)), multi_label)


def batch_logits(model: ClassificationModel, batch: LabeledBatch) -> Tensor:
    """Logits of the outputs of each example, (examples, outputs, choices)."""
    return choice_logits(model(batch)[0], batch.labels.ndim > 1)


def batch_targets(batch: LabeledBatch) -> Tensor:
    """The correct choice of each output, (examples, outputs)."""
    return batch.labels.long() if batch.labels.ndim > 1 else batch.labels[:, None]
