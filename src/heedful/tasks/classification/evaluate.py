"""Logits of a classifier on encoded examples, and the figures of a validation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from heedful.evaluation import labels
from heedful.evaluation.resampling import Numbers
from heedful.tasks.classification.data import EncodedExamples, LabeledData
from heedful.tasks.classification.model import ClassificationModel
from heedful.tasks.system import System


@torch.inference_mode()
def logits_of(model: ClassificationModel, system: System, data: LabeledData, encoded: EncodedExamples) -> Numbers:
    """(examples, labels), by batches of similar lengths."""
    lengths = [max(len(row.ids) for row in group) * len(group) for group in encoded.groups]
    marks = system.target_tokenizer.specials

    def logits(chosen: list[int]) -> Numbers:
        return model(data.collate(encoded, chosen, marks).to(system.device))[0].double().cpu().numpy()

    return np.array(system.map_batches(logits, lengths, system.batch_tokens)).reshape(-1, len(data.config.labels))


def first_nonfinite(logits: Numbers) -> int | None:
    """The index of the first example whose logits are not finite."""
    wrong = ~np.isfinite(logits).all(-1)
    return int(wrong.argmax()) if wrong.any() else None


def figures_of(logits: Numbers, gold: Sequence[tuple[int, ...]], *, multi_label: bool) -> dict[str, labels.Figure]:
    """The figures of the metrics of a validation."""
    if multi_label:
        return labels.multi_label_figures(logits, gold)
    return labels.single_label_figures(logits, np.array([index for (index,) in gold]))


def finite_logits(model: ClassificationModel, system: System, data: LabeledData, encoded: EncodedExamples) -> Numbers:
    """`logits_of`, and an error if they are not finite."""
    logits = logits_of(model, system, data, encoded)
    if first_nonfinite(logits) is not None:
        raise system.nonfinite_error("an example")
    return logits


def evaluate(model: ClassificationModel, system: System, data: LabeledData, encoded: EncodedExamples) -> dict[str, float]:
    """The metrics of a validation."""
    logits = finite_logits(model, system, data, encoded)
    figures = figures_of(logits, encoded.labels, multi_label=data.config.multi_label)
    return {name: figure.statistics.value() for name, figure in figures.items()}
