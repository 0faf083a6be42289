"""Training of word vectors, with a linearly decaying learning rate.

The same text, config and number of threads give bit-identical vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from heedful.config.base import Config, Count, NonNegativeNumber, PositiveNumber, Seed, Size, SmallCount
from heedful.errors import DataError
from heedful.nn.losses import Loss
from heedful.text.tokenizer import Tokenizer
from heedful.vectors import skipgram
from heedful.vectors.sampling import batches, choose_words
from heedful.vectors.table import Vectors
from heedful.vectors.tokens import Tokens, token_names

REPORT_EVERY = 64  # batches; the loss is computed on these only
TARGET_TOKENS = 5_000_000  # tokens of all epochs together; with fewer, vectors are still close to each other
MIN_EPOCHS, MAX_EPOCHS = 5, 100  # for a text of any length
MIN_FACTOR = 1e-4  # of the learning rate, at the end


class VectorsConfig(Config):
    dim: Size = 100
    """Size of a vector."""
    window: Size = 5
    """Maximum distance of context words; the actual one is random for each word."""
    negatives: SmallCount = 5
    """Negative samples per pair."""
    epochs: Count | None = None
    """Number of epochs; default: more for a shorter text."""
    min_count: Count = 5
    """Minimum frequency of a word."""
    subsample: NonNegativeNumber = 1e-4
    """Threshold for subsampling frequent words; 0: none."""
    learning_rate: PositiveNumber = 0.05
    """Initial learning rate."""
    seed: Seed = 1
    """Seed of all random numbers."""


class VectorsStep(NamedTuple):
    """The progress of training."""

    epoch: int  # from 0
    done: float  # fraction of all epochs
    learning_rate: float
    loss: Loss  # of one batch


def default_epochs(tokens: int) -> int:
    return min(max(MIN_EPOCHS, -(-TARGET_TOKENS // max(tokens, 1))), MAX_EPOCHS)


def train_vectors(
    tokens: Tokens, tokenizer: Tokenizer, config: VectorsConfig, report: Callable[[VectorsStep], None] = lambda step: None
) -> Vectors:
    """Train vectors of the tokens that occur at least min_count times, except special tokens."""
    vocabulary = choose_words(tokens.counts, config.min_count, tuple(id for id in tokenizer.specials if id is not None))
    if len(vocabulary.ids) < 2:
        raise DataError(
            f"{len(vocabulary.ids)} words occur at least {config.min_count} times; expected at least two such words",
            hint="lower --min-count, or give more text",
        )
    generator = torch.Generator().manual_seed(config.seed)
    tables = skipgram.new_tables(len(vocabulary.ids), config.dim, generator)
    options = {"window": config.window, "negatives": config.negatives}
    epochs = config.epochs or default_epochs(tokens.total)
    for epoch in range(epochs):
        epoch_batches = batches(tokens, vocabulary, generator, **options, subsample=config.subsample)
        for number, (batch, part) in enumerate(epoch_batches):
            done = (epoch + part) / epochs
            learning_rate = config.learning_rate * max(1.0 - done, MIN_FACTOR)
            if number % REPORT_EVERY == 0:
                report(VectorsStep(epoch, done, learning_rate, skipgram.loss(tables, batch)))
            skipgram.update(tables, batch, learning_rate)
    names = token_names(tokenizer)
    return Vectors([names[id] for id in vocabulary.ids], tables.inner)
