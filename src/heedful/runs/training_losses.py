"""The loss of a model on part of its training data, for each task; heads are ranked by their effect on it.

for loss in training_losses(predictor, 1000):
    loss()                                 -> -log p of each sequence or label of a batch, (rows,)
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

from heedful.data.corpus_text import open_text, passages
from heedful.data.labeled import find_split_file
from heedful.data.pairs import pairs
from heedful.data.splits import splits_of
from heedful.inspection.importance import LossFunction
from heedful.runs.classifier import Classifier
from heedful.runs.predictor import Predictor
from heedful.studies.heads import losses_of
from heedful.tasks.batches import Batch, collate
from heedful.tasks.classification import LabeledBatch
from heedful.tasks.translate import batches_of

BATCH_TOKENS = 2**12


def training_losses(predictor: Predictor, count: int) -> Iterator[LossFunction]:
    """Yield a loss function for each batch of the first `count` pairs, blocks of text or examples."""
    return LOSSES[predictor.run.task.name](predictor, count)


def losses_of_pairs(predictor: Predictor, count: int) -> Iterator[LossFunction]:
    """Pairs longer than the model's maximum are left out."""
    system, data = predictor.system, predictor.run.data
    every = chain.from_iterable(pairs(corpus, max_ratio=data.max_ratio) for corpus in splits_of(data).train)
    chosen_pairs = list(islice(every, count))
    sources = system.source_tokenizer.encode_many([pair.source for pair in chosen_pairs])
    targets = system.target_tokenizer.encode_many([pair.target for pair in chosen_pairs])
    lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
    order = sorted((i for i, length in enumerate(lengths) if length <= system.max_length), key=lambda i: -lengths[i])
    specials = system.source_tokenizer.specials, system.target_tokenizer.specials
    for chosen in batches_of(order, lambda i: lengths[i], BATCH_TOKENS):
        batch = collate([sources[i] for i in chosen], [targets[i] for i in chosen], *specials).to(system.device)
        yield partial(losses_of, system, batch)


def losses_of_text(predictor: Predictor, count: int) -> Iterator[LossFunction]:
    system, block = predictor.system, predictor.run.data.block
    ids = open_text(passages(predictor.run.data, "train"), system.target_tokenizer).ids[: count * block + 1]
    rows = torch.from_numpy(ids[: (len(ids) - 1) // block * block + 1].astype(np.int64))
    inputs, targets = rows[:-1].view(-1, block), rows[1:].view(-1, block)  # (blocks, block)
    size = max(1, BATCH_TOKENS // block)
    for target_in, target_out in zip(torch.split(inputs, size), torch.split(targets, size), strict=True):
        batch = Batch(target_in[:, :0], None, target_in, target_out, target_out.numel()).to(system.device)
        yield partial(losses_of, system, batch)


def losses_of_examples(predictor: Predictor, count: int) -> Iterator[LossFunction]:
    assert isinstance(predictor, Classifier), "a run with labeled examples is a classifier"
    task, path = predictor.task, find_split_file(predictor.run.data, "train")
    assert path is not None, "a run has training data"
    encoded = task.encode(list(islice(task.examples(path), count)), predictor.system.target_tokenizer)
    for at in range(0, len(encoded.labels), predictor.run.data.batch):
        chosen = range(at, min(at + predictor.run.data.batch, len(encoded.labels)))
        yield partial(label_losses, predictor.model, task.collate(encoded, chosen).to(predictor.system.device))


def label_losses(model: Any, batch: LabeledBatch) -> Tensor:
    """-log p of each label, (examples,)."""
    logits = model(batch.tokens, batch.last, len(batch.tokens) // len(batch.labels))[0]
    return functional.cross_entropy(logits.float(), batch.labels, reduction="none")


LOSSES: dict[str, Callable[[Predictor, int], Iterator[LossFunction]]] = {
    "translation": losses_of_pairs,
    "language": losses_of_text,
    "classification": losses_of_examples,
}
