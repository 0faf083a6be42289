"""The page of a search tree in a browser: the tree is visible on a desktop screen and scrolls on a phone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studio.studio_pages import IN_BROWSER

from heedful.inspection.explaining.html import render
from heedful.inspection.explaining.stages import Explanation, Matrix, Mistake, Stage
from heedful.inspection.explaining.trained import TOPICS
from heedful.inspection.explaining.tree import Node, Tree

pytestmark = IN_BROWSER
HIDDEN = """() => [...document.querySelectorAll('svg text')].filter(text => {
    const [one, card] = [text, text.closest('.scroll')].map(part => part.getBoundingClientRect());
    return one.right > card.right + 1 || one.right > innerWidth; }).length"""


def straight(words: int) -> Explanation:
    """A search tree without branches."""
    nodes = [Node(at, at - 1, at, 0.5, -at, -at, 1, "finished" if at == words else "kept") for at in range(words + 1)]
    tree = Tree(nodes, [f"word {at}" for at in range(words + 1)], [words])
    return Explanation("a tree", "It has no branches.", [Stage("search", "", [], "One hypothesis.", tree=tree)])


LONG = ["▁miteinander", "▁Donaudampfschifffahrt", "▁Mammogramm", "▁会議室で話し合う人々", "▁a"]
OVERPRINTED = """() => {
    const texts = [...document.querySelectorAll('svg text')].map(text => [text.textContent, text.getBoundingClientRect()]);
    return texts.flatMap(([one, a], at) => texts.slice(at + 1)
        .filter(([_, b]) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom - 3 && b.top + 3 < a.bottom - 3)
        .map(([other]) => [one, other])); }"""


def measure(browser: Any, page: str, path: Path, width: int) -> tuple[int, int]:
    """The number of hidden texts in trees, and the width of the page."""
    path.write_text(page, encoding="utf-8")
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.goto(path.as_uri())
    assert opened.locator("svg text").count() > 5
    hidden, wide = opened.evaluate(HIDDEN), opened.evaluate("document.documentElement.scrollWidth")
    opened.close()
    return hidden, wide


@pytest.mark.parametrize("width", [1200, 1280])
def test_the_example_fits_a_desktop_screen(browser: Any, tmp_path: Path, width: int) -> None:
    assert measure(browser, render(TOPICS["search"][1]()), tmp_path / "page.html", width) == (0, width)


@pytest.mark.parametrize(("words", "width"), [(7, 1280), (11, 1900)])
def test_the_end_of_a_longer_sentence_is_visible(browser: Any, tmp_path: Path, words: int, width: int) -> None:
    assert measure(browser, render(straight(words)), tmp_path / "page.html", width) == (0, width)


def test_texts_of_a_tree_do_not_overlap(browser: Any, tmp_path: Path) -> None:
    explanation = straight(len(LONG))
    tree = explanation.stages[0].tree
    assert tree is not None
    long = explanation.stages[0]._replace(tree=tree._replace(words=["<s>", *LONG]))
    (tmp_path / "page.html").write_text(render(replace(explanation, stages=[long])), encoding="utf-8")
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.goto((tmp_path / "page.html").as_uri())
    count, overprinted = opened.locator("svg text").count(), opened.evaluate(OVERPRINTED)
    opened.close()
    assert count == 1 + 3 * len(LONG) and overprinted == []


def test_a_long_row_is_folded_and_completely_visible(browser: Any, tmp_path: Path) -> None:
    words = [f"▁word{at}" for at in range(24)]
    stage = Stage("scores", "", [Matrix("S", ["▁query"], words, [[-10.5] * len(words)])], "")
    (tmp_path / "page.html").write_text(render(Explanation("rows", "", [stage])), encoding="utf-8")
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.goto((tmp_path / "page.html").as_uri())
    cut = opened.locator(".scroll").evaluate_all("all => all.map(one => one.scrollWidth > one.clientWidth)")
    opened.close()
    assert cut == [False] * 3


def test_on_a_phone_the_tree_scrolls_and_the_page_does_not(browser: Any, tmp_path: Path) -> None:
    hidden, wide = measure(browser, render(straight(7)), tmp_path / "page.html", 390)
    assert hidden > 0 and wide == 390


def test_a_table_that_scrolls_has_a_shaded_edge(browser: Any, tmp_path: Path) -> None:
    words = [f"word{at}" for at in range(24)]
    scores = Matrix("S", ["query", "another"], words, [[0.5] * len(words)] * 2)
    stage = Stage("scores", "", [scores], "", [Mistake("it", [scores], "It is.")])
    (tmp_path / "page.html").write_text(render(Explanation("rows", "", [stage])), encoding="utf-8")
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.goto((tmp_path / "page.html").as_uri())
    cards = opened.locator(".scroll").evaluate_all(
        """all => all.map(one => {
        const [style, ground] = [one, one.closest('aside, section')].map(part => getComputedStyle(part));
        return { cut: one.scrollWidth > one.clientWidth, image: style.backgroundImage, moves: style.backgroundAttachment,
                 ground: ground.backgroundColor }; })"""
    )
    opened.close()
    assert len(cards) == 2 and len({card["ground"] for card in cards}) == 2
    for card in cards:
        assert card["cut"] and card["moves"] == "local, scroll"
        assert card["image"].count("linear-gradient") == 2 and card["ground"] in card["image"].split("linear-gradient")[1]
