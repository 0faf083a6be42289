"""Claims about long sources: COPY of 20 symbols, tested with more symbols than in training, or with as many as a fixed vector
cannot hold.

A fixed vector has to hold all symbols, so it fails soon after the trained lengths. A reversed source generalizes further,
because the decoder starts right after the encoder has read the first symbols, and a longer source only adds symbols at the far
end. Attention has no such limit within the trained lengths. Beyond them it depends on what the scores depend on. Bahdanau's
model counts the symbols left; a larger count than any in training is taken for a smaller one, so that symbols are skipped. Two
kinds of attention need no count: Luong's local-m, a window that moves with the target position, and a Transformer with clipped
relative positions, which finds the next symbol by the symbols before it.

Trained lengths are tested with at least three symbols, because there are few shorter sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from claims import SEEDS, Evidence, by_seed
from claims.learning import MODELS, evaluate, learn
from heedful.data.toys import Pair, copy, sample

PAIRS, TRIED = 30_000, 500
STEPS, WIDE_STEPS = 2500, 2000
SYMBOLS = 20
LONGEST = 6  # of the training data
WIDE = 12  # the same, more than a fixed vector learns
OTHER_SEEDS = (4, 5, 6)  # where a length was selected with the first three
CLIP = 2  # maximum distance of relative positions
RADIUS = 1  # of the window of local-m
Shares = Mapping[str, float]  # exact sentences at the trained lengths, "trained", and at single lengths, "8"


def draw_pairs(lengths: Sequence[int], split: str, count: int) -> list[Pair]:
    return list(sample(partial(copy, lengths=lengths, symbols=SYMBOLS), split, count))


def exact_by_seed(
    folder: Path,
    model: Mapping[str, Any],
    single: Sequence[int],
    *,
    longest: int = LONGEST,
    steps: int = STEPS,
    pairs: int = PAIRS,
    seeds: Sequence[int] = SEEDS,
) -> list[Shares]:
    """Train with every seed on 1 to `longest` symbols; single: lengths to test beside the trained ones."""
    train = draw_pairs(range(1, longest + 1), "train", pairs)
    tests = {"trained": draw_pairs(range(3, longest + 1), "test", TRIED)}
    tests |= {str(length): draw_pairs([length], "test", TRIED) for length in single}
    runs = [learn(folder / str(seed), train, model, steps=steps, seed=seed) for seed in seeds]
    return [{what: evaluate(run, some).exact for what, some in tests.items()} for run in runs]


def figures_of(rows: Mapping[str, Sequence[Shares]]) -> dict[str, str]:
    """The shares of each model, by length and seed."""
    return {
        f"{name}: exact at {f'length {what}' if what.isdigit() else 'trained lengths'}": shares
        for name, some in rows.items()
        for what, shares in by_seed(some).items()
    }


def fixed_vector(folder: Path) -> Evidence:
    exact = {
        name: exact_by_seed(folder / name, MODELS["sutskever"] | {"reverse": name == "reversed"}, (6, 8, 10))
        for name in ("forward", "reversed")
    }
    return Evidence(
        figures_of(exact), collapses(exact["forward"]) and reversal_does_not_hurt(exact["forward"], exact["reversed"])
    )


def collapses(rows: Sequence[Shares]) -> bool:
    """Whether each seed has learned the trained lengths, and fails beyond them."""
    return all(row["trained"] >= 0.95 and row["8"] <= row["6"] / 2 and row["10"] <= 0.1 for row in rows)


def reversal_does_not_hurt(forward: Sequence[Shares], reversed_: Sequence[Shares]) -> bool:
    """Whether each seed is at most a point worse at the trained lengths, and has learned them, too."""
    pairs = zip(forward, reversed_, strict=True)
    return all(other["trained"] >= max(0.95, one["trained"] - 0.01) for one, other in pairs)


def bahdanau(folder: Path) -> Evidence:
    fixed = MODELS["sutskever"] | {"dim": 88}  # 130,944 parameters; Bahdanau: 128,896
    attention, fixed_vector = (
        exact_by_seed(folder / name, model, (6, 12, 14, 16), longest=WIDE, steps=WIDE_STEPS, seeds=OTHER_SEEDS)
        for name, model in (("bahdanau", MODELS["bahdanau"]), ("fixed", fixed))
    )
    figures = figures_of({"Bahdanau": attention, "fixed vector": fixed_vector})
    return Evidence(figures, has_no_drop(attention) and keeps_more(attention, fixed_vector, "14"))


def has_no_drop(rows: Sequence[Shares]) -> bool:
    """Whether each seed is at most five points worse at 12 symbols than at 6."""
    return all(row["12"] >= row["6"] - 0.05 and row["6"] >= 0.95 for row in rows)


def local_attention(folder: Path) -> Evidence:
    model = MODELS["luong"] | {"scope": "local-m", "radius": RADIUS}
    return compare_with_fixed_vector(folder, "local-m", model, dim=80)  # 108,800 parameters; local-m: 99,392


def relative_positions(folder: Path) -> Evidence:
    model = MODELS["transformer"] | {"position": "relative", "relative_clip": CLIP}
    return compare_with_fixed_vector(folder, "relative", model, dim=104)  # 181,376 parameters; Transformer: 171,072


def compare_with_fixed_vector(folder: Path, name: str, model: Mapping[str, Any], *, dim: int) -> Evidence:
    """dim: of the fixed vector, for at least as many parameters. It has the reversed source, which generalizes further."""
    attention, fixed = (
        exact_by_seed(folder / what, options, (8, 10, 12))
        for what, options in ((name, model), ("fixed", MODELS["sutskever"] | {"dim": dim}))
    )
    return Evidence(figures_of({name: attention, "fixed vector": fixed}), keeps_length(attention, fixed))


def keeps_length(attention: Sequence[Shares], fixed: Sequence[Shares]) -> bool:
    """Whether both models have learned the trained lengths with each seed, and attention keeps more at 10 symbols."""
    return all(row["trained"] >= 0.95 for row in (*attention, *fixed)) and keeps_more(attention, fixed, "10")


def keeps_more(attention: Sequence[Shares], fixed: Sequence[Shares], length: str) -> bool:
    """Whether attention has 80% with each seed, at a length where the fixed vector has at most 25%."""
    return all(row[length] >= 0.8 for row in attention) and all(row[length] <= 0.25 for row in fixed)
