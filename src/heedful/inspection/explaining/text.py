"""An explanation as text: aligned matrices, as many side by side as fit, readable in a terminal and in a pipe."""

from __future__ import annotations

import itertools
import math
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from heedful.inspection.explaining.formulas import as_text
from heedful.inspection.explaining.stages import Cell, Check, Explanation, Matrix, Mistake, Stage
from heedful.inspection.explaining.tree import FATES, Tree

WIDTH = 100
GAP = 4  # columns between matrices that stand side by side


def render(explanation: Explanation) -> str:
    lines = [explanation.title, "=" * wide(explanation.title), *wrapped(explanation.opening), ""]
    for number, stage in enumerate(explanation.stages, start=1):
        lines += [*stage_lines(stage, number), ""]
    return "\n".join(line.rstrip() for line in lines[:-1])


def stage_lines(stage: Stage, number: int) -> Iterator[str]:
    title, formula = f"{number}. {stage.title}", as_text(stage.formula) if stage.formula else ""
    room = WIDTH - wide(title) - wide(formula)
    if room >= 3:
        yield title + " " * room + formula
    else:
        yield from (title, formula.rjust(WIDTH))
    yield "-" * WIDTH
    yield from wrapped(stage.why)
    yield from beside(stage.matrices, indent=2)
    if stage.tree is not None:
        yield from ("", *tree_lines(stage.tree))
    for one in stage.checks:
        yield from wrapped(said(one), indent=2, hanging=2)
    for mistake in stage.mistakes:
        yield from mistake_lines(mistake)


def mistake_lines(mistake: Mistake) -> Iterator[str]:
    yield ""
    yield from wrapped(f"x  Mistake: {mistake.what}", indent=2, hanging=3)
    yield from wrapped(f"Why it is wrong: {mistake.why}", indent=5)
    yield from beside(mistake.matrices, indent=5)


def said(one: Check) -> str:
    """The difference is measured on the largest number, where that is more than 1."""
    if one.holds:
        within = f"{one.within:.0e}".replace("e-0", "e-")
        size = f" of its largest {one.size_of}, {one.size:.3g}" if one.size > 1 else ""
        return f"= {one.what} equals the model's within {within}{size} (largest difference {one.difference:.1e})"
    return f"! {one.what} differs from the model's by up to {one.difference:.1e}, of {one.size_of}s up to {one.size:.3g}"


def wrapped(text: str, indent: int = 0, hanging: int = 0) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + hanging))


def beside(matrices: Iterable[Matrix], indent: int) -> Iterator[str]:
    """Matrices next to each other while they fit into a line, an empty line above each such row of them."""
    blocks = [block for matrix in matrices for block in cut(matrix, WIDTH - indent)]
    while blocks:
        taken, width = 1, indent + wide(blocks[0][0])
        while taken < len(blocks) and width + GAP + wide(blocks[taken][0]) <= WIDTH:
            width += GAP + wide(blocks[taken][0])
            taken += 1
        yield ""
        for i in range(max(map(len, blocks[:taken]))):
            cells = [block[i] if i < len(block) else " " * wide(block[0]) for block in blocks[:taken]]
            yield " " * indent + (" " * GAP).join(cells)
        blocks = blocks[taken:]


def cut(matrix: Matrix, room: int) -> list[list[str]]:
    """A matrix as lines of one width; where it is too wide, in several pieces that each have its row labels."""
    left = max([wide(matrix.name), *map(wide, matrix.rows)])
    columns = [
        [label, *(shown(row[c], matrix.form) for row in matrix.cells)] for c, label in enumerate(matrix.columns)
    ]  # each a column of text, its label first
    widths = [max(map(wide, column)) for column in columns]
    pieces, at = [], 0
    while at < len(columns):
        end, width = at + 1, left + 2 + widths[at]
        while end < len(columns) and width + 2 + widths[end] <= room:
            width += 2 + widths[end]
            end += 1
        labels = [matrix.name, *matrix.rows]
        pieces.append(
            [
                "  ".join([ljust(label, left), *(place(columns[c], i, widths[c]) for c in range(at, end))])
                for i, label in enumerate(labels)
            ]
        )
        at = end
    return pieces


def place(column: Sequence[str], i: int, width: int) -> str:
    """Numbers stand right, words left."""
    numeric = all(cell == "" or cell[-1:].isdigit() or cell in ("−∞", "∞", "·", "nan") for cell in column[1:])
    return " " * (width - wide(column[i])) + column[i] if numeric else ljust(column[i], width)


def shown(cell: Cell, form: str) -> str:
    """As people write it: nothing, 1 or ·, a word, a number; a zero that is exact has no digits."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "1" if cell else "·"
    if isinstance(cell, str | int):
        return str(cell)
    if math.isinf(cell):
        return "∞" if cell > 0 else "−∞"
    return f"{cell:{form}}" if cell else "0"


def wide(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def ljust(text: str, width: int) -> str:
    return text + " " * (width - wide(text))


# Trees: the way to the best hypothesis goes straight down, all else branches off it.


def tree_lines(tree: Tree) -> list[str]:
    rows = list(branch(tree, 0, ""))
    left = max(wide(row[0]) for row in rows)
    lines = wrapped(
        "├─ branches off the node above it. The last continuation of a node stands straight below it, after the "
        "branches and in its own column: the left edge, read downwards, is the best hypothesis.",
        indent=2,
    )
    lines += ["", f"  {ljust('token', left)}  {'p':>7}  {'log P':>9}  {'score':>9}  fate"]
    lines += [f"  {ljust(row[0], left)}  {row[1]}" for row in rows]
    used = {node.fate for node in tree.nodes}
    fates = [wrapped(f"{fate:<10}{why}", indent=2, hanging=10) for fate, why in FATES.items() if fate in used]
    return [*lines, "", *itertools.chain.from_iterable(fates)]


def branch(tree: Tree, at: int, indent: str) -> Iterator[tuple[str, str]]:
    """(what stands left, what stands right) for a node and all below it; the likeliest way on comes last, straight below."""
    node, children = tree.nodes[at], tree.children(at)
    if at == 0:
        right = ""
    else:
        best = f"  hypothesis {tree.best.index(at) + 1}" if at in tree.best else ""
        rank = f" {node.rank}" if node.fate == "rank" else ""
        right = f"{node.probability:7.4f}  {node.total:9.4f}  {node.score:9.4f}  {node.fate}{rank}{best}"
    yield indent + ("● " if node.fate in ("kept", "ended") else "○ ") + tree.words[at], right
    if not children:
        return
    straight = max(children, key=lambda i: (i in tree.trunk, depth(tree, i), tree.nodes[i].total))
    for child in (i for i in children if i != straight):
        inside = list(branch(tree, child, ""))
        for number, (left, said) in enumerate(inside):
            yield indent + ("├─" if number == 0 else "│ ") + left, said
    yield from branch(tree, straight, indent)


def depth(tree: Tree, at: int) -> int:
    """How far a node was followed."""
    return max((depth(tree, child) for child in tree.children(at)), default=tree.nodes[at].length)
