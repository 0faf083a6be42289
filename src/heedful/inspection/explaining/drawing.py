"""A search tree as a picture: time goes right, the way to the best hypothesis goes straight, all else branches off below it.

On an edge stands the probability of the token; at a node the token, its summed log-probability and its score; where a
beginning went no further, why."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from heedful.inspection.explaining.text import depth, wide
from heedful.inspection.explaining.tree import FATES, Tree
from heedful.inspection.markup import escape

STEP, ROW, LEFT, TOP, RADIUS = 150, 44, 26, 34, 6  # pixels
BESIDE, LETTER, BOLD = 10, 7, 9  # pixels from a node to its text, and those of a letter in most fonts, thin and bold
BROAD, MORE = frozenset("mwMW@%▁…"), 4  # letters that need more than others, and how much
CHANCE = 6 * LETTER  # pixels of a probability on an edge
LEAST = 0.75  # a tree shrinks to this where the page is narrow, and then scrolls: smaller letters are hard to read
LONGEST = 12  # letters of a token that are shown
EDGE, NODE = "the probability of the token after its beginning", "log P of all tokens so far | the score it would have"


class Layout(NamedTuple):
    columns: list[int]  # for each length, where its nodes stand from the left, in pixels
    rows: dict[int, int]  # for each node, counted from the top

    def place(self, tree: Tree, at: int) -> tuple[int, int]:
        return self.columns[tree.nodes[at].length], TOP + ROW * self.rows[at]


def draw_tree(tree: Tree) -> str:
    """An SVG that shrinks a little and then scrolls where it does not fit, and what the fates mean."""
    layout = Layout(columns_of(tree), rows_of(tree))
    width = max(layout.place(tree, at)[0] + BESIDE + breadth(tree, at) for at in range(len(tree.nodes)))
    height = TOP + ROW * (max(layout.rows.values()) + 1)
    trunk = tree.trunk
    edges = "".join(edge(tree, at, layout, trunk) for at in range(1, len(tree.nodes)))
    nodes = "".join(node(tree, at, layout, trunk) for at in range(len(tree.nodes)))
    used = {one.fate for one in tree.nodes}
    fates = f"<dt>on an edge</dt><dd>{EDGE}</dd><dt>at a node</dt><dd>{NODE}</dd>"
    fates += "".join(f"<dt>{fate}</dt><dd>{escape(why)}</dd>" for fate, why in FATES.items() if fate in used)
    return (
        f'<div class="scroll"><svg style="width: {width}px; max-width: 100%; min-width: {round(width * LEAST)}px" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="search tree">{edges}{nodes}</svg></div><dl>{fates}</dl>'
    )


def columns_of(tree: Tree) -> list[int]:
    """A step is as wide as the widest word that goes on, and the probability of what follows beside it."""
    steps = [STEP] * max(node.length for node in tree.nodes)
    for at in {node.parent for node in tree.nodes[1:]}:
        length = tree.nodes[at].length
        needed = max(breadth(tree, at), pixels(word(tree, at)) + BESIDE + CHANCE)
        steps[length] = max(steps[length], BESIDE + needed + BESIDE)
    return list(accumulate(steps, initial=LEFT))


def rows_of(tree: Tree) -> dict[int, int]:
    """The row of each node: that of its straight child, the others below, each with all of its own."""
    rows: dict[int, int] = {}
    children: dict[int, list[int]] = {at: tree.children(at) for at in range(len(tree.nodes))}
    trunk, free = tree.trunk, 0

    def put(at: int, row: int) -> None:
        nonlocal free
        rows[at] = row
        free = max(free, row + 1)
        ordered = sorted(children[at], key=lambda i: (i in trunk, depth(tree, i), tree.nodes[i].total), reverse=True)
        for number, child in enumerate(ordered):
            put(child, row if number == 0 else free)

    put(0, 0)
    return rows


def style(tree: Tree, at: int, trunk: set[int]) -> str:
    if at in trunk:
        return "trunk"
    return "alive" if tree.nodes[at].fate in ("kept", "ended") else "dead"


def edge(tree: Tree, at: int, layout: Layout, trunk: set[int]) -> str:
    (x0, y0), (x1, y1) = layout.place(tree, tree.nodes[at].parent), layout.place(tree, at)
    bend = min(x0 + 40, x1)
    line = (
        f"M{x0} {y0} L{x1} {y1}" if y0 == y1 else f"M{x0} {y0} C{bend - 22} {y1} {bend - 10} {y1} {bend + 24} {y1} L{x1} {y1}"
    )
    chance = f'<text class="soft" text-anchor="end" x="{x1 - 11}" y="{y1 - 6}">{tree.nodes[at].probability:.4f}</text>'
    return f'<path class="{style(tree, at, trunk)}" d="{line}"/>{chance}'


def note(tree: Tree, at: int) -> str:
    """What became of it, where it does not go on."""
    one = tree.nodes[at]
    if at in tree.best:
        return f"hypothesis {tree.best.index(at) + 1}"
    return f"rank {one.rank}" if one.fate == "rank" else "" if one.fate == "kept" else one.fate


def figures(tree: Tree, at: int) -> str:
    return f"{tree.nodes[at].total:.4f} | {tree.nodes[at].score:.4f}"


def word(tree: Tree, at: int) -> str:
    return tree.words[at] if len(tree.words[at]) <= LONGEST else f"{tree.words[at][: LONGEST - 1]}…"


def pixels(word: str) -> int:
    """Of bold letters, as wide as most fonts have them or a little more."""
    return BOLD * wide(word) + MORE * sum(letter in BROAD for letter in word)


def breadth(tree: Tree, at: int) -> int:
    """Pixels of the longest line beside a node."""
    below = f"{figures(tree, at)} {note(tree, at)}".rstrip() if at else ""
    return max(pixels(word(tree, at)), LETTER * len(below))


def node(tree: Tree, at: int, layout: Layout, trunk: set[int]) -> str:
    one, (x, y) = tree.nodes[at], layout.place(tree, at)
    kind = style(tree, at, trunk) + (" ended" if one.fate == "ended" else "")
    text = f'<text class="word" x="{x + BESIDE}" y="{y - 7}">{escape(word(tree, at))}</text>'
    if at:
        emphasis = "word" if at in tree.best else "why"
        text += f'<text class="soft" x="{x + BESIDE}" y="{y + 15}">{figures(tree, at)}'
        text += f'<tspan class="{emphasis}" dx="8">{note(tree, at)}</tspan></text>'
    return f'<g class="{kind}"><circle cx="{x}" cy="{y}" r="{RADIUS}"/>{text}</g>'
