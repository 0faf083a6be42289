"""Masks equal their definitions, computed by a double loop."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.nn import masks

POSITIONS = st.lists(st.integers(0, 12), min_size=1, max_size=6)


def test_padding_masks_are_true_for_real_tokens() -> None:
    assert masks.padding(torch.tensor([2, 0, 3]), 3).tolist() == [[True, True, False], [False] * 3, [True] * 3]


@given(queries=POSITIONS, keys=POSITIONS, width=st.integers(1, 5))
def test_masks_equal_their_definitions(queries: list[int], keys: list[int], width: int) -> None:
    query, key = torch.tensor([queries]), torch.tensor([keys])
    assert masks.causal(query, key)[0].tolist() == [[j <= i for j in keys] for i in queries]
    assert masks.window(query, key, width)[0].tolist() == [[abs(i - j) <= width / 2 for j in keys] for i in queries]
    assert masks.causal_window(query, key, width)[0].tolist() == [[i - width < j <= i for j in keys] for i in queries]


def test_a_window_grows_linearly_and_a_causal_mask_quadratically() -> None:
    def sizes(time: int) -> tuple[int, int]:
        positions = torch.arange(time)[None]
        return int(masks.window(positions, positions, 2).sum()), int(masks.causal(positions, positions).sum())

    (window, causal), (window_twice, causal_twice) = sizes(100), sizes(200)
    assert window_twice / window < 2.02
    assert causal_twice / causal > 3.9
