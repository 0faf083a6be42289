"""Rendered explanations: the same numbers as text, HTML and JSON; markup in tokens is escaped."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest
import torch

from heedful.inspection.explaining import html, text
from heedful.inspection.explaining.drawing import draw_tree
from heedful.inspection.explaining.formulas import as_mathml, as_text
from heedful.inspection.explaining.stages import Check, Explanation, Matrix, Mistake, Stage, check, check_softmax
from heedful.inspection.explaining.trained import TOPICS
from heedful.inspection.explaining.tree import Node, Tree, grow_tree
from heedful.search import SearchConfig

EVIL = '<img src=x onerror="alert(1)">&\'</td>'
VOID = {"meta", "link", "img"}


class Reader(HTMLParser):
    """Checks that tags close in order, and collects tags, attributes and cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes another tag"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


@cache
def explain(topic: str) -> Explanation:
    return TOPICS[topic][1]()


def matrices(explanation: Explanation) -> Iterator[Matrix]:
    for stage in explanation.stages:
        yield from stage.matrices
        for mistake in stage.mistakes:
            yield from mistake.matrices


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_is_self_contained_and_has_no_scripts(topic: str) -> None:
    reader = read(html.render(explain(topic)))
    assert not {"script", "iframe", "img", "object", "embed"} & set(reader.tags)
    assert not [pair for pair in reader.attributes if pair[0].startswith("on") or pair[0] == "src"]
    assert {value for name, value in reader.attributes if name == "href"} == {"data:,"}
    assert not re.search(r"url\(|@import|https?:", html.render(explain(topic)))


@pytest.mark.parametrize("topic", TOPICS)
def test_text_page_and_json_have_the_same_numbers(topic: str) -> None:
    explanation = explain(topic)
    expected = [text.format_cell(cell, one.form) for one in matrices(explanation) for row in one.cells for cell in row]
    assert len(expected) > 10
    page_cells = set(read(html.render(explanation)).cells)
    written = text.render(explanation)
    for cell in expected:
        assert cell in page_cells and cell in written
    loaded = json.loads(json.dumps(explanation.to_dict(), allow_nan=False))
    stages = [cell for stage in loaded["stages"] for one in stage["matrices"] for row in one["cells"] for cell in row]
    ours = [cell for stage in explanation.stages for one in stage.matrices for row in one.cells for cell in row]
    assert len(stages) == len(ours)
    for value, number in zip(stages, ours, strict=True):
        assert value == (str(number) if isinstance(number, float) and not math.isfinite(number) else number)


@pytest.mark.parametrize("topic", TOPICS)
def test_text_fits_a_hundred_columns_and_every_stage_has_a_text(topic: str) -> None:
    lines = text.render(explain(topic)).splitlines()
    assert max(map(text.display_width, lines)) <= 100 and all(line == line.rstrip() for line in lines)
    assert all(stage.why and (not stage.mistakes or all(one.why for one in stage.mistakes)) for stage in explain(topic).stages)


def test_columns_are_aligned() -> None:
    (block,) = text.split_matrix(Matrix("S", ["die", "Katze"], ["the", "danced"], [[12.0, -10.75], [-20.0, 25.5]]), 100)
    assert block == ["S           the    danced", "die     12.0000  -10.7500", "Katze  -20.0000   25.5000"]


def test_a_wide_matrix_is_split_and_every_piece_has_row_labels() -> None:
    wide = Matrix("A", ["one", "two"], [f"word{i}" for i in range(30)], [[i + 0.5 for i in range(30)]] * 2)
    pieces = text.split_matrix(wide, 98)
    assert len(pieces) > 1 and all(text.display_width(line) <= 98 for piece in pieces for line in piece)
    assert [piece[1].split()[0] for piece in pieces] == ["one"] * len(pieces)
    assert [word for piece in pieces for word in piece[0].split()[1:]] == list(wide.columns)


def test_a_long_row_is_folded_and_every_piece_has_its_label() -> None:
    words = [f"word{at}" for at in range(17)]
    row = Matrix("A", ["query"], words, [[at / 20 + 0.01 for at in range(17)]], shaded=True)
    pieces = html.fold(row)
    assert [len(piece.columns) for piece in pieces] == [6, 6, 5]
    assert [word for piece in pieces for word in piece.columns] == words
    assert [cell for piece in pieces for cell in piece.cells[0]] == row.cells[0]
    assert all((piece.name, piece.rows, piece.shaded) == ("A", ["query"], True) for piece in pieces)
    square = Matrix("A", ["one", "two"], words, [[0.5] * 17] * 2)
    assert html.fold(square) == [square]


def evil() -> Explanation:
    one = Matrix(EVIL, [EVIL], [EVIL], [[EVIL]])
    nodes = [Node(0, -1, 0, 1.0, 0.0, 0.0, 1, "kept"), Node(1, 0, 1, 0.5, -0.7, -0.7, 1, "finished")]
    tree = Tree(nodes, [EVIL, "<b>"], [1])
    check = Check(EVIL, 0.0, 1.0)
    return Explanation(EVIL, EVIL, [Stage(EVIL, "S = Q", [one], EVIL, [Mistake(EVIL, [one], EVIL)], [check], tree)])


