"""Linear maps: fused ones begin as the maps that they are made of would."""

from __future__ import annotations

import math

import pytest

from heedful.nn.linear import linear


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_each_fused_map_is_as_wide_as_if_it_stood_alone(blocks: int) -> None:
    made = linear(40, 60 * blocks, blocks=blocks)
    bound = math.sqrt(6 / (40 + 60))
    for block in made.weight.detach().chunk(blocks):
        assert 0.98 * bound < block.abs().max() <= bound
        assert float(block.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert not made.bias.any()
