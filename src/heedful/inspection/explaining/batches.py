"""How a batch is prepared, step by step.

sentence pairs -> tokens -> ids (unknown -> unk) -> + start and end -> lengths -> padding -> masks
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from heedful.inspection.explaining.stages import Cell, Explanation, Matrix, Mistake, Stage


class PreparedBatch(NamedTuple):
    """A batch and the sentence pairs it was built from."""

    texts: Sequence[tuple[str, str]]
    pieces: Sequence[tuple[Sequence[str], Sequence[str]]]  # readable tokens of source and target
    ids: Sequence[tuple[Sequence[int], Sequence[int]]]
    source: Tensor  # (pairs, source time)
    source_mask: Tensor  # (pairs, source time)
    target_in: Tensor  # (pairs, target time)
    target_out: Tensor  # (pairs, target time)
    special: dict[str, int]  # pad, start, end, unk


def explain_preparation(batch: PreparedBatch, title: str, opening: str) -> Explanation:
    names = [f"pair {number}" for number in range(1, len(batch.texts) + 1)]
    lengths = [[len(source) + 1, len(target) + 1] for source, target in batch.ids]
    special, target_time = batch.special, batch.target_in.shape[1]
    stages = [
        Stage(
            "Select sentence pairs",
            "",
            [Matrix("batch", names, ["source", "target"], batch.texts)],
            "Pairs of similar length are batched together to reduce padding.",
        ),
        Stage("Tokenize", "", source_and_target(names, batch.pieces), "A model reads tokens, not text."),
        Stage(
            "Convert tokens to ids",
            "",
            [Matrix("special", ["id"], list(special), [list(special.values())]), *source_and_target(names, batch.ids)],
            "Each token is replaced by its id in the vocabulary. A token that is not in the vocabulary gets the id of the "
            "unknown token (unk).",
        ),
        Stage(
            "Add start and end tokens",
            "source + end , start + target , target + end",
            [
                ragged_matrix("source", names, [[*source, special["end"]] for source, _ in batch.ids]),
                ragged_matrix("target_in", names, [[special["start"], *target] for _, target in batch.ids]),
                ragged_matrix("target_out", names, [[*target, special["end"]] for _, target in batch.ids]),
            ],
            "Teacher forcing: the decoder's input is the reference target shifted right by one. At each position it receives "
            "the previous tokens and is trained to predict the next one. Both sequences are one token longer than the target.",
        ),
        Stage(
            "Store the lengths",
            "",
            [Matrix("length", names, ["source", "target"], lengths)],
            "Lengths are stored before padding; after padding all rows have the same length.",
        ),
        Stage(
            "Pad",
            "",
            [
                ragged_matrix("source", names, batch.source.tolist()),
                ragged_matrix("target_in", names, batch.target_in.tolist()),
                ragged_matrix("target_out", names, batch.target_out.tolist()),
            ],
            f"Each side is padded to the length of its longest row with the padding id, {special['pad']} here. The vocabulary "
            "defines this id; it need not be 0.",
        ),
        Stage(
            "Build the masks",
            "mask_(i j) = (j < length_i)",
            [
                ragged_matrix("source mask", names, batch.source_mask.tolist()),
                ragged_matrix(
                    "loss mask", names, [[position < length for position in range(target_time)] for _, length in lengths]
                ),
            ],
            "No token attends to padding, and padding adds nothing to the loss. Masks are computed from lengths, not from ids.",
            common_mistakes(batch),
        ),
    ]
    return Explanation(title, opening, stages)


def source_and_target(names: Sequence[str], rows: Sequence[tuple[Sequence[Cell], Sequence[Cell]]]) -> list[Matrix]:
    return [
        ragged_matrix("source", names, [row[0] for row in rows]),
        ragged_matrix("target", names, [row[1] for row in rows]),
    ]


def ragged_matrix(name: str, names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Matrix:
    """A matrix of rows with different lengths; the cells after a shorter row are empty."""
    longest = max(map(len, rows), default=0)
    filled = [[*row, *[None] * (longest - len(row))] for row in rows]
    return Matrix(name, names, [str(position) for position in range(longest)], filled)


def common_mistakes(batch: PreparedBatch) -> list[Mistake]:
    names = [f"pair {number}" for number in range(1, len(batch.texts) + 1)]
    zero = next((f"the {name} token" for name, id in batch.special.items() if id == 0), "a word")
    assumed_zero = Mistake(
        "treating every id other than 0 as a real token",
        [
            ragged_matrix("source mask", names, (batch.source != 0).tolist()),
            ragged_matrix("target_in mask", names, (batch.target_in != 0).tolist()),
        ],
        f"0 is not the padding id here but {zero}: it would be masked, and the padding, {batch.special['pad']}, attended to.",
    )
    late = Mistake(
        "computing the lengths after padding",
        [Matrix("length", names, ["source"], [[batch.source.shape[1]] for _ in names])],
        "all rows then have the same length, nothing is masked, and the output for a sentence depends on the other sentences "
        "of its batch.",
    )
    unshifted = Mistake(
        "feeding the decoder the tokens that it should predict, without the shift",
        [
            ragged_matrix("decoder input", names, batch.target_out.tolist()),
            ragged_matrix("target", names, batch.target_out.tolist()),
        ],
        "the input at each position is the correct output: the decoder learns to copy it, the loss falls to 0, and the model "
        "cannot generate.",
    )
    return [assumed_zero, late, unshifted] if batch.special["pad"] else [late, unshifted]
