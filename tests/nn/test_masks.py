"""Masks say where one may look; each equals its sentence, written out as a double loop."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.nn import masks

POSITIONS = st.lists(st.integers(0, 12), min_size=1, max_size=6)


def test_padding_marks_what_is_real() -> None:
    assert masks.padding(torch.tensor([2, 0, 3]), 3).tolist() == [[True, True, False], [False] * 3, [True] * 3]


@given(queries=POSITIONS, keys=POSITIONS, width=st.integers(1, 5))
def test_each_mask_is_what_its_sentence_says(queries: list[int], keys: list[int], width: int) -> None:
    query, key = torch.tensor([queries]), torch.tensor([keys])
    assert masks.causal(query, key)[0].tolist() == [[j <= i for j in keys] for i in queries]
    assert masks.window(query, key, width)[0].tolist() == [[abs(i - j) <= width / 2 for j in keys] for i in queries]
    assert masks.causal_window(query, key, width)[0].tolist() == [[i - width < j <= i for j in keys] for i in queries]


def test_doubling_the_length_doubles_what_a_window_sees_and_squares_the_rest() -> None:
    def seen(time: int) -> tuple[int, int]:
        positions = torch.arange(time)[None]
        return int(masks.window(positions, positions, 2).sum()), int(masks.causal(positions, positions).sum())

    (near, row_state), (near_twice, past_twice) = seen(100), seen(200)
    assert near_twice / near < 2.02
    assert past_twice / row_state > 3.9
