"""Positional encodings: sinusoids against closed forms, other schemes against their definitions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tiny import PLAIN, Variant, by_family, tiny_model
from torch.testing import assert_close

from heedful.inspection.drawing.figure import Heatmap, Label, color
from heedful.inspection.drawing.plots import save
from heedful.inspection.drawing.position_figures import SchemeResult, dimensions, figures, position_figure, scheme_figures
from heedful.inspection.measures.position_shifts import pair_maps, recover_rotations, rotations, shift_error, shift_map
from heedful.inspection.measures.positions import (
    by_distance,
    cosines,
    encoding,
    extrapolation,
    schemes,
    scores,
    shape_of,
    vectors,
)
from heedful.inspection.measures.probes import probe
from heedful.nn.positions import POSITIONS, Alibi, Position, PositionSize, frequencies, sinusoid

SIZE = PositionSize(dim=128, heads=4, head_dim=16, limit=64, clip=8, reads_ahead=True)


def scheme(name: str, size: PositionSize = SIZE) -> Position:
    torch.manual_seed(3)
    return POSITIONS[name](size)


def test_the_similarity_of_sinusoids_is_a_sum_of_cosines_of_the_distance() -> None:
    result = by_distance(scores(scheme("sinusoidal"), 40))
    expected = (torch.arange(40.0)[:, None] * frequencies(128)).cos().sum(1)
    assert_close(result, expected, atol=1e-4, rtol=0)
    known = torch.tensor([64, 62.0937, 57.3819, 52.1862, 48.5860, 47.1850], dtype=torch.float64)
    assert_close(result[:6], known, atol=1e-4, rtol=0)
    assert_close(by_distance(cosines(scores(scheme("sinusoidal"), 40))), expected / 64, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["sinusoidal", "rotary", "alibi"])
def test_schemes_of_distance_only_are_toeplitz_and_symmetric(name: str) -> None:
    result = shape_of(scores(scheme(name, SIZE._replace(head_dim=64)), 48))
    assert result.toeplitz_error < 1e-6 and result.symmetry_error < 1e-6
    assert result.distance_correlation is not None and result.distance_correlation < -0.7


def test_a_random_table_is_not_toeplitz_and_uncorrelated_with_distance() -> None:
    result = shape_of(scores(scheme("learned"), 64))
    assert result.toeplitz_error > 0.3
    assert result.distance_correlation is not None and abs(result.distance_correlation) < 0.2


def test_directional_schemes_are_not_symmetric() -> None:
    for name in ("relative", "t5"):
        result = shape_of(scores(scheme(name), 32))
        assert result.toeplitz_error < 1e-6 and result.symmetry_error > 1e-3
        causal = shape_of(scores(scheme(name, SIZE._replace(reads_ahead=False)), 32))
        assert causal.symmetry_error < 1e-9  # future keys are masked


def test_without_positional_encoding_scores_are_constant() -> None:
    result = scores(scheme("none"), 16)
    assert shape_of(result).distance_correlation is None and result.std() == 0


def test_encodings_equal_the_values_of_the_schemes() -> None:
    waves = frequencies(16).float()
    rotary, alibi = encoding(scheme("rotary"), 50), encoding(scheme("alibi"), 5)
    assert_close(rotary.values, torch.arange(50.0)[:, None] * waves, atol=1e-3, rtol=0)
    distances = torch.arange(-4.0, 5.0)
    assert alibi.first == -4 and alibi.columns == "head"
    assert_close(alibi.values, -distances.abs()[:, None] * Alibi.slopes(4))
    relative = scheme("relative")
    encoded = encoding(relative, 12)
    clipped = torch.arange(-11, 12).clamp(-8, 8) + 8
    assert encoded.columns == "dimension of the query"
    assert_close(encoded.values, relative.get_parameter("key")[clipped] / math.sqrt(16))
    learned = scheme("learned")
    assert_close(encoding(learned, 20).values, learned.get_parameter("table.weight")[:20])


def test_the_rotation_of_a_shift_is_recovered_from_the_vectors() -> None:
    waves = frequencies(50)
    table = sinusoid(torch.arange(300), waves)
    for shift in (1, 7):
        result = pair_maps(table[:-shift], table[shift:])
        assert_close(result, rotations(waves, shift), atol=1e-9, rtol=0)
        assert_close(torch.linalg.det(result), torch.ones(25, dtype=torch.float64))
    known = torch.tensor([[0.7701, 0.6379], [-0.6379, 0.7701]], dtype=torch.float64)
    assert_close(pair_maps(table[:-1], table[1:])[1], known, atol=5e-5, rtol=0)


def test_the_shift_is_one_block_diagonal_map_at_all_positions() -> None:
    waves, draws = frequencies(50), torch.Generator().manual_seed(0)
    places = torch.randint(0, 200_000, (2000,), generator=draws)
    result = shift_map(sinusoid(places, waves), sinusoid(places + 3, waves))
    expected = torch.block_diag(*rotations(waves, 3))  # type: ignore[no-untyped-call]
    assert_close(result, expected, atol=1e-8, rtol=0)


def test_every_pair_of_a_sinusoid_rotates_by_its_frequency_and_noise_does_not() -> None:
    waves = frequencies(16)
    for shift in (1, 10):
        result = recover_rotations(sinusoid(torch.arange(100), waves), shift)
        expected = torch.remainder(waves * shift + math.pi, 2 * math.pi) - math.pi
        assert_close(torch.tensor([one.degrees for one in result]).double(), expected.rad2deg(), atol=1e-4, rtol=0)
        assert max(one.missed for one in result) < 1e-9
    torch.manual_seed(0)
    assert min(one.missed for one in recover_rotations(torch.randn(400, 16), 1)) > 0.8


def test_only_an_ordered_table_has_a_shift_map() -> None:
    noise = torch.randn(256, 32, generator=torch.Generator().manual_seed(1))
    assert shift_error(sinusoid(torch.arange(256), frequencies(32)), 2) < 1e-5
    assert shift_error(noise, 2) > 0.8


@pytest.mark.parametrize(("count", "dim"), [(128, 64), (512, 128)])
def test_probes_predict_positions_from_sinusoids_but_not_from_noise(count: int, dim: int) -> None:
    ordered = probe(sinusoid(torch.arange(count), frequencies(dim)))
    noise = probe(torch.randn(count, dim, generator=torch.Generator().manual_seed(2)))
    assert ordered.index_error < 0.1 and ordered.order_error < 0.02
    assert noise.index_chance == pytest.approx(count / 4, rel=0.05)
    assert noise.index_error > 0.9 * noise.index_chance
    assert 0.35 < noise.order_error < 0.65


def test_probes_are_invariant_to_scale() -> None:
    table = sinusoid(torch.arange(128), frequencies(64))
    assert probe(table * 1e-3) == pytest.approx(probe(table), abs=1e-6)


def test_extrapolation_of_every_scheme() -> None:
    result = {name: extrapolation(scheme(name), 40) for name in POSITIONS}
    assert result["learned"].refused == "a sequence of 80 tokens was given to a model with 64 learned positions"
    assert result["none"].unseen == 0.0
    assert result["alibi"].unseen == 1.0  # the bias keeps falling
    assert result["relative"].unseen == 0.0  # all distances are clipped
    assert 0.0 < (result["sinusoidal"].unseen or 0) < 1.0 and 0.0 < (result["rotary"].unseen or 0) < 1.0  # low frequencies
    assert all(one.refused is None for name, one in result.items() if name != "learned")
    assert extrapolation(scheme("t5"), 128).unseen == 0.0  # one bucket for all large distances


@pytest.mark.parametrize("variant", by_family(PLAIN), ids=str)
def test_the_schemes_of_any_model_can_be_analyzed(variant: Variant) -> None:
    result = schemes(tiny_model(variant))
    assert bool(result) == (variant.family in ("transformer", "gpt", "convs2s", "mixed"))
    for position in result.values():
        assert scores(position, 8).shape == (8, 8) and encoding(position, 8).values.isfinite().all()


def test_wrapped_schemes_are_analyzed_by_their_inner_scheme() -> None:
    model = tiny_model(Variant("transformer", (("position", "sinusoidal"), ("position_join", "concatenate"))))
    result = schemes(model)
    assert list(result) == ["encoder_position.scheme", "decoder_position.scheme"]
    assert_close(
        vectors(result["encoder_position.scheme"], torch.arange(5)), sinusoid(torch.arange(5), frequencies(16).float())
    )


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_every_scheme_can_be_drawn(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"positions.{suffix}"
    save(position_figure({name: result_of(name) for name in POSITIONS}), path)
    assert path.stat().st_size > 10_000
    if suffix == "svg":
        assert all(f">{name}: {name}<" in path.read_text() for name in POSITIONS)


def result_of(name: str, size: PositionSize = SIZE, count: int = 8) -> SchemeResult:
    return SchemeResult(encoding(scheme(name, size), count), by_distance(scores(scheme(name, size), count)), name)


def test_equal_schemes_are_drawn_once() -> None:
    results = {"encoder": result_of("sinusoidal"), "decoder": result_of("sinusoidal"), "other": result_of("learned")}
    assert list(figures(results)) == ["encoder and decoder: sinusoidal", "other: learned"]
    titles = [mark.text for mark in position_figure(results).marks if isinstance(mark, Label) and mark.size == 15]
    assert titles == list(figures(results))


def test_rows_are_subsampled_in_pairs_of_sine_and_cosine() -> None:
    drawn = result_of("sinusoidal", SIZE._replace(dim=256))
    figure, *_ = scheme_figures(drawn)
    kept = dimensions(256)
    assert len(kept) == 64 and all(at % 2 or at + 1 in kept for at in kept) and dimensions(64) == list(range(64))
    cells = next(mark for mark in figure.marks if isinstance(mark, Heatmap))
    assert_close(cells.values.T, drawn.encoding.values[:, kept])
    assert any(isinstance(mark, Label) and mark.text == "dimension, 64 of 256" for mark in figure.marks)


def test_a_full_turn_has_the_color_of_zero() -> None:
    figure, *_ = scheme_figures(result_of("rotary"))
    cells = next(mark for mark in figure.marks if isinstance(mark, Heatmap))
    assert cells.palette == "cyclic" and cells.vmax == 2 * math.pi and color(0.0, "cyclic") == color(1.0, "cyclic")
    assert cells.values.min() >= 0 and cells.values.max() < 2 * math.pi


def test_rotations_are_drawn_where_they_are_defined() -> None:
    table = vectors(scheme("sinusoidal"), torch.arange(64))
    rotated = result_of("sinusoidal")._replace(
        rotations={"1": recover_rotations(table, 1)[:3], "5": recover_rotations(table, 5)[:3]}
    )
    *_, dials = scheme_figures(rotated)
    labels = [mark.text for mark in dials.marks if isinstance(mark, Label)]
    waves = frequencies(SIZE.dim)[:3].tolist()
    assert [f"{math.degrees(wave):.1f}°" for wave in waves] == [text for text in labels if text.endswith("°")][:3]
    assert len(scheme_figures(rotated)) == 3 and len(scheme_figures(result_of("sinusoidal"))) == 2


@pytest.mark.parametrize("name", ["alibi", "t5", "relative"])
def test_a_decoder_has_no_distances_to_future_keys(name: str) -> None:
    both, past = (encoding(scheme(name, SIZE._replace(reads_ahead=ahead)), 12) for ahead in (True, False))
    assert both.first == past.first == -11
    assert len(both.values) == 23 and len(past.values) == 12
