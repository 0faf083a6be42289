"""An explanation as plain text with aligned matrices, side by side where they fit."""

from __future__ import annotations

import itertools
import math
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from heedful.inspection.explaining.formulas import as_text
from heedful.inspection.explaining.stages import Cell, Check, Explanation, Matrix, Mistake, Stage
from heedful.inspection.explaining.tree import STATUSES, Tree

WIDTH = 100
GAP = 4  # columns between adjacent matrices


def render(explanation: Explanation) -> str:
    lines = [explanation.title, "=" * display_width(explanation.title), *wrap(explanation.opening), ""]
    for number, stage in enumerate(explanation.stages, start=1):
        lines += [*stage_lines(stage, number), ""]
    return "\n".join(line.rstrip() for line in lines[:-1])


def stage_lines(stage: Stage, number: int) -> Iterator[str]:
    title, formula = f"{number}. {stage.title}", as_text(stage.formula) if stage.formula else ""
    room = WIDTH - display_width(title) - display_width(formula)
    if room >= 3:
        yield title + " " * room + formula
    else:
        yield from (title, formula.rjust(WIDTH))
    yield "-" * WIDTH
    yield from wrap(stage.why)
    yield from side_by_side(stage.matrices, indent=2)
    if stage.tree is not None:
        yield from ("", *tree_lines(stage.tree))
    for check in stage.checks:
        yield from wrap(format_check(check), indent=2, hanging=2)
    for mistake in stage.mistakes:
        yield from mistake_lines(mistake)


def mistake_lines(mistake: Mistake) -> Iterator[str]:
    yield ""
    yield from wrap(f"x  Mistake: {mistake.what}", indent=2, hanging=3)
    yield from wrap(f"Why it is wrong: {mistake.why}", indent=5)
    yield from side_by_side(mistake.matrices, indent=5)


def format_check(check: Check) -> str:
    """The tolerance is relative to the largest number if that exceeds 1."""
    if check.holds:
        tolerance = f"{check.within:.0e}".replace("e-0", "e-")
        size = f" times the largest {check.size_of}, {check.size:.3g}" if check.size > 1 else ""
        return f"= {check.what} matches the model's within {tolerance}{size} (largest difference {check.difference:.1e})"
    largest = f"the largest {check.size_of} is {check.size:.3g}"
    return f"! {check.what} differs from the model's by up to {check.difference:.1e} ({largest})"


def wrap(text: str, indent: int = 0, hanging: int = 0) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + hanging))


def side_by_side(matrices: Iterable[Matrix], indent: int) -> Iterator[str]:
    """Place as many matrices in a row as fit the width, with an empty line above each row."""
    blocks = [block for matrix in matrices for block in split_matrix(matrix, WIDTH - indent)]
    while blocks:
        count, width = 1, indent + display_width(blocks[0][0])
        while count < len(blocks) and width + GAP + display_width(blocks[count][0]) <= WIDTH:
            width += GAP + display_width(blocks[count][0])
            count += 1
        yield ""
        for i in range(max(map(len, blocks[:count]))):
            cells = [block[i] if i < len(block) else " " * display_width(block[0]) for block in blocks[:count]]
            yield " " * indent + (" " * GAP).join(cells)
        blocks = blocks[count:]


def split_matrix(matrix: Matrix, room: int) -> list[list[str]]:
    """Format a matrix as lines of equal width; a wide one as several pieces, each with the row labels."""
    left = max([display_width(matrix.name), *map(display_width, matrix.rows)])
    columns = [
        [label, *(format_cell(row[c], matrix.form) for row in matrix.cells)] for c, label in enumerate(matrix.columns)
    ]  # each a column of text, its label first
    widths = [max(map(display_width, column)) for column in columns]
    pieces, at = [], 0
    while at < len(columns):
        end, width = at + 1, left + 2 + widths[at]
        while end < len(columns) and width + 2 + widths[end] <= room:
            width += 2 + widths[end]
            end += 1
        labels = [matrix.name, *matrix.rows]
        pieces.append(
            [
                "  ".join([ljust(label, left), *(align(columns[c], i, widths[c]) for c in range(at, end))])
                for i, label in enumerate(labels)
            ]
        )
        at = end
    return pieces


def align(column: Sequence[str], i: int, width: int) -> str:
    """Align numbers right and words left."""
    numeric = all(cell == "" or cell[-1:].isdigit() or cell in ("−∞", "∞", "·", "nan") for cell in column[1:])
    return " " * (width - display_width(column[i])) + column[i] if numeric else ljust(column[i], width)


def format_cell(cell: Cell, form: str) -> str:
    """Format a cell: None is empty, booleans are 1 or ·, and an exact zero has no decimals."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "1" if cell else "·"
    if isinstance(cell, str | int):
        return str(cell)
    if math.isinf(cell):
        return "∞" if cell > 0 else "−∞"
    return f"{cell:{form}}" if cell else "0"


def display_width(text: str) -> int:
    """The number of terminal columns of a text."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def ljust(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


# Trees: the best hypothesis is the left edge, read downwards; everything else branches off it.


def tree_lines(tree: Tree) -> list[str]:
    rows = list(branch_rows(tree, 0, ""))
    left = max(display_width(row[0]) for row in rows)
    lines = wrap(
        "├─ marks a branch of the node above it. The last continuation of a node follows its branches, in the node's own "
        "column: the left edge, read downwards, is the best hypothesis.",
        indent=2,
    )
    lines += ["", f"  {ljust('token', left)}  {'p':>7}  {'log P':>9}  {'score':>9}  status"]
    lines += [f"  {ljust(row[0], left)}  {row[1]}" for row in rows]
    statuses = {node.status for node in tree.nodes}
    legend = [wrap(f"{status:<10}{why}", indent=2, hanging=10) for status, why in STATUSES.items() if status in statuses]
    return [*lines, "", *itertools.chain.from_iterable(legend)]


def branch_rows(tree: Tree, at: int, indent: str) -> Iterator[tuple[str, str]]:
    """Yield (left text, right text) of a node and its descendants; the main continuation comes last, in the same column."""
    node, children = tree.nodes[at], tree.children(at)
    if at == 0:
        right = ""
    else:
        best = f"  hypothesis {tree.best.index(at) + 1}" if at in tree.best else ""
        rank = f" {node.rank}" if node.status == "rank" else ""
        right = f"{node.probability:7.4f}  {node.total:9.4f}  {node.score:9.4f}  {node.status}{rank}{best}"
    yield indent + ("● " if node.status in ("kept", "finished") else "○ ") + tree.words[at], right
    if not children:
        return
    main = max(children, key=lambda i: (i in tree.trunk, depth(tree, i), tree.nodes[i].total))
    for child in (i for i in children if i != main):
        rows = list(branch_rows(tree, child, ""))
        for number, (left, right) in enumerate(rows):
            yield indent + ("├─" if number == 0 else "│ ") + left, right
    yield from branch_rows(tree, main, indent)


def depth(tree: Tree, at: int) -> int:
    """The length of the longest prefix below a node."""
    return max((depth(tree, child) for child in tree.children(at)), default=tree.nodes[at].length)
