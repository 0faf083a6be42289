"""A search tree as SVG: steps go right, the best hypothesis is the top row, and other prefixes branch off below it.

Edges are labeled with the probability of the token; nodes with the token, the summed log-probability and the score; leaves
also with their status."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from heedful.inspection.drawing.markup import escape
from heedful.inspection.explaining.text import depth, display_width
from heedful.inspection.explaining.tree import STATUSES, Tree

STEP, ROW, LEFT, TOP, RADIUS = 150, 44, 26, 34, 6  # pixels
BESIDE, LETTER, BOLD = 10, 7, 9  # pixels from a node to its text, and per letter in most fonts, regular and bold
WIDE_LETTERS, EXTRA = frozenset("mwMW@%▁…"), 4  # letters wider than average, and by how many pixels
PROBABILITY = 6 * LETTER  # pixels of a probability on an edge
MIN_SCALE = 0.75  # a tree shrinks to this on a narrow page, and then scrolls: smaller letters are hard to read
MAX_LETTERS = 12  # of a token
EDGE, NODE = "the probability of the token given its prefix", "log P of all tokens so far | the score if it ended here"


class Layout(NamedTuple):
    columns: list[int]  # x of the nodes of each length, in pixels
    rows: dict[int, int]  # row of each node, counted from the top

    def position(self, tree: Tree, at: int) -> tuple[int, int]:
        return self.columns[tree.nodes[at].length], TOP + ROW * self.rows[at]


def draw_tree(tree: Tree) -> str:
    """Draw an SVG, which shrinks a little and then scrolls where it does not fit, and a legend of the statuses."""
    layout = Layout(place_columns(tree), place_rows(tree))
    width = max(layout.position(tree, at)[0] + BESIDE + label_width(tree, at) for at in range(len(tree.nodes)))
    height = TOP + ROW * (max(layout.rows.values()) + 1)
    trunk = tree.trunk
    edges = "".join(draw_edge(tree, at, layout, trunk) for at in range(1, len(tree.nodes)))
    nodes = "".join(draw_node(tree, at, layout, trunk) for at in range(len(tree.nodes)))
    statuses = {node.status for node in tree.nodes}
    legend = f"<dt>on an edge</dt><dd>{EDGE}</dd><dt>at a node</dt><dd>{NODE}</dd>"
    legend += "".join(
        f"<dt>{status}</dt><dd>{escape(meaning)}</dd>" for status, meaning in STATUSES.items() if status in statuses
    )
    return (
        f'<div class="scroll"><svg style="width: {width}px; max-width: 100%; min-width: {round(width * MIN_SCALE)}px" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="search tree">{edges}{nodes}</svg></div><dl>{legend}</dl>'
    )


def place_columns(tree: Tree) -> list[int]:
    """Make each step wide enough for its widest expanded token and the probability on the following edge."""
    steps = [STEP] * max(node.length for node in tree.nodes)
    for at in {node.parent for node in tree.nodes[1:]}:
        length = tree.nodes[at].length
        needed = max(label_width(tree, at), pixels(shorten_word(tree, at)) + BESIDE + PROBABILITY)
        steps[length] = max(steps[length], BESIDE + needed + BESIDE)
    return list(accumulate(steps, initial=LEFT))


def place_rows(tree: Tree) -> dict[int, int]:
    """The row of each node: the first child shares its parent's row, the others follow below, each with its subtree."""
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
    return "alive" if tree.nodes[at].status in ("kept", "finished") else "dead"


def draw_edge(tree: Tree, at: int, layout: Layout, trunk: set[int]) -> str:
    (x0, y0), (x1, y1) = layout.position(tree, tree.nodes[at].parent), layout.position(tree, at)
    bend = min(x0 + 40, x1)
    line = (
        f"M{x0} {y0} L{x1} {y1}" if y0 == y1 else f"M{x0} {y0} C{bend - 22} {y1} {bend - 10} {y1} {bend + 24} {y1} L{x1} {y1}"
    )
    probability = f'<text class="soft" text-anchor="end" x="{x1 - 11}" y="{y1 - 6}">{tree.nodes[at].probability:.4f}</text>'
    return f'<path class="{style(tree, at, trunk)}" d="{line}"/>{probability}'


def status_label(tree: Tree, at: int) -> str:
    """The status of a node that is not expanded."""
    node = tree.nodes[at]
    if at in tree.best:
        return f"hypothesis {tree.best.index(at) + 1}"
    return f"rank {node.rank}" if node.status == "rank" else "" if node.status == "kept" else node.status


def format_scores(tree: Tree, at: int) -> str:
    return f"{tree.nodes[at].total:.4f} | {tree.nodes[at].score:.4f}"


def shorten_word(tree: Tree, at: int) -> str:
    return tree.words[at] if len(tree.words[at]) <= MAX_LETTERS else f"{tree.words[at][: MAX_LETTERS - 1]}…"


def pixels(word: str) -> int:
    """An upper estimate of the width of bold text in most fonts."""
    return BOLD * display_width(word) + EXTRA * sum(letter in WIDE_LETTERS for letter in word)


def label_width(tree: Tree, at: int) -> int:
    """Pixels of the longer text line beside a node."""
    below = f"{format_scores(tree, at)} {status_label(tree, at)}".rstrip() if at else ""
    return max(pixels(shorten_word(tree, at)), LETTER * len(below))


def draw_node(tree: Tree, at: int, layout: Layout, trunk: set[int]) -> str:
    (x, y) = layout.position(tree, at)
    kind = style(tree, at, trunk) + (" finished" if tree.nodes[at].status == "finished" else "")
    text = f'<text class="word" x="{x + BESIDE}" y="{y - 7}">{escape(shorten_word(tree, at))}</text>'
    if at:
        emphasis = "word" if at in tree.best else "status"
        text += f'<text class="soft" x="{x + BESIDE}" y="{y + 15}">{format_scores(tree, at)}'
        text += f'<tspan class="{emphasis}" dx="8">{status_label(tree, at)}</tspan></text>'
    return f'<g class="{kind}"><circle cx="{x}" cy="{y}" r="{RADIUS}"/>{text}</g>'
