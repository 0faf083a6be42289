"""Series for analyses: one with its label as output, and batches of many.

target_in    x_1 … x_n, normalized as a whole       the steps, named by their numbers: #1, #2, …
outputs      the label
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from heedful.evaluation.tables import counted
from heedful.tasks.encoded_example import EncodedExample, Tokens
from heedful.tasks.forced import BATCH, EncodedSample, ForcedBatch, Pieces
from heedful.tasks.labels import label_output
from heedful.tasks.series_classification.data import EncodedSeries, SeriesBatch
from heedful.tasks.series_classification.model import SeriesModel
from heedful.tasks.system import System, batches_of


def encode_series(model: SeriesModel, frames: Tensor, label: str, known: Sequence[str], device: torch.device) -> EncodedExample:
    """frames (steps, variables) and their label; known: all labels."""
    steps = list(range(len(frames)))
    tokens = Tokens(f"a series of {counted(len(steps), 'steps')}", steps, [f"#{at + 1}" for at in steps], steps)
    vectors = frames[None].to(device)  # (1, steps, variables)
    target_in = model.normalize(vectors, torch.ones_like(vectors[..., 0], dtype=torch.bool))
    first, source = torch.zeros(1, dtype=torch.int64, device=device), torch.zeros(1, 0, dtype=torch.int64, device=device)
    outputs = label_output(known, label, first, lambda model, hidden: model.classify(hidden)[:, None])  # (rows, 1, labels)
    return EncodedExample(None, tokens, None, None, source, target_in, outputs, reads_end=True, label=label)


def series_batches(model: SeriesModel, system: System, series: EncodedSeries) -> Iterator[ForcedBatch]:
    """Batches of series with their labels, the longest first."""
    lengths = [len(frames) for frames in series.frames]
    order = sorted(range(len(lengths)), key=lambda at: -lengths[at])
    for chosen in batches_of(order, lambda at: lengths[at], BATCH):
        batch = series.batch(np.array(chosen)).to(system.device)
        steps = [list(range(lengths[at])) for at in chosen]
        samples = [EncodedSample(None, Pieces(places, places), before=0) for places in steps]
        yield ForcedBatch(samples, partial(batch_logits, model, batch), batch.labels[:, None], 0, batch.vectors.shape[1])


def batch_logits(model: SeriesModel, batch: SeriesBatch) -> Tensor:
    """(series, 1, labels)."""
    return model(batch.vectors, batch.mask)[:, None]
