"""Choose tokens of each sequence and hide them (Devlin et al., 2019).

    chosen      exactly max(1, round(rate x candidates)) tokens of a sequence; special tokens are no candidates
    replaced    by the mask token with probability `masked`, by a random token with probability `random`, else unchanged

Unknown tokens are special here: BERT's own code may choose [UNK], but a mask is never filled with it, and it would count as a
correct prediction. Byte-level vocabularies, as RoBERTa's, have none.

The number of slots for predictions is fixed by the length and the rate, so all batches have one shape. The random numbers
of a sequence are a function of a key and of its place in the text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError
from heedful.tasks.masked.model import prediction_slots
from heedful.text.tokenizer import Tokenizer

Ids = NDArray[np.int64]
Key = tuple[int, int]


class Masking(NamedTuple):
    """How tokens are chosen and replaced."""

    rate: float
    masked: float
    random: float
    mask: int  # id of the mask token
    pad: int
    special: NDArray[np.bool_]  # (vocab,): True for special tokens


class MaskedRows(NamedTuple):
    tokens: Ids  # (rows, time): chosen tokens are replaced
    places: Ids  # (rows, slots): positions of the chosen tokens; those of unused slots have no meaning
    targets: Ids  # (rows, slots): the original tokens; padding in unused slots


def make_masking(config: Any, tokenizer: Tokenizer) -> Masking:
    """The masking of a task's config with the ids of a tokenizer."""
    mask = tokenizer.specials.mask
    if mask is None:
        raise ConfigError(
            "the tokenizer has no mask token; expected one that was trained for task 'masked'",
            hint="remove training.init, or start from a run of task 'masked'",
        )
    special = np.zeros(len(tokenizer), np.bool_)
    special[[id for id in tokenizer.specials if id is not None]] = True
    return Masking(config.rate, config.masked, config.random, mask, tokenizer.specials.pad, special)


def draw_uniform(key: Key, places: Ids, count: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) for sequences at the given places of a text: (rows, count)."""
    return np.stack(
        [np.random.Generator(np.random.Philox(key=key, counter=[0, 0, int(place), 0])).random(count) for place in places]
    )


def mask_rows(rows: Ids, key: Key, places: Ids, masking: Masking) -> MaskedRows:
    """Choose and replace tokens of rows (rows, time); places (rows,): where each sequence is in the text."""
    time = rows.shape[1]
    slots = prediction_slots(masking.rate, time)
    draws = draw_uniform(key, places, time + 2 * slots)  # (rows, time + 2 x slots)
    order, fate, other = np.split(draws, [time, time + slots], axis=1)
    candidate = ~masking.special[rows]  # (rows, time)
    chosen = np.argsort(np.where(candidate, order, 1.0), axis=1, kind="stable")[:, :slots]  # (rows, slots): candidates first
    candidates = candidate.sum(1)
    count = np.minimum(np.maximum(1, np.rint(masking.rate * candidates)), candidates)  # (rows,)
    used = np.arange(slots) < count[:, None]
    originals = np.take_along_axis(rows, chosen, 1)  # (rows, slots)
    ordinary = np.flatnonzero(~masking.special)
    drawn = ordinary[(other * len(ordinary)).astype(np.int64)]
    hidden = np.where(fate < masking.masked, masking.mask, np.where(fate < masking.masked + masking.random, drawn, originals))
    tokens = rows.copy()
    np.put_along_axis(tokens, chosen, np.where(used, hidden, originals), 1)
    return MaskedRows(tokens, chosen, np.where(used, originals, masking.pad))
