"""Masked language modeling by hand: which tokens of a text are chosen, and what each becomes (Devlin et al., 2019).

The choice is that of training: the numbers come from `mask_rows`, which task "masked" uses, with a fixed seed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from heedful.inspection.explaining.stages import Cell, Check, Explanation, Matrix, Mistake, Stage
from heedful.tasks.masked.config import MaskedConfig
from heedful.tasks.masked.masking import MaskedRows, Masking, draw_uniform, mask_rows
from heedful.tasks.masked.model import prediction_slots
from heedful.text.specials import MASK, SPECIALS

TEXT = "the cat sat on the mat while an old man read a long book about the sea by the window"
TOKENS = ["<s>", *TEXT.split(), "</s>"]
NAMES = [*SPECIALS, MASK]
VOCABULARY = [*NAMES, *sorted({*TEXT.split(), "dog", "green", "house", "quickly", "rain", "seven", "sleeps", "under"})]
SEED = 31  # all three replacements occur, which three tokens rarely show
EPOCHS = 2000  # drawn for the statistics
WIDTH = 11  # tokens of a row of a table


def masking() -> Explanation:
    config = MaskedConfig(name="masked")
    special = np.array([name in NAMES for name in VOCABULARY])
    how = Masking(config.rate, config.masked, config.random, VOCABULARY.index(MASK), VOCABULARY.index("<pad>"), special)
    row = np.array([[VOCABULARY.index(token) for token in TOKENS]])  # (1, time)
    place = np.zeros(1, np.int64)
    time, slots = row.shape[1], prediction_slots(how.rate, row.shape[1])
    draws = draw_uniform((SEED, 0), place, time + 2 * slots)[0]
    result = mask_rows(row, (SEED, 0), place, how)
    count = int((result.targets[0] != how.pad).sum())
    places = result.places[0, :count]
    candidates = int((~special[row[0]]).sum())
    stages = [
        Stage(
            "Choose tokens",
            f"n = max(1, round({how.rate:g} N)) , N = {candidates} , n = {count}",
            draw_tables(draws[:time], special[row[0]], places),
            f"Each of the {candidates} tokens besides start and end draws a number from [0, 1); the {count} smallest are "
            "chosen. So every token is equally likely, and every sequence of this length has the same number of predictions. "
            "A new epoch draws new numbers (dynamic masking, Liu et al., 2019).",
            [chosen_independently(how.rate, candidates)],
            [check_choice(draws[:time], special[row[0]], places)],
        ),
        Stage(
            "Replace them",
            f"u < {how.masked:g} -> mask , u < {how.masked + how.random:g} -> random , else unchanged",
            [fate_table(row[0], result, draws[time : time + slots], count, how)],
            f"A chosen token becomes the mask token with probability {how.masked:g}, a random token with probability "
            f"{how.random:g}, and otherwise stays. A model that is used later reads no masks: the last two cases make it "
            "represent every token, since any of them may have to be predicted.",
        ),
        Stage(
            "Input and targets",
            "loss = -sum_(t in chosen) ln p_t(y_t)",
            input_tables(row[0], result.tokens[0], places),
            "The encoder reads the whole altered text in both directions. Only the chosen tokens are predicted; the others, "
            "which it can read, are no targets.",
        ),
        statistics(row, how, candidates),
    ]
    opening = f"'{TEXT}', with seed {SEED}, chosen to show all cases, and a vocabulary of {len(VOCABULARY)} tokens."
    return Explanation("Masking: which tokens a masked language model predicts", opening, stages)


def rows_of(names: list[str], tokens: list[str], rows: list[list[Cell]], form: str = ".2f") -> list[Matrix]:
    """Tables of at most WIDTH columns: a column for each token, rows (names, tokens)."""
    parts = range(0, len(tokens), WIDTH)
    cut = [Matrix("", names, tokens[at : at + WIDTH], [row[at : at + WIDTH] for row in rows], form=form) for at in parts]
    return [part._replace(name=f"from {at}") for part, at in zip(cut, parts, strict=True)]


def draw_tables(draws: NDArray[np.float64], special: NDArray[np.bool_], places: NDArray[np.int64]) -> list[Matrix]:
    numbers: list[Cell] = [None if hidden else float(value) for value, hidden in zip(draws, special, strict=True)]
    chosen: list[Cell] = ["chosen" if at in places else None for at in range(len(TOKENS))]
    return rows_of(["draw", ""], TOKENS, [numbers, chosen])


def check_choice(draws: NDArray[np.float64], special: NDArray[np.bool_], places: NDArray[np.int64]) -> Check:
    """The chosen tokens are those of the smallest draws."""
    expected = sorted(np.flatnonzero(~special), key=lambda at: draws[at])[: len(places)]
    return Check("the choice of tokens", float(len({*expected} ^ {*places.tolist()})), 1.0)


def fate_table(row: NDArray[np.int64], result: MaskedRows, fates: NDArray[np.float64], count: int, how: Masking) -> Matrix:
    cells: list[list[Cell]] = []
    for at, u in zip(result.places[0, :count], fates[:count], strict=True):
        became = VOCABULARY[result.tokens[0, at]]
        case = "mask" if u < how.masked else "random" if u < how.masked + how.random else "unchanged"
        cells.append([int(at), float(u), case, became])
    tokens = [VOCABULARY[row[at]] for at in result.places[0, :count]]
    return Matrix("token", tokens, ["place", "u", "case", "becomes"], cells)


def input_tables(row: NDArray[np.int64], tokens: NDArray[np.int64], places: NDArray[np.int64]) -> list[Matrix]:
    given: list[Cell] = [VOCABULARY[id] for id in tokens]
    targets: list[Cell] = [VOCABULARY[row[at]] if at in places else None for at in range(len(row))]
    return rows_of(["input", "target"], [str(at) for at in range(len(row))], [given, targets])


def statistics(row: NDArray[np.int64], how: Masking, candidates: int) -> Stage:
    """Shares over many epochs, against their expectation in standard deviations."""
    masked = mask_rows(np.repeat(row, EPOCHS, 0), (SEED, 1), np.arange(EPOCHS), how)
    used = masked.targets != how.pad  # (epochs, slots)
    became = np.take_along_axis(masked.tokens, masked.places, 1)[used]  # (chosen tokens of all epochs,)
    total, kept = len(became), masked.targets[used]
    ordinary = int((~how.special).sum())
    stays = 1 - how.masked - how.random
    shares = [
        ("chosen", total / (EPOCHS * candidates), round(how.rate * candidates) / candidates, 0),
        ("mask", float((became == how.mask).mean()), how.masked, total),
        ("another token", float(((became != how.mask) & (became != kept)).mean()), how.random * (1 - 1 / ordinary), total),
        ("the same token", float((became == kept).mean()), stays + how.random / ordinary, total),
    ]
    cells: list[list[Cell]] = []
    largest = 0.0
    for _, share, expected, cases in shares:
        deviation = math.sqrt(expected * (1 - expected) / cases) if cases else None
        difference = (share - expected) / deviation if deviation else None
        largest = max(largest, abs(difference or 0.0))
        cells.append([share, expected, deviation, difference])
    return Stage(
        "Over many epochs",
        "s^2 = frac(p (1 - p), n)",
        [Matrix("share", [name for name, *_ in shares], ["drawn", "expected", "s", "difference / s"], cells)],
        f"{EPOCHS:,} epochs of this text choose {total:,} tokens. The first share is of all tokens, and exact; the others are "
        f"of the chosen tokens, and at most {largest:.1f} standard deviations s from their expectation. A random token is the "
        f"same one in 1 of {ordinary} cases.",
    )


def chosen_independently(rate: float, candidates: int) -> Mistake:
    """Binomial instead of a fixed number."""
    chances = [math.comb(candidates, n) * rate**n * (1 - rate) ** (candidates - n) for n in range(7)]
    columns = [*map(str, range(7)), "more"]
    return Mistake(
        f"choosing each token independently with probability {rate:g}",
        [Matrix("tokens chosen", ["probability"], columns, [[*chances, 1 - sum(chances)]], shaded=True)],
        f"the number of predictions differs from sequence to sequence, and {chances[0]:.1%} of sequences of {candidates} "
        "tokens would have none.",
    )
