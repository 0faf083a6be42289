"""Figures and text heatmaps: every value in its cell, every token as text, in any script."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from heedful.errors import ConfigError
from heedful.inspection.drawing import plots
from heedful.inspection.drawing.figure import (
    Heatmap,
    Label,
    TokenCell,
    add_caption,
    color,
    head_grid,
    heatmap,
    lines,
    text_width,
    words,
)
from heedful.inspection.drawing.plots import replace_missing_glyphs, save
from heedful.inspection.drawing.svg import as_svg
from heedful.inspection.drawing.text_heatmap import columns, draw_text_heatmap, printable_token, wrap_text

HARD = ["<img onerror=alert(1)>", "שלום", "مرحبا", "猫が", "😀", 'a&b"', "\x00\n", ""]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def weights() -> torch.Tensor:
    return torch.randn(len(HARD), len(HARD)).mul(2).softmax(-1)


def test_text_heatmaps_are_darker_for_larger_weights() -> None:
    text = draw_text_heatmap(torch.tensor([[1.0, 0.0], [0.25, 0.75]]), ["I", "am"], ["Io", "sono"])
    assert text.splitlines() == ["     I  am", "Io   ██", "sono ░░ ▓▓"]


def test_text_heatmap_columns_are_aligned_for_all_scripts() -> None:
    assert [columns(text) for text in ("abc", "猫が", "e\u0301", "😀")] == [3, 4, 1, 2]
    text = draw_text_heatmap(torch.eye(3), ["猫", "好き", "x"], ["neko", "すき", "é"])
    places = [columns(line[: line.index("██")]) for line in text.splitlines()[1:]]
    assert places == [5, 8, 13]


def test_columns_of_a_long_sentence_are_numbered_and_words_listed_below() -> None:
    words = [f"word{place}" for place in range(60)]
    text = draw_text_heatmap(torch.eye(60), words, words).splitlines()
    assert text[0].split() == [str(place) for place in range(60)]
    assert max(map(columns, text)) <= 60 * 3 + 10
    below = " ".join(text[62:])
    assert re.findall(r"\d+ (word\d+)", below) == words


def test_a_token_grid_of_a_long_sentence_continues_below() -> None:
    names = [f"word{place}" for place in range(60)]
    cells = [[TokenCell(f"{row}{name}", 0.5) for name in names] for row in range(2)]
    figure = words(cells, ["first", "second"], names, "layers")
    labels = [mark for mark in figure.marks if isinstance(mark, Label)]
    assert {label.text for label in labels} >= {*names, *(word.text for row in cells for word in row)}
    assert figure.width <= 1300 and len([label for label in labels if label.text == "first"]) > 1
    assert all(mark.x + mark.width <= figure.width for mark in figure.marks if isinstance(mark, Heatmap))


def test_control_characters_are_escaped_and_long_tokens_cut() -> None:
    assert [printable_token(word) for word in ("\n", "", "a" * 60)] == ["\\n", "∅", "a" * 23 + "…"]


def test_an_svg_is_well_formed_and_contains_every_value_and_token(weights: torch.Tensor) -> None:
    root = ElementTree.fromstring(as_svg(heatmap(weights, HARD, HARD, "cross <1>")))
    tooltips = [one.text or "" for one in root.iter(f"{SVG}title")]
    expected = [
        f"{printable_token(row)} → {printable_token(column)}: {weights[i, j]:.4f}"
        for i, row in enumerate(HARD)
        for j, column in enumerate(HARD)
    ]
    assert tooltips == expected
    labels = [one.text for one in root.iter(f"{SVG}text")]
    assert all(labels.count(printable_token(token)) == 2 for token in HARD)
    shades = [one.get("fill") for one in root.iter(f"{SVG}rect") if one.find(f"{SVG}title") is not None]
    assert shades == ["#{:02x}{:02x}{:02x}".format(*color(float(value), "blue")) for value in weights.flatten()]


def test_lines_have_the_opacity_of_their_weights(weights: torch.Tensor) -> None:
    root = ElementTree.fromstring(as_svg(lines(weights, HARD, HARD, "lines")))
    strengths = {one.find(f"{SVG}title").text: float(one.get("stroke-opacity", "")) for one in root.iter(f"{SVG}path")}  # type: ignore[union-attr]
    expected = {
        f"{printable_token(HARD[i])} → {printable_token(HARD[j])}: {weights[i, j]:.4f}": round(float(weights[i, j]), 3)
        for i in range(len(HARD))
        for j in range(len(HARD))
        if weights[i, j] >= 0.01
    }
    assert strengths.keys() == expected.keys() and expected
    assert all(abs(strengths[name] - expected[name]) <= 0.001 for name in expected)


def test_the_head_grid_has_a_thumbnail_per_head_with_one_pixel_per_value() -> None:
    layers = [(0, torch.rand(3, 4, 5)), (1, torch.rand(2, 4, 5))]
    root = ElementTree.fromstring(as_svg(head_grid(layers, "heads")))
    images = [one.get("href", "") for one in root.iter(f"{SVG}image")]
    assert len(images) == 3 + 2 + 1  # the last is the color bar
    for image, values in zip(images, [*layers[0][1], *layers[1][1]], strict=False):
        assert pixels(base64.b64decode(image.split(",")[1])) == [
            [color(float(value), "blue") for value in row] for row in values
        ]


def test_a_head_grid_of_merged_heads_has_no_head_numbers() -> None:
    layers = [(0, torch.rand(1, 4, 5)), (1, torch.rand(1, 4, 5))]
    labels = [
        [mark.text for mark in one.marks if isinstance(mark, Label)]
        for one in (head_grid(layers, "x", merged=True), head_grid(layers, "x"))
    ]
    assert "all heads" in labels[0] and "head 0" not in labels[0]
    assert "all heads" not in labels[1] and "head 0" in labels[1]


@pytest.mark.parametrize("sentence", ["a b", "many words " * 30, "猫" * 90, "x" * 200])
def test_a_caption_is_below_the_figure_and_inside_its_margins(sentence: str) -> None:
    plain = heatmap(torch.eye(2), ["a", "b"], ["c", "d"], "two")
    figure = add_caption(plain, [f"source: {sentence}", "rows: tokens"])
    below = [mark for mark in figure.marks if isinstance(mark, Label) and mark not in plain.marks]
    assert "".join("".join(one.text for one in below).split()) == "".join(f"source:{sentence}rows:tokens".split())
    heights = [one.y for one in below]
    assert heights == sorted(heights) and len(set(heights)) == len(heights)
    assert heights[0] >= plain.height and heights[-1] + below[-1].size < figure.height
    assert all(one.x + text_width(one.text, one.size) <= figure.width for one in below)


def test_text_is_wrapped_between_words_and_only_long_words_are_broken() -> None:
    assert wrap_text("one two three", 7) == ["one two", "three"]
    assert wrap_text("a abcdefgh b", 5) == ["a", "abcde", "fgh b"]
    assert wrap_text("猫が好き", 4) == ["猫が", "好き"]
    assert wrap_text("", 4) == [""]


def pixels(png: bytes) -> list[list[tuple[int, int, int]]]:
    """Decode a PNG: a header, unfiltered lines, three bytes per pixel."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    at, data = 8, b""
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + content)
        data += content if kind == b"IDAT" else b""
        at += 12 + size
    raw = zlib.decompress(data)
    rows = [raw[row * (3 * width + 1) + 1 : (row + 1) * (3 * width + 1)] for row in range(height)]
    return [[(row[3 * i], row[3 * i + 1], row[3 * i + 2]) for i in range(width)] for row in rows]


