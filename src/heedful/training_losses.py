"""The loss of a model on some of its own training data, for each task: by what it grows, heads are ranked.

for surprise in surprises(worker, 1000):
    surprise()                                 -> -log p of each sequence or label of a batch, (rows,)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from heedful.classifier import Classifier
from heedful.data.corpus_text import open_text, passages
from heedful.data.labeled import find_split_file
from heedful.data.pairs import pairs
from heedful.data.splits import splits_of
from heedful.inspection.importance import LossFunction
from heedful.predictor import Predictor
from heedful.studies.heads import losses_of
from heedful.tasks.batches import Batch, collate
from heedful.tasks.classification import LabeledBatch
from heedful.tasks.translate import batches_of

BATCH = 2**12  # tokens at once


def training_losses(worker: Predictor, count: int) -> Iterator[LossFunction]:
    """Of the first so many pairs, blocks of text or examples."""
    return SAMPLES[worker.run.task.name](worker, count)


def of_pairs(worker: Predictor, count: int) -> Iterator[LossFunction]:
    """Those that the model can read."""
    system, data = worker.system, worker.run.data
    found = chain.from_iterable(pairs(corpus, max_ratio=data.max_ratio) for corpus in splits_of(data).train)
    some = list(islice(found, count))
    sources = system.source_tokenizer.encode_many([pair.source for pair in some])
    targets = system.target_tokenizer.encode_many([pair.target for pair in some])
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    order = sorted((i for i, length in enumerate(lengths) if length <= system.max_length), key=lambda i: -lengths[i])
    specials = system.source_tokenizer.specials, system.target_tokenizer.specials
    for chosen in batches_of(order, lambda i: lengths[i], BATCH):
        batch = collate([sources[i] for i in chosen], [targets[i] for i in chosen], *specials).to(system.device)
        yield partial(losses_of, system, batch)


def of_text(worker: Predictor, count: int) -> Iterator[LossFunction]:
    system, block = worker.system, worker.run.data.block
    ids = open_text(passages(worker.run.data, "train"), system.target_tokenizer).ids[: count * block + 1]
    rows = torch.from_numpy(ids[: (len(ids) - 1) // block * block + 1].astype(np.int64))
    inputs, targets = rows[:-1].view(-1, block), rows[1:].view(-1, block)  # (blocks, block)
    several = max(1, BATCH // block)
    for some, wanted in zip(torch.split(inputs, several), torch.split(targets, several), strict=True):
        batch = Batch(some[:, :0], None, some, wanted, wanted.numel()).to(system.device)
        yield partial(losses_of, system, batch)


def of_examples(worker: Predictor, count: int) -> Iterator[LossFunction]:
    assert isinstance(worker, Classifier), "whoever has labeled examples classifies"
    task, path = worker.task, find_split_file(worker.run.data, "train")
    assert path is not None, "a run has training data"
    encoded = task.encode(list(islice(task.examples(path), count)), worker.system.target_tokenizer)
    for at in range(0, len(encoded.labels), worker.run.data.batch):
        chosen = range(at, min(at + worker.run.data.batch, len(encoded.labels)))
        yield partial(losses_of_labels, worker.model, task.collate(encoded, chosen).to(worker.system.device))


def losses_of_labels(model: Any, batch: LabeledBatch) -> Tensor:
    logits = model(batch.tokens, batch.last, len(batch.tokens) // len(batch.labels))[0]
    return functional.cross_entropy(logits.float(), batch.labels, reduction="none")


SAMPLES: dict[str, Callable[[Predictor, int], Iterator[LossFunction]]] = {
    "translation": of_pairs,
    "language": of_text,
    "classification": of_examples,
}
