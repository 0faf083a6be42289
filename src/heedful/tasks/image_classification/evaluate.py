"""Logits of an image classifier, and the figures of a validation."""

from __future__ import annotations

import numpy as np
import torch

from heedful.evaluation import labels
from heedful.evaluation.resampling import Numbers
from heedful.tasks.image_classification.data import ImageSet
from heedful.tasks.image_classification.model import ImageModel
from heedful.tasks.system import System

BATCH = 256  # images at a time


@torch.inference_mode()
def logits_of(model: ImageModel, system: System, images: ImageSet) -> Numbers:
    """(images, labels); an error if they are not finite."""

    def batch_logits(at: int) -> Numbers:
        batch = images.batch(np.arange(at, min(at + BATCH, len(images.rows)))).to(system.device)
        return model(batch.pixels).double().cpu().numpy()

    logits = np.concatenate(system.ranks.map(batch_logits, range(0, len(images.rows), BATCH)))
    if not np.isfinite(logits).all():
        raise system.nonfinite_error("an image")
    return logits


def figures_of(logits: Numbers, images: ImageSet) -> dict[str, labels.Figure]:
    """The figures of the metrics of a validation."""
    return labels.single_label_figures(logits, images.labels)
