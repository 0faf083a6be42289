"""A batch being prepared, in the order in which it must happen.

pairs -> tokens -> ids (unknown -> unk) -> + start and end -> lengths -> padding -> masks
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from heedful.inspection.explaining.stages import Cell, Explanation, Matrix, Mistake, Stage


class Prepared(NamedTuple):
    """A batch, with what it was made of; one entry a pair."""

    texts: Sequence[tuple[str, str]]
    pieces: Sequence[tuple[Sequence[str], Sequence[str]]]  # tokens of both sides, readable
    ids: Sequence[tuple[Sequence[int], Sequence[int]]]
    source: Tensor  # (pairs, source time)
    source_mask: Tensor  # (pairs, source time)
    target_in: Tensor  # (pairs, target time)
    target_out: Tensor  # (pairs, target time)
    special: dict[str, int]  # pad, start, end, unk


def preparation(batch: Prepared, title: str, opening: str) -> Explanation:
    names = [f"pair {number}" for number in range(1, len(batch.texts) + 1)]
    lengths = [[len(source) + 1, len(target) + 1] for source, target in batch.ids]
    special, target_time = batch.special, batch.target_in.shape[1]
    stages = [
        Stage(
            "Draw pairs",
            "",
            [Matrix("batch", names, ["source", "target"], batch.texts)],
            "Pairs of like length are drawn together, so that little is padded.",
        ),
        Stage("Cut into tokens", "", sides(names, batch.pieces), "A model reads tokens, not text."),
        Stage(
            "Look up ids",
            "",
            [Matrix("special", ["id"], list(special), [list(special.values())]), *sides(names, batch.ids)],
            "Each token has its number in the vocabulary; one that is not there becomes the unknown token, here and now: later "
            "there is no text left to look at.",
        ),
        Stage(
            "Add start and end",
            "source + end , start + target , target + end",
            [
                cells("source", names, [[*source, special["end"]] for source, _ in batch.ids]),
                cells("target_in", names, [[special["start"], *target] for _, target in batch.ids]),
                cells("target_out", names, [[*target, special["end"]] for _, target in batch.ids]),
            ],
            "The decoder is fed the target shifted by one: at each place it sees what came before and should say what comes "
            "next. Both are one token longer than the target.",
        ),
        Stage(
            "Note the lengths",
            "",
            [Matrix("length", names, ["source", "target"], lengths)],
            "They are noted before anything is padded, because afterwards all rows are equally long.",
        ),
        Stage(
            "Pad",
            "",
            [
                cells("source", names, batch.source.tolist()),
                cells("target_in", names, batch.target_in.tolist()),
                cells("target_out", names, batch.target_out.tolist()),
            ],
            f"Each side is filled up to its longest row with the padding id, which is {special['pad']} here: it is whatever "
            "the vocabulary says, and 0 may be something else.",
        ),
        Stage(
            "Make the masks",
            "mask_(i j) = (j < length_i)",
            [
                cells("source mask", names, batch.source_mask.tolist()),
                cells("loss counts", names, [[place < length for place in range(target_time)] for _, length in lengths]),
            ],
            "Nobody looks at padding, and padding costs nothing. Masks come from lengths, not from ids.",
            usual_mistakes(batch),
        ),
    ]
    return Explanation(title, opening, stages)


def sides(names: Sequence[str], rows: Sequence[tuple[Sequence[Cell], Sequence[Cell]]]) -> list[Matrix]:
    return [cells("source", names, [row[0] for row in rows]), cells("target", names, [row[1] for row in rows])]


def cells(name: str, names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Matrix:
    """Rows of different lengths, with nothing behind the shorter ones."""
    longest = max(map(len, rows), default=0)
    filled = [[*row, *[None] * (longest - len(row))] for row in rows]
    return Matrix(name, names, [str(place) for place in range(longest)], filled)


def usual_mistakes(batch: Prepared) -> list[Mistake]:
    names = [f"pair {number}" for number in range(1, len(batch.texts) + 1)]
    zero = next((f"the {name}" for name, id in batch.special.items() if id == 0), "a word")
    assumed = Mistake(
        "taking every id that is not 0 for real",
        [
            cells("source mask", names, (batch.source != 0).tolist()),
            cells("target_in mask", names, (batch.target_in != 0).tolist()),
        ],
        f"0 is not the padding here, but {zero}: it would be hidden, and the padding, {batch.special['pad']}, looked at.",
    )
    late = Mistake(
        "noting the lengths after padding",
        [Matrix("length", names, ["source"], [[batch.source.shape[1]] for _ in names])],
        "all rows are equally long then, every mask is full, and what a sentence means depends on its neighbors.",
    )
    unshifted = Mistake(
        "feeding the decoder what it should say, without the shift",
        [cells("fed", names, batch.target_out.tolist()), cells("to say", names, batch.target_out.tolist())],
        "every answer stands in the question: the loss falls to 0 and nothing has been learned.",
    )
    return [assumed, late, unshifted] if batch.special["pad"] else [late, unshifted]
