"""The picture of all heads: a grid for each kind, with marks and figures that can be read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from heedful.errors import ConfigError
from heedful.inspection.head_pictures import Cell, Meaning, draw_heads, figure, picture_of

CELLS = [
    Cell("encoder", 0, 0, 0.5, ["-1"]),
    Cell("encoder", 0, 1, 0.0, []),
    Cell("encoder", 1, 0, -0.01, ["nsubj→h", "rare"]),
    Cell("encoder", 1, 1, 0.02, []),
    Cell("cross", 0, 0, 0.1, ["align"]),
]

MEANING = Meaning("nats", "blue: lost", "-1: the token before")


def test_every_head_has_its_cell_and_its_words() -> None:
    picture = picture_of(CELLS, MEANING)
    encoder, cross, _ = picture.axes
    assert [axes.get_title() for axes in (encoder, cross)] == ["encoder", "cross"]
    assert (len(encoder.patches), len(cross.patches)) == (4, 1)
    written = [text.get_text() for text in encoder.texts]
    assert "-1" in written and "nsubj→h\nrare" in written and ".500" in written and "-.010" in written


def test_layer_0_stands_on_top_and_its_words_above_its_figure() -> None:
    encoder = picture_of(CELLS, MEANING).axes[0]
    heights = {text.get_text(): encoder.transData.transform(text.get_position())[1] for text in encoder.texts}
    assert heights["-1"] > heights[".500"] > heights["nsubj→h\nrare"] > heights["-.010"]


def test_figures_are_written_alike_and_nothing_has_no_sign() -> None:
    figures = [figure(value) for value in (0.0, -0.0, -0.0004, 0.0004, 0.0306, -0.01, 1.5, -10.25)]
    assert figures == [".000", ".000", ".000", ".000", ".031", "-.010", "1.500", "-10.250"]


def test_the_heavier_a_head_the_darker_its_cell() -> None:
    encoder = picture_of(CELLS, MEANING).axes[0]
    brightness = {cell[:3]: sum(patch.get_facecolor()[:3]) for cell, patch in zip(CELLS, encoder.patches, strict=False)}
    assert brightness["encoder", 0, 0] < brightness["encoder", 1, 1] < brightness["encoder", 0, 1]


def test_who_does_harm_is_orange_who_does_nothing_white_and_who_helps_blue() -> None:
    cells = [Cell("cross", 0, head, value, []) for head, value in enumerate((-0.042, 0.0, 0.042, 1.0))]
    picture = picture_of(cells, MEANING)
    harm, nothing, help, most = [patch.get_facecolor()[:3] for patch in picture.axes[0].patches]
    assert harm[0] > harm[2] + 0.1 and help[2] > help[0] + 0.1
    assert min(nothing) > 0.98 and sum(most) < sum(help) < sum(nothing)
    assert picture.axes[-1].get_ylabel() == "nats" and "blue: lost · square-root scale" in picture.get_supxlabel()
    low, high = picture.axes[-1].get_ylim()
    assert (float(low), float(high)) == pytest.approx((-0.042, 1.0))


@pytest.mark.parametrize("name", ["heads.svg", "heads.png"])
def test_it_is_written_in_the_form_that_its_name_says(name: str, tmp_path: Path) -> None:
    draw_heads(CELLS, tmp_path / name, MEANING)
    begins = (tmp_path / name).read_bytes()[:5]
    assert begins == (b"<?xml" if name.endswith("svg") else b"\x89PNG\r")


def test_what_cannot_be_drawn_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="ends in one of"):
        draw_heads(CELLS, tmp_path / "heads.jpeg", MEANING)
    with pytest.raises(ConfigError, match="cannot be written"):
        draw_heads(CELLS, tmp_path / "nowhere" / "heads.svg", MEANING)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match="needs matplotlib") as refusal:
        draw_heads(CELLS, tmp_path / "heads.svg", MEANING)
    assert refusal.value.hint == 'pip install "heedful[plot]"'
