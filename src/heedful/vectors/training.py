"""Learning word vectors from a text: epochs of updates at a rate that falls in a line.

The same text, config and number of threads give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from heedful.errors import DataError
from heedful.nn.losses import Loss
from heedful.schema import Config, Count, NonNegativeNumber, PositiveNumber, Seed, Size, SmallCount
from heedful.text.tokenizer import Tokenizer
from heedful.vectors import skipgram
from heedful.vectors.sampling import batches, choose_words
from heedful.vectors.table import Vectors
from heedful.vectors.tokens import Tokens, token_names

TELL_EVERY = 64  # batches; the loss is computed on these alone
READ = 5_000_000  # tokens; vectors that were moved less often still lie all together
FEWEST, MOST = 5, 100  # epochs, of however long or short a text
SLOWEST = 1e-4  # of the rate, at the end


class VectorsConfig(Config):
    dim: Size = 100
    """Size of a vector."""
    window: Size = 5
    """Maximum distance of context words."""
    negatives: SmallCount = 5
    """Negative samples per pair."""
    epochs: Count | None = None
    """Passes over the text; default: more for a shorter text."""
    min_count: Count = 5
    """Minimum frequency of a word."""
    subsample: NonNegativeNumber = 1e-4
    """Threshold for subsampling frequent words; 0: none."""
    rate: PositiveNumber = 0.05
    """Initial learning rate."""
    seed: Seed = 1
    """Seed of all random numbers."""


class Told(NamedTuple):
    """How far training is."""

    epoch: int  # from 0
    done: float  # of all epochs
    rate: float
    loss: Loss  # of one batch


def epochs_for(tokens: int) -> int:
    return min(max(FEWEST, -(-READ // max(tokens, 1))), MOST)


def train_vectors(
    tokens: Tokens, tokenizer: Tokenizer, config: VectorsConfig, tell: Callable[[Told], None] = lambda told: None
) -> Vectors:
    """Vectors of the tokens that are frequent enough; special tokens have none."""
    vocabulary = choose_words(tokens.counts, config.min_count, tuple(tokenizer.specials))
    if len(vocabulary.ids) < 2:
        raise DataError(
            f"{len(vocabulary.ids)} words occur {config.min_count} times; expected at least two",
            hint="lower --min-count, or give more text",
        )
    generator = torch.Generator().manual_seed(config.seed)
    tables = skipgram.new_tables(len(vocabulary.ids), config.dim, generator)
    options = {"window": config.window, "negatives": config.negatives}
    epochs = config.epochs or epochs_for(tokens.total)
    for epoch in range(epochs):
        shown = batches(tokens, vocabulary, generator, **options, subsample=config.subsample)
        for number, (batch, part) in enumerate(shown):
            done = (epoch + part) / epochs
            rate = config.rate * max(1.0 - done, SLOWEST)
            if number % TELL_EVERY == 0:
                tell(Told(epoch, done, rate, skipgram.loss(tables, batch)))
            skipgram.update(tables, batch, rate)
    names = token_names(tokenizer)
    return Vectors([names[id] for id in vocabulary.ids], tables.inner)
