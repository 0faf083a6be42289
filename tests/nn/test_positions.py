"""Position schemes equal their papers' formulas and published implementations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from heedful.errors import HeedfulError
from heedful.nn.attention import AttentionBias, AttentionCore
from heedful.nn.positions import (
    EMBEDDED,
    POSITIONS,
    Alibi,
    Buckets,
    Concatenated,
    Learned,
    Position,
    PositionSize,
    Relative,
    Rotary,
    Sinusoidal,
    frequencies,
    sinusoid,
)

SIZE = PositionSize(dim=16, heads=4, head_dim=8, limit=32, clip=3, reads_ahead=True)


def table(dim: int, positions: int) -> Tensor:
    """(positions, dim), in double precision."""
    return sinusoid(torch.arange(positions)[None], frequencies(dim))[0]


@pytest.mark.parametrize(
    ("dim", "third", "fourth"),
    [
        (50, [0, 0.6379, 0.9825, 0.8753], [1, 0.7701, 0.1860, -0.4835]),
        (20, [0, 0.3877, 0.7147, 0.9300], [1, 0.9218, 0.6994, 0.3676]),
        (4, [0, 0.0100, 0.0200, 0.0300], [1, 1.0000, 0.9998, 0.9996]),
    ],
)
def test_the_printed_tables_of_sinusoids(dim: int, third: list[float], fourth: list[float]) -> None:
    first, second = [0, 0.8415, 0.9093, 0.1411], [1, 0.5403, -0.4161, -0.9900]
    expected = torch.tensor([first, second, third, fourth], dtype=torch.float64).T
    assert_close(table(dim, 4)[:, :4], expected, atol=1e-4, rtol=0)


def test_sinusoids_are_added_to_embeddings() -> None:
    x, positions = torch.randn(2, 5, 16), torch.tensor([[3, 4, 5, 6, 7], [0, 1, 2, 3, 4]])
    assert_close(Sinusoidal(SIZE).embed(x, positions), x + table(16, 8)[positions].float(), atol=1e-6, rtol=0)


def test_a_shift_of_sinusoids_is_a_rotation() -> None:
    pe, waves = table(50, 60), frequencies(50)
    for distance in (1, 7, 30):
        cos, sin = (waves * distance).cos(), (waves * distance).sin()
        blocks = torch.stack((torch.stack((cos, sin), -1), torch.stack((-sin, cos), -1)), -2)  # (pairs, 2, 2)
        rotated = torch.einsum("kij,pkj->pki", blocks, pe[:-distance].view(-1, 25, 2)).flatten(-2)
        assert_close(rotated, pe[distance:], atol=1e-12, rtol=0)
        assert_close(torch.linalg.det(blocks), torch.ones(25, dtype=torch.float64), atol=1e-12, rtol=0)
        if distance == 1:
            golden = torch.tensor([[0.7701, 0.6379], [-0.6379, 0.7701]], dtype=torch.float64)
            assert_close(blocks[1], golden, atol=1e-4, rtol=0)


def test_products_of_sinusoids_depend_on_the_distance_only() -> None:
    pe = table(128, 40)
    products = pe @ pe.T
    assert_close(products, products.T)
    assert_close(products[1:, 1:], products[:-1, :-1])  # Toeplitz
    golden = torch.tensor([64, 62.0937, 57.3819, 52.1862, 48.5860, 47.1850], dtype=torch.float64)
    assert_close(products[0, :6], golden, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("dim", "decreasing"), [(20, 4), (50, 5), (128, 11), (512, 43)])
def test_products_of_sinusoids_first_decrease_with_distance(dim: int, decreasing: int) -> None:
    products = table(dim, decreasing + 2) @ table(dim, decreasing + 2)[0]
    assert (products.diff()[:decreasing] < 0).all()
    assert products.diff()[decreasing] >= 0


def test_periods_run_from_two_pi_to_ten_thousand_times_that() -> None:
    waves = frequencies(512)
    assert float(2 * math.pi / waves[0]) == pytest.approx(2 * math.pi)
    assert float(2 * math.pi / waves[-1]) == pytest.approx(10000 ** (510 / 512) * 2 * math.pi)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["sinusoidal", "rotary"])
def test_far_positions_stay_distinct_in_half_precision(name: str, dtype: torch.dtype) -> None:
    """Angles stay in single precision when the model is cast."""
    scheme, positions = POSITIONS[name](SIZE), torch.arange(900, 905)[None]
    x = torch.randn(1, 2, 5, 8) if name == "rotary" else torch.randn(1, 5, 16)

    def apply(scheme: Position, x: Tensor) -> Tensor:
        return scheme.rotate(x, positions) if name == "rotary" else scheme.embed(x, positions)

    expected = apply(scheme, x)
    assert_close(apply(scheme.to(dtype), x.to(dtype)).float(), expected, atol=0.05, rtol=0)


def test_learned_positions_are_rows_of_a_table_with_a_limit() -> None:
    scheme, x, positions = Learned(SIZE), torch.randn(2, 3, 16), torch.tensor([[5, 6, 7], [0, 1, 31]])
    assert_close(scheme.embed(x, positions), x + scheme.table.weight[positions])
    scheme.check_length(32)
    with pytest.raises(HeedfulError, match="33 tokens was given to a model with 32 learned positions"):
        scheme.check_length(33)


@pytest.mark.parametrize("name", [name for name in POSITIONS if name != "learned"])
def test_other_schemes_have_no_limit(name: str) -> None:
    POSITIONS[name](SIZE).check_length(10**6)
    assert POSITIONS[name](SIZE).limit is None


@pytest.mark.parametrize("name", EMBEDDED)
def test_concatenation_generalizes_the_sum(name: str) -> None:
    """W [x; p] = W_x x + W_p p, so with W_x = W_p = 1 it is x + p."""
    scheme = POSITIONS[name](SIZE)
    joined = Concatenated(SIZE, scheme)
    x, positions = torch.randn(2, 5, 16), torch.arange(5)[None]
    assert not torch.allclose(joined.embed(x, positions), scheme.embed(x, positions), atol=1e-2)
    with torch.no_grad():
        joined.join.weight.copy_(torch.eye(16).repeat(1, 2))
    assert_close(joined.embed(x, positions), scheme.embed(x, positions), atol=1e-6, rtol=0)
    assert joined.limit == scheme.limit


def attend(scheme: Position, x: tuple[Tensor, Tensor, Tensor], positions: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention with a position scheme; x: query, key, value (rows, heads, time, head_dim)."""
    query, key, value = scheme.rotate(x[0], positions), scheme.rotate(x[1], positions), x[2]
    bias = scheme.bias(query, positions, positions)
    mix = (lambda weights: scheme.mix(weights, positions, positions)) if scheme.mixes else None
    return AttentionCore(0.0)(query, key, value, AttentionBias(mask, False, bias, mix))


