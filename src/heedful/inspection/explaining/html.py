"""An explanation as one self-contained HTML page: no network, no scripts, system fonts, light or dark."""

from __future__ import annotations

import math
from collections.abc import Iterable

from heedful.inspection.drawing.markup import escape
from heedful.inspection.explaining.drawing import draw_tree
from heedful.inspection.explaining.formulas import as_mathml
from heedful.inspection.explaining.stages import SUM, Cell, Check, Explanation, Matrix, Mistake, Stage
from heedful.inspection.explaining.text import format_cell, format_check

STYLE = """
:root { color-scheme: light dark; --back: #fbfaf7; --card: #ffffff; --ink: #1d2129; --soft: #5b6472; --line: #dcdfe4;
        --shade: #b3bac4;
        --accent: #1f5fbf; --share: 31, 95, 191; --wrong: #a8332a; --wrong-back: #fdf3f1; --right: #1c6b3c; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14171c; --card: #1c2027; --ink: #e6e8eb; --soft: #a3acb8; --line: #353b45; --shade: #596270;
          --accent: #83b1f5; --share: 96, 152, 235; --wrong: #f0938a; --wrong-back: #2a1f20; --right: #7fd0a0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
main:has(svg) { width: fit-content; min-width: min(68rem, 100%); max-width: min(118rem, 100%); }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 0; }
h3 { font-size: .95rem; margin: 0 0 .25rem; color: var(--wrong); }
p { margin: .5rem 0; max-width: 46rem; }
.opening { color: var(--soft); font-size: 1.05rem; }
section { --ground: var(--card); background: var(--ground); border: 1px solid var(--line); border-radius: 10px;
          padding: 1rem 1.1rem; margin: 1.1rem 0; }
header { display: flex; flex-wrap: wrap; gap: .25rem 2rem; align-items: center; justify-content: space-between; }
.formula { display: flex; flex-wrap: wrap; align-items: center; gap: 0 1.6rem; }
.formula { max-width: 100%; overflow: auto hidden; padding: 4px 0; }
math { font-size: 1.1rem; margin: 0; width: auto; padding: .15rem 0; }
.matrices { display: flex; flex-wrap: wrap; gap: 1rem 2rem; margin: .75rem 0; }
.scroll { overflow-x: auto; max-width: 100%;
          background: linear-gradient(to left, var(--ground) 1.5rem, transparent) right / 3rem 100% no-repeat local,
                      linear-gradient(to left, var(--shade), transparent) right / 1.5rem 100% no-repeat; } /* scrollable */
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .55rem; text-align: right; white-space: nowrap; }
thead th { border-bottom: 1px solid var(--line); font-weight: 600; }
th:first-child { text-align: left; }
tbody th { font-weight: 500; color: var(--soft); }
thead th:first-child { color: var(--accent); font-style: italic; }
td.word, th.word { text-align: left; }
aside { --ground: var(--wrong-back); border-left: 3px solid var(--wrong); background: var(--ground);
        border-radius: 0 8px 8px 0; padding: .7rem .9rem; margin: .9rem 0 0; }
aside p { font-size: .925rem; }
.check { color: var(--right); font-size: .9rem; margin: .3rem 0; }
.check.off { color: var(--wrong); }
svg { display: block; font: 12px system-ui, sans-serif; }
svg text, svg tspan.word { fill: var(--ink); } svg .soft { fill: var(--soft); } svg .word { font-weight: 600; }
svg path { fill: none; stroke: var(--line); stroke-width: 1.5; } svg path.alive { stroke: var(--accent); }
svg path.trunk { stroke: var(--accent); stroke-width: 3.5; } svg path.dead { stroke-dasharray: 4 3; stroke: var(--soft); }
svg circle { fill: var(--card); stroke: var(--soft); stroke-width: 1.5; }
svg .alive circle, svg .trunk circle { stroke: var(--accent); } svg .finished circle { fill: var(--accent); }
svg .dead text { fill: var(--soft); font-weight: 400; } svg tspan.status { fill: var(--wrong); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; font-size: .85rem; color: var(--soft); }
dt { font-weight: 600; } dd { margin: 0; }
@media (max-width: 40rem) { main { padding: 1.1rem .7rem 3rem; } section { padding: .8rem .8rem; } h1 { font-size: 1.4rem; } }
"""

WORD = ' class="word"'
MAX_COLUMNS = 8  # of a single row; a longer row is folded so that it fits a narrow page


def render(explanation: Explanation) -> str:
    title = escape(explanation.title)
    stages = "".join(render_stage(stage, number) for number, stage in enumerate(explanation.stages, start=1))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n"
        f'<body><main><h1>{title}</h1><p class="opening">{escape(explanation.opening)}</p>{stages}</main></body></html>\n'
    )


def render_stage(stage: Stage, number: int) -> str:
    formula = f'<div class="formula">{as_mathml(stage.formula)}</div>' if stage.formula else ""
    return (
        f"\n<section><header><h2>{number}. {escape(stage.title)}</h2>{formula}</header><p>{escape(stage.why)}</p>"
        f"{render_matrices(stage.matrices)}{'' if stage.tree is None else draw_tree(stage.tree)}"
        f"{''.join(map(render_check, stage.checks))}{''.join(map(render_mistake, stage.mistakes))}</section>"
    )


def render_mistake(mistake: Mistake) -> str:
    return (
        f"<aside><h3>Mistake: {escape(mistake.what)}</h3><p><b>Why it is wrong:</b> {escape(mistake.why)}</p>"
        f"{render_matrices(mistake.matrices)}</aside>"
    )


def render_check(check: Check) -> str:
    return f'<p class="check{"" if check.holds else " off"}">{escape(format_check(check))}</p>'


def render_matrices(matrices: Iterable[Matrix]) -> str:
    tables = "".join(f'<div class="scroll">{render_table(piece)}</div>' for matrix in matrices for piece in fold(matrix))
    return f'<div class="matrices">{tables}</div>' if tables else ""


def fold(matrix: Matrix) -> list[Matrix]:
    """Split a long single row into pieces of similar length, each with its label; matrices with more rows scroll."""
    count = len(matrix.columns)
    if len(matrix.rows) != 1 or count <= MAX_COLUMNS:
        return [matrix]
    size = math.ceil(count / math.ceil(count / MAX_COLUMNS))
    starts = range(0, count, size)
    (row,) = matrix.cells
    return [matrix._replace(columns=matrix.columns[at : at + size], cells=[row[at : at + size]]) for at in starts]


def render_table(matrix: Matrix) -> str:
    is_text = [any(isinstance(row[c], str) for row in matrix.cells) for c in range(len(matrix.columns))]
    head = f'<th scope="col">{escape(matrix.name)}</th>' + "".join(
        f'<th scope="col"{WORD if text else ""}>{escape(label)}</th>'
        for label, text in zip(matrix.columns, is_text, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{escape(label)}</th>{"".join(render_cell(value, matrix, c) for c, value in enumerate(row))}</tr>'
        for label, row in zip(matrix.rows, matrix.cells, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def render_cell(value: Cell, matrix: Matrix, column: int) -> str:
    kind = WORD if isinstance(value, str) else ""
    if matrix.shaded and isinstance(value, float) and matrix.columns[column] != SUM:
        kind = f' style="background: rgba(var(--share), {0.55 * min(max(value, 0.0), 1.0):.3f})"'
    return f"<td{kind}>{escape(format_cell(value, matrix.form))}</td>"
