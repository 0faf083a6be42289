"""Loss and accuracy of a classifier on encoded examples."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from heedful.tasks.classification.data import EncodedExamples, LabeledData
from heedful.tasks.classification.model import ClassificationModel
from heedful.tasks.system import System

EVALUATION_BATCH = 64


@torch.inference_mode()
def evaluate(model: ClassificationModel, system: System, data: LabeledData, encoded: EncodedExamples) -> dict[str, float]:
    """Mean loss and accuracy."""
    loss, correct = 0.0, 0
    order = sorted(range(len(encoded.labels)), key=lambda i: max(map(len, encoded.groups[i])))
    for at in range(0, len(order), EVALUATION_BATCH):
        batch = data.collate(encoded, order[at : at + EVALUATION_BATCH], system.target_tokenizer.specials.pad).to(system.device)
        logits = model(batch.tokens, batch.last, len(batch.tokens) // len(batch.labels))[0].float()
        loss += float(functional.cross_entropy(logits, batch.labels, reduction="sum"))
        correct += int((logits.argmax(-1) == batch.labels).sum())
    if not math.isfinite(loss):
        raise system.nonfinite_error("an example")
    return {"loss": loss / len(order), "accuracy": correct / len(order)}
