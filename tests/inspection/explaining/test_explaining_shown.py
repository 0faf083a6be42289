"""How explanations are shown: the same numbers as text, as HTML and as JSON; nothing in them can break out of its place."""

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
from heedful.inspection.explaining.stages import Check, Explanation, Matrix, Mistake, Stage, as_json, check, check_softmax
from heedful.inspection.explaining.tree import Node, Tree, grow
from heedful.search import SearchConfig
from heedful.studies.explain import TOPICS

EVIL = '<img src=x onerror="alert(1)">&\'</td>'
VOID = {"meta", "link", "img"}


class Reader(HTMLParser):
    """Checks that tags close in order, and gathers what a browser would fetch or run."""

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
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"

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
def made(topic: str) -> Explanation:
    return TOPICS[topic][1]()


def matrices(explanation: Explanation) -> Iterator[Matrix]:
    for stage in explanation.stages:
        yield from stage.matrices
        for mistake in stage.mistakes:
            yield from mistake.matrices


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_needs_nothing_else_and_runs_nothing(topic: str) -> None:
    reader = read(html.render(made(topic)))
    assert not {"script", "iframe", "img", "object", "embed"} & set(reader.tags)
    assert not [pair for pair in reader.attributes if pair[0].startswith("on") or pair[0] == "src"]
    assert {value for name, value in reader.attributes if name == "href"} == {"data:,"}
    assert not re.search(r"url\(|@import|https?:", html.render(made(topic)))


@pytest.mark.parametrize("topic", TOPICS)
def test_text_page_and_json_have_the_same_numbers(topic: str) -> None:
    explanation = made(topic)
    expected = [text.shown(cell, one.form) for one in matrices(explanation) for row in one.cells for cell in row]
    assert len(expected) > 10
    in_page = set(read(html.render(explanation)).cells)
    written = text.render(explanation)
    for cell in expected:
        assert cell in in_page and cell in written
    told = json.loads(json.dumps(as_json(explanation), allow_nan=False))
    stages = [cell for stage in told["stages"] for one in stage["matrices"] for row in one["cells"] for cell in row]
    ours = [cell for stage in explanation.stages for one in stage.matrices for row in one.cells for cell in row]
    assert len(stages) == len(ours)
    for found, number in zip(stages, ours, strict=True):
        assert found == (str(number) if isinstance(number, float) and not math.isfinite(number) else number)


@pytest.mark.parametrize("topic", TOPICS)
def test_text_fits_a_hundred_columns_and_says_why(topic: str) -> None:
    lines = text.render(made(topic)).splitlines()
    assert max(map(text.wide, lines)) <= 100 and all(line == line.rstrip() for line in lines)
    assert all(stage.why and (not stage.mistakes or all(one.why for one in stage.mistakes)) for stage in made(topic).stages)


def test_columns_stand_below_each_other() -> None:
    (block,) = text.cut(Matrix("S", ["die", "Katze"], ["the", "danced"], [[12.0, -10.75], [-20.0, 25.5]]), 100)
    assert block == ["S           the    danced", "die     12.0000  -10.7500", "Katze  -20.0000   25.5000"]


def test_a_wide_matrix_is_cut_and_every_piece_has_its_labels() -> None:
    wide = Matrix("A", ["one", "two"], [f"word{i}" for i in range(30)], [[i + 0.5 for i in range(30)]] * 2)
    pieces = text.cut(wide, 98)
    assert len(pieces) > 1 and all(text.wide(line) <= 98 for piece in pieces for line in piece)
    assert [piece[1].split()[0] for piece in pieces] == ["one"] * len(pieces)
    assert [word for piece in pieces for word in piece[0].split()[1:]] == list(wide.columns)


def test_a_long_row_is_folded_and_every_piece_has_its_label() -> None:
    words = [f"word{at}" for at in range(17)]
    row = Matrix("A", ["query"], words, [[at / 20 + 0.01 for at in range(17)]], shaded=True)
    pieces = html.folded(row)
    assert [len(piece.columns) for piece in pieces] == [6, 6, 5]
    assert [word for piece in pieces for word in piece.columns] == words
    assert [cell for piece in pieces for cell in piece.cells[0]] == row.cells[0]
    assert all((piece.name, piece.rows, piece.shaded) == ("A", ["query"], True) for piece in pieces)
    square = Matrix("A", ["one", "two"], words, [[0.5] * 17] * 2)
    assert html.folded(square) == [square]


def evil() -> Explanation:
    one = Matrix(EVIL, [EVIL], [EVIL], [[EVIL]])
    nodes = [Node(0, -1, 0, 1.0, 0.0, 0.0, 1, "kept"), Node(1, 0, 1, 0.5, -0.7, -0.7, 1, "ended")]
    tree = Tree(nodes, [EVIL, "<b>"], [1])
    check = Check(EVIL, 0.0, 1.0)
    return Explanation(EVIL, EVIL, [Stage(EVIL, "S = Q", [one], EVIL, [Mistake(EVIL, [one], EVIL)], [check], tree)])