def test_palettes_are_monotone() -> None:
    sums = [sum(color(share / 20, "blue")) for share in range(21)]
    assert sums == sorted(sums, reverse=True) and len(set(sums)) == 21
    assert sum(color(0, "signed")) > max(sum(color(-0.5, "signed")), sum(color(0.5, "signed")))
    red, blue = color(-1, "signed"), color(1, "signed")
    assert red[0] > red[2] and blue[2] > blue[0]
    assert color(0, "gray") == (255, 255, 255) and color(1, "gray") == (0, 0, 0) == color(7, "gray")


def test_a_png_has_the_color_of_every_value_in_its_cell(weights: torch.Tensor, tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    figure = heatmap(weights, HARD, HARD, "cross")
    save(figure, tmp_path / "map.png")
    image_pixels = image.imread(tmp_path / "map.png")[..., :3]
    cells = next(mark for mark in figure.marks if isinstance(mark, Heatmap))
    scale = image_pixels.shape[1] / figure.width
    for row in range(len(HARD)):
        for column in range(len(HARD)):
            x = cells.x + cells.width * (column + 0.5) / len(HARD)
            y = cells.y + cells.height * (row + 0.5) / len(HARD)
            pixel = (image_pixels[int(y * scale), int(x * scale)] * 255).round().tolist()
            assert pixel == list(color(float(weights[row, column]), "blue"))


def test_characters_without_a_glyph_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "characters", lambda: frozenset(map(ord, "abc")))
    assert replace_missing_glyphs("a猫b😀") == "a\\u732bb\\U0001f600"


def test_only_svg_works_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    figure = heatmap(torch.eye(2), ["a", "b"], ["c", "d"], "two")
    assert as_svg(figure).startswith("<svg")
    with pytest.raises(ConfigError, match="require matplotlib, which is not installed"):
        save(figure, tmp_path / "no.png")