@pytest.mark.parametrize("reads_ahead", [True, False])
@pytest.mark.parametrize("name", ["relative", "t5", "rotary", "alibi"])
def test_relative_schemes_depend_on_distances_only(name: str, reads_ahead: bool) -> None:
    scheme = POSITIONS[name](SIZE._replace(reads_ahead=reads_ahead))
    x = torch.randn(2, 4, 6, 8), torch.randn(2, 4, 6, 8), torch.randn(2, 4, 6, 8)
    positions = torch.arange(6)[None]
    expected = attend(scheme, x, positions)
    assert_close(attend(scheme, x, positions + 100), expected, atol=1e-4, rtol=0)
    assert_close(attend(scheme, x, positions + torch.tensor([[3], [17]])), expected, atol=1e-4, rtol=0)
    assert (attend(scheme, x, 2 * positions) - expected).abs().max() > 1e-3


def test_shaw_equals_the_double_loop_of_the_formula() -> None:
    scheme, positions = Relative(SIZE), torch.tensor([[2, 3, 4, 5, 6, 9]])
    query, key, value = torch.randn(3, 2, 4, 6, 8)
    out = attend(scheme, (query, key, value), positions)
    for row, head, i in [(row, head, i) for row in range(2) for head in range(4) for i in range(6)]:
        clipped = [max(-3, min(3, int(positions[0, j] - positions[0, i]))) + 3 for j in range(6)]
        scores = torch.stack([query[row, head, i] @ (key[row, head, j] + scheme.key[clipped[j]]) for j in range(6)])
        weights = (scores / math.sqrt(8)).softmax(0)
        expected = sum((weights[j] * (value[row, head, j] + scheme.value[clipped[j]]) for j in range(6)), torch.zeros(8))
        assert_close(out[row, head, i], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("reads_ahead", [True, False])
def test_buckets_equal_those_of_t5(reads_ahead: bool) -> None:
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    distance = torch.arange(-300, 301)
    expected = modeling.T5Attention._relative_position_bucket(distance, reads_ahead, num_buckets=32, max_distance=128)
    assert Buckets(SIZE._replace(reads_ahead=reads_ahead)).bucket(distance).tolist() == expected.tolist()


def test_a_bucket_has_one_bias_per_head() -> None:
    scheme = Buckets(SIZE)
    bias = scheme.bias(torch.randn(2, 4, 3, 8), torch.tensor([[4, 5, 6]]), torch.tensor([[4, 5, 6]]))
    assert_close(bias[0, :, 0, 2], scheme.table.weight[scheme.bucket(torch.tensor(2))])
    assert scheme.bias(torch.randn(2, 3, 3, 8), torch.tensor([[4, 5, 6]]), torch.tensor([[4, 5, 6]])).shape[1] == 3


def test_rotary_is_a_rotation_in_the_complex_plane() -> None:
    x, positions = torch.randn(2, 4, 5, 8), torch.tensor([[0, 1, 2, 3, 4], [9, 9, 30, 2, 1]])
    angles = positions[:, None, :, None] * frequencies(8)  # (2, 1, 5, 4)
    rotated = torch.view_as_complex(x.double().view(2, 4, 5, 4, 2)) * torch.polar(torch.ones_like(angles), angles)
    assert_close(Rotary(SIZE).rotate(x, positions), torch.view_as_real(rotated).flatten(-2).float(), atol=1e-5, rtol=0)


def test_slopes_of_alibi_are_the_published_ones() -> None:
    assert Alibi.slopes(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert Alibi.slopes(16).tolist() == pytest.approx([2 ** (-half / 2) for half in range(1, 17)])


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 20])
def test_slopes_of_alibi_equal_those_of_bloom(heads: int) -> None:
    modeling = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    built = modeling.build_alibi_tensor(torch.ones(1, 3), heads, torch.float32)  # (heads, 1, keys): slope x key
    assert Alibi.slopes(heads).tolist() == pytest.approx(built[:, 0, 1].tolist())


def test_alibi_subtracts_its_slope_times_the_distance() -> None:
    queries, keys = torch.tensor([[4, 5]]), torch.tensor([[3, 4, 5, 9]])
    bias = Alibi(SIZE).bias(torch.randn(1, 4, 2, 8), queries, keys)
    expected = [[[-slope * abs(i - j) for j in (3, 4, 5, 9)] for i in (4, 5)] for slope in Alibi.slopes(4).tolist()]
    assert_close(bias, torch.tensor([expected]))