def test_words_cannot_become_tags() -> None:
    page = html.render(evil())
    reader = read(page)
    assert "img" not in reader.tags and "b" in reader.tags  # the page's own emphasis, not the word
    assert not [pair for pair in reader.attributes if pair[0] == "onerror"]
    assert reader.cells.count(EVIL) == 8 and "<img" not in page


def test_a_check_that_does_not_hold_is_said() -> None:
    good, bad = Check("A", 3e-7, 0.5), Check("A", 3e-6, 0.5)
    assert good.holds and text.said(good).startswith("= A equals the model's within 1e-6 ")
    assert not bad.holds and text.said(bad).startswith("! A differs from the model's by up to 3.0e-06")
    assert Check("A", 3e-6, 8.0).holds  # measured on the largest number


def test_what_a_softmax_gives_is_as_exact_as_its_logits() -> None:
    logits = torch.tensor([8.0, -20.0, -math.inf])
    ours, models = torch.tensor([0.0]), torch.tensor([3e-6])
    assert not check("ln p", ours, models).holds
    found = check_softmax("ln p", ours, models, logits)
    assert found.holds and "within 1e-6 of its largest logit, 20 " in text.said(found)


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
def test_formulas_are_written(formula: str, expected: str) -> None:
    assert as_text(formula) == expected
    read(as_mathml(formula))


def test_a_formula_has_its_structure() -> None:
    marked = as_mathml("frac(Q K^T, sqrt(d_k))")
    inside = "<msqrt><mrow><msub><mi>d</mi><mi>k</mi></msub></mrow></msqrt>"
    assert "<msup><mi>K</mi><mi>T</mi></msup>" in marked and inside in marked and marked.count("<mfrac>") == 1


def test_all_formulas_can_be_read() -> None:
    seen: list[Any] = [stage.formula for topic in TOPICS for stage in made(topic).stages if stage.formula]
    assert len(seen) > 20
    for formula in seen:
        read(as_mathml(formula))
        assert as_text(formula)


def test_the_way_to_the_best_goes_straight_down() -> None:
    tree = made("search").stages[1].tree
    assert tree is not None
    lines = text.tree_lines(tree)
    trunk = [line.split()[1] for line in lines if line.startswith("  ● ")]
    assert trunk == ["<s>", "sono", "alla", "moda", "</s>"]
    assert sum(re.search(r"ended +hypothesis", line) is not None for line in lines) == 2


def test_the_way_a_tree_is_read_and_why_ranks_within_the_beam_are_dropped_are_said() -> None:
    def say(beginnings: list[list[int]]) -> torch.Tensor:
        return torch.tensor([[0.0, 0.4, 0.35, 0.25]] * len(beginnings)).log()

    nodes, best = grow(say, SearchConfig(beam=2, n_best=2), 4, start=0, end=1)
    assert any(node.fate == "rank" and node.rank == 2 for node in nodes)  # in a beam of 2: one has ended
    tree = Tree(nodes, ["word"] * len(nodes), best)
    written = " ".join(" ".join(text.tree_lines(tree)).split())
    assert "The last continuation of a node stands straight below it, after the branches" in written
    assert "the beam has no more places: each that has ended keeps one" in written
    assert max(map(text.wide, text.tree_lines(tree))) <= 100


def test_a_column_of_a_tree_is_as_wide_as_its_widest_word_and_the_probability_after_it() -> None:
    nodes = [Node(at, at - 1, at, 0.5, -at, -at, 1, "ended" if at == 4 else "kept") for at in range(5)]
    short, long = (draw_tree(Tree(nodes, ["<s>", "a", word, "b", "</s>"], [4])) for word in ("c", "▁miteinander"))

    def columns(drawn: str) -> list[int]:
        return [int(x) for x in re.findall(r'<circle cx="(\d+)"', drawn)]

    steps = [[after - before for before, after in itertools.pairwise(columns(drawn))] for drawn in (short, long)]
    assert len(set(steps[0])) == 1 and steps[1][:2] == steps[0][:2] and steps[1][3] == steps[0][3]
    assert steps[1][2] >= 8 * len("▁miteinander" + "0.9020") + 20 > steps[0][2]


def test_the_picture_of_a_tree_is_as_wide_as_what_stands_in_it() -> None:
    letter = 7
    for stage in made("search").stages:
        if stage.tree is None:
            continue
        drawn = draw_tree(stage.tree)
        width = int(re.search(r'viewBox="0 0 (\d+) ', drawn)[1])  # type: ignore[index]
        texts = re.findall(r'<text class="soft" x="(\d+)" y="\d+">([^<]+)<tspan[^>]*>([^<]*)<', drawn)
        assert any(note.startswith("hypothesis") for _, _, note in texts)
        assert max(int(x) + letter * len(f"{figures} {note}") for x, figures, note in texts) <= width
        assert width < 1020  # of 1200 pixels, what margins leave
