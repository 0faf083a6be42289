"""Charts draw the given values at the right positions."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from heedful.inspection.drawing.charts import Interval, dials, heatmap_chart, interval_chart, line_chart, ticks
from heedful.inspection.drawing.figure import ACCENT, FAINT, INK, QUIET, Heatmap, Label, Polyline, heatmap, stack
from heedful.inspection.drawing.plots import save


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 63.0), (28.2, 64.0), (-1.08, 1.08), (3e-5, 9e-5), (-4000.0, 120.0), (2.0, 2.0)]
)
def test_ticks_are_few_equally_spaced_round_numbers_in_range(low: float, high: float) -> None:
    values = ticks(low, high)
    assert 1 <= len(values) <= 8 and all(low <= at <= high for at in values)
    steps = {round(b - a, 10) for a, b in pairwise(values)}
    assert len(steps) <= 1
    for step in steps:
        mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert round(mantissa, 6) in (1, 2, 5, 10)
    if high > low:
        assert len(values) >= 2


def test_integer_ticks() -> None:
    assert ticks(0, 3, integers=True) == [0, 1, 2, 3]
    assert ticks(-2, 2, integers=True) == [-2, -1, 0, 1, 2]


def test_a_line_chart_passes_through_its_values_and_tick_labels_match() -> None:
    values = [64.0, 62.1, 40.0, 30.5, 33.0]
    figure = line_chart(values, "similarity", "distance", "p · p′")
    line = next(mark for mark in figure.marks if isinstance(mark, Polyline) and mark.color == ACCENT)
    heights = {float(mark.text): mark.y for mark in figure.marks if isinstance(mark, Label) and mark.anchor == "end"}
    (low, y), *_, (high, v) = sorted(heights.items())
    assert high > low and len(line.points) == len(values)
    for value, (_, height) in zip(values, line.points, strict=True):
        assert height == pytest.approx(y + (value - low) / (high - low) * (v - y), abs=1e-6)
    across = [x for x, _ in line.points]
    assert len({round(b - a, 6) for a, b in pairwise(across)}) == 1
    assert all(0 <= x <= figure.width and 0 <= up <= figure.height for x, up in line.points)


def test_names_of_lines_are_beside_the_axes_and_every_curve_is_in_the_legend() -> None:
    points = [Interval(at, at / 2, at / 2 - 1, at / 2 + 1) for at in (0.0, 4.0, 8.0)]
    figure = interval_chart(points, "returns", ("desired", "reached"), {"mean": 3.0, "highest": 3.1}, others=points)
    labels = {mark.text: mark for mark in figure.marks if isinstance(mark, Label)}
    drawn = [mark for mark in figure.marks if isinstance(mark, Polyline)]
    right = max(x for mark in drawn for x, y in mark.points if y > labels["this run, 95% interval"].y + 10)
    assert labels["mean"].x > right and labels["highest"].x > right
    assert labels["mean"].y - labels["highest"].y >= 14
    (key, diagonal) = sorted((mark for mark in drawn if mark.dashed), key=lambda mark: mark.points[0][1])
    assert key.points[0][1] == labels["equal to the desired"].y and diagonal.points[0][1] > diagonal.points[1][1]
    keys = [mark.color for mark in drawn if mark.points[0][1] == mark.points[1][1] == key.points[0][1]]
    assert keys == [ACCENT, INK, QUIET] and "other run, 95% interval" in labels


def test_a_heatmap_chart_has_one_pixel_per_value_and_numbered_columns() -> None:
    values = torch.rand(6, 12)
    figure = heatmap_chart(
        values, "biases", "signed", vmax=1.0, across=("distance", -11), down=("head", list("abcdef")), ends=("-1", "1")
    )
    cells = next(mark for mark in figure.marks if isinstance(mark, Heatmap))
    assert torch.equal(cells.values, values)
    labels = {mark.text: mark for mark in figure.marks if isinstance(mark, Label)}
    assert labels["0"].x == pytest.approx(cells.x + cells.width * 11.5 / 12)  # the last of the columns from -11 on
    assert labels["a"].y == pytest.approx(cells.y + cells.height / 12)


def test_hands_point_at_their_angle_and_are_pale_for_large_residuals() -> None:
    rotations = [[(90.0, 0.0), (-45.0, 0.9)], [(180.0, 0.2)]]
    figure = dials(rotations, "rotations", ["shift 1", "shift 2"], lambda pair: f"pair {pair}")
    hands = [mark for mark in figure.marks if isinstance(mark, Polyline) and mark.width > 2]
    angles = [math.degrees(math.atan2(y - v, u - x)) for (x, y), (u, v) in (hand.points for hand in hands)]
    assert angles == [pytest.approx(90), pytest.approx(-45), pytest.approx(180)]
    assert [hand.color for hand in hands] == [ACCENT, FAINT, ACCENT]
    labels = [mark.text for mark in figure.marks if isinstance(mark, Label)]
    assert {"90.0°", "-45.0°", "180.0°", "pair 1", "shift 2"} <= set(labels)


def test_stacked_figures_are_placed_below_each_other() -> None:
    one = line_chart([1.0, 2.0], "one", "x", "y")
    both = stack(one, one)
    half = len(one.marks)
    assert both.height == 2 * one.height and both.width == one.width
    for before, after in zip(both.marks[:half], both.marks[half:], strict=True):
        if isinstance(before, Label) and isinstance(after, Label):
            assert (after.x, after.y) == (before.x, before.y + one.height)


def test_a_picture_of_an_empty_output_has_no_heatmap(tmp_path: Path) -> None:
    save(heatmap(torch.zeros(0, 3), [], ["a", "b", "c"], "attention"), tmp_path / "empty.png")
    assert (tmp_path / "empty.png").stat().st_size > 0
