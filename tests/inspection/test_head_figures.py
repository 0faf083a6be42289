"""The figure of all heads: a grid per kind of attention with values and roles."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from heedful.errors import ConfigError, WriteError
from heedful.inspection.drawing.figure import Figure, Heatmap, Label, color
from heedful.inspection.drawing.head_figures import TITLE, Cell, Legend, format_importance, grids, head_figure
from heedful.inspection.drawing.plots import save
from heedful.inspection.drawing.svg import as_svg

CELLS = [
    Cell("encoder", 0, 0, 0.5, ["-1"]),
    Cell("encoder", 0, 1, 0.0, []),
    Cell("encoder", 2, 0, -0.01, ["nsubj→h", "rare"]),
    Cell("cross", 0, 0, 0.1, ["align"]),
]

LEGEND = Legend("nats", "blue: lost", "-1: previous token")


def shades(figure: Figure) -> Heatmap:
    return next(mark for mark in figure.marks if isinstance(mark, Heatmap) and mark.names is not None)


def labels(figure: Figure) -> dict[str, Label]:
    return {mark.text: mark for mark in figure.marks if isinstance(mark, Label)}


def inside(figure: Figure) -> dict[str, Label]:
    return {mark.text: mark for mark in figure.marks if isinstance(mark, Label) and mark.anchor == "middle"}


def test_every_kind_has_a_grid_and_every_head_a_cell_with_its_value_and_roles() -> None:
    encoder, cross = grids(CELLS, "nats")
    assert [encoder.title, cross.title] == ["encoder", "cross"]
    expected = torch.tensor([[0.5, 0.0], [-0.01, torch.nan]])
    assert torch.equal(shades(encoder).values.nan_to_num(9), expected.nan_to_num(9))
    assert shades(cross).values.tolist() == [[pytest.approx(0.1)]]
    assert {"-1", "nsubj→h", "rare", ".500", "-.010", "layer 0", "layer 2"} <= labels(encoder).keys()
    assert "layer 1" not in labels(encoder)  # it has no heads


def test_the_roles_of_a_head_are_in_its_cell_above_its_value() -> None:
    figure, *_ = grids(CELLS, "nats")
    cells, words = shades(figure), inside(figure)
    assert words["-1"].y < words[".500"].y < words["nsubj→h"].y < words["rare"].y < words["-.010"].y
    first = cells.y, cells.y + cells.height / 2
    assert all(first[0] < words[text].y < first[1] for text in ("-1", ".500"))
    assert words["-1"].y < words[".500"].y - 12 and first[1] - words[".500"].y > 12  # as high as a line
    assert all(cells.x < words[text].x < cells.x + cells.width / 2 for text in ("-1", ".500", "nsubj→h", "-.010"))


def test_importance_is_formatted_with_three_decimals_and_zero_has_no_sign() -> None:
    figures = [format_importance(value) for value in (0.0, -0.0, -0.0004, 0.0004, 0.0306, -0.01, 1.5, -10.25)]
    assert figures == [".000", ".000", ".000", ".000", ".031", "-.010", "1.500", "-10.250"]


def test_all_grids_share_one_color_scale_with_one_color_bar() -> None:
    encoder, cross = grids(CELLS, "nats")
    assert shades(encoder).vmax == shades(cross).vmax == 0.5
    assert {"-.010", ".500 nats"} <= labels(encoder).keys() and ".500 nats" not in labels(cross)
    bar = next(mark for mark in encoder.marks if isinstance(mark, Heatmap) and mark.names is None)
    assert bar.values[0, 0] == pytest.approx(-0.02) and bar.values[0, -1] == 1.0


def test_negative_importance_is_orange_zero_white_and_positive_blue() -> None:
    negative, zero, positive, largest = (color(share, "importance") for share in (-0.042, 0.0, 0.042, 1.0))
    assert negative[0] > negative[2] + 25 and positive[2] > positive[0] + 25
    assert min(zero) == 255 and sum(largest) < sum(positive) < sum(zero)


def test_the_figure_of_a_single_kind_has_a_title() -> None:
    figure = head_figure([Cell("within", 0, 0, 0.5, [])], LEGEND)
    assert [mark.text for mark in figure.marks if isinstance(mark, Label)][:2] == [TITLE, "attention: within"]


def test_every_head_has_a_colored_cell_with_tooltip_and_missing_heads_have_none() -> None:
    root = ElementTree.fromstring(as_svg(head_figure(CELLS, LEGEND)))
    tips = {one[0].text: one.get("fill") for one in root.iter() if len(one) and one[0].tag.endswith("title")}
    assert tips == {
        f"{cell.kind} · layer {cell.layer} · head {cell.head}: {cell.importance:.4f}": "#{:02x}{:02x}{:02x}".format(
            *color(cell.importance / 0.5, "importance")
        )
        for cell in CELLS
    }


@pytest.mark.parametrize("name", ["heads.svg", "heads.png", "heads.pdf"])
def test_the_file_format_follows_the_extension(name: str, tmp_path: Path) -> None:
    save(head_figure(CELLS, LEGEND), tmp_path / name)
    start = (tmp_path / name).read_bytes()[:4]
    assert start == {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}[name[-3:]]


def test_figures_that_cannot_be_written_raise_clear_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = head_figure(CELLS, LEGEND)
    with pytest.raises(ConfigError, match="ends in one of"):
        save(figure, tmp_path / "heads.jpeg")
    with pytest.raises(WriteError, match="cannot be written"):
        save(figure, tmp_path / "nowhere" / "heads.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    save(figure, tmp_path / "heads.svg")
    with pytest.raises(ConfigError, match="require matplotlib, which is not installed"):
        save(figure, tmp_path / "heads.png")