def test_tokens_are_escaped() -> None:
    page = html.render(evil())
    reader = read(page)
    assert "img" not in reader.tags and "b" in reader.tags  # the page's own emphasis, not the token
    assert not [pair for pair in reader.attributes if pair[0] == "onerror"]
    assert reader.cells.count(EVIL) == 8 and "<img" not in page


def test_a_failed_check_is_reported() -> None:
    good, bad = Check("A", 3e-7, 0.5), Check("A", 3e-6, 0.5)
    assert good.holds and text.format_check(good).startswith("= A matches the model's within 1e-6 ")
    assert not bad.holds and text.format_check(bad).startswith("! A differs from the model's by up to 3.0e-06")
    assert Check("A", 3e-6, 8.0).holds  # relative to the largest number


def test_the_tolerance_of_a_softmax_depends_on_its_logits() -> None:
    logits = torch.tensor([8.0, -20.0, -math.inf])
    ours, models = torch.tensor([0.0]), torch.tensor([3e-6])
    assert not check("ln p", ours, models).holds
    result = check_softmax("ln p", ours, models, logits)
    assert result.holds and "within 1e-6 times the largest logit, 20 " in text.format_check(result)


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("A = softmax(frac(Q K^T, sqrt(d_k)))", "A = softmax((Q Kᵀ) / √d_k)"),
        ("rate = d^-0.5 min(s^-0.5, s w^-1.5)", "rate = d^(-0.5) min(s^(-0.5), s w^(-1.5))"),
        ("S'_(i j) = -inf for j > i", "S'_(i j) = −∞ for j > i"),
        ("loss_t = -ln p_t(y_t)", "loss_t = −ln p_t(y_t)"),
        ("lp = (frac(5 + n, 6))^alpha", "lp = ((5 + n) / 6)^α"),
    ],
)
def test_formulas_as_text(formula: str, expected: str) -> None:
    assert as_text(formula) == expected
    read(as_mathml(formula))


def test_a_formula_as_mathml_is_nested() -> None:
    marked = as_mathml("frac(Q K^T, sqrt(d_k))")
    inside = "<msqrt><mrow><msub><mi>d</mi><mi>k</mi></msub></mrow></msqrt>"
    assert "<msup><mi>K</mi><mi>T</mi></msup>" in marked and inside in marked and marked.count("<mfrac>") == 1


def test_all_formulas_can_be_parsed() -> None:
    formulas: list[Any] = [stage.formula for topic in TOPICS for stage in explain(topic).stages if stage.formula]
    assert len(formulas) > 20
    for formula in formulas:
        read(as_mathml(formula))
        assert as_text(formula)


def test_the_best_hypothesis_is_the_left_edge() -> None:
    tree = explain("search").stages[1].tree
    assert tree is not None
    lines = text.tree_lines(tree)
    trunk = [line.split()[1] for line in lines if line.startswith("  ● ")]
    assert trunk == ["<s>", "sono", "alla", "moda", "</s>"]
    assert sum(re.search(r"finished  hypothesis \d", line) is not None for line in lines) == 2


def test_the_text_explains_how_to_read_a_tree_and_why_prefixes_within_the_beam_are_dropped() -> None:
    def next_token(prefixes: list[list[int]]) -> torch.Tensor:
        return torch.tensor([[0.0, 0.4, 0.35, 0.25]] * len(prefixes)).log()

    nodes, best = grow_tree(next_token, SearchConfig(beam=2, n_best=2), 4, start=0, end=1)
    assert any(node.status == "rank" and node.rank == 2 for node in nodes)  # in a beam of 2: one has finished
    tree = Tree(nodes, ["word"] * len(nodes), best)
    written = " ".join(" ".join(text.tree_lines(tree)).split())
    assert "The last continuation of a node follows its branches" in written
    assert "too low for the slots of the beam; each finished hypothesis occupies one" in written
    assert max(map(text.display_width, text.tree_lines(tree))) <= 100


def test_a_column_of_a_tree_fits_its_widest_token_and_the_next_probability() -> None:
    nodes = [Node(at, at - 1, at, 0.5, -at, -at, 1, "finished" if at == 4 else "kept") for at in range(5)]
    short, long = (draw_tree(Tree(nodes, ["<s>", "a", word, "b", "</s>"], [4])) for word in ("c", "▁miteinander"))

    def columns(drawn: str) -> list[int]:
        return [int(x) for x in re.findall(r'<circle cx="(\d+)"', drawn)]

    steps = [[after - before for before, after in itertools.pairwise(columns(drawn))] for drawn in (short, long)]
    assert len(set(steps[0])) == 1 and steps[1][:2] == steps[0][:2] and steps[1][3] == steps[0][3]
    assert steps[1][2] >= 8 * len("▁miteinander" + "0.9020") + 20 > steps[0][2]


def test_the_svg_of_a_tree_is_wide_enough_for_its_texts() -> None:
    letter = 7
    for stage in explain("search").stages:
        if stage.tree is None:
            continue
        drawn = draw_tree(stage.tree)
        width = int(re.search(r'viewBox="0 0 (\d+) ', drawn)[1])  # type: ignore[index]
        texts = re.findall(r'<text class="soft" x="(\d+)" y="\d+">([^<]+)<tspan[^>]*>([^<]*)<', drawn)
        assert any(note.startswith("hypothesis") for _, _, note in texts)
        assert max(int(x) + letter * len(f"{figures} {note}") for x, figures, note in texts) <= width
        assert width < 1020  # 1200 pixels without margins
